// The loop of a simulation, for every purpose: a template that each purpose makes its own functions of. std only.

#ifndef TF_PLACER_OPS_CC_SIMULATION_H_
#define TF_PLACER_OPS_CC_SIMULATION_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "legs.h"
#include "placed.h"
#include "simulation_plan.h"
#include "workspace.h"

// The whole simulation becomes one function, so that the compiler sees that the simulation's own fields
// are not reached through any of its pointers and keeps them in registers.
#define TF_PLACER_INLINE __attribute__((always_inline)) inline

namespace tf_placer {

// What is due next on a device or channel ("slot"): the time, and behind it in kSlotBits the slot, so
// that the least key says when and where at once. The keys are the leaves of a tournament: node i holds
// the lesser of nodes 2i and 2i + 1, so node 1 is what happens next.
constexpr int kSlotBits = 12;
constexpr uint64_t kNever = UINT64_MAX;

// In place of what an op still waits for.
constexpr int32_t kStarted = -1;

// Of a step that was not simulated to its end.
constexpr int64_t kStopped = INT64_MAX;

static_assert(kMaxDevices * kMaxDevices <= 1 << kSlotBits, "every device and channel needs a slot");

// Which of a device's ready ops comes first: the one that is ready first, or the one that the problem's
// priorities say, or a placement's own priorities and then the problem's.
enum class Order { kUniform, kByPriority, kByPlan };

// What is asked of a simulation: time and memory; when each op runs, too; or only whether the step takes at
// most so long, where everything fits anywhere or within the devices' memory.
enum class Purpose { kCosts, kSchedule, kWithin, kWithinMemory };

// What else takes time: nothing; the host that dispatches ops and the runtime that hands over tensors; or these, and
// devices that work for transfers. A simulation of kFeeding is right where there is none of it, too.
enum class Extras { kNone, kFeeding, kAll };

inline Extras ExtrasOf(const SimulationPlan& plan) {
  if (plan.has_chores) return Extras::kAll;
  return plan.has_dispatch || plan.has_hand_over ? Extras::kFeeding : Extras::kNone;
}

// What a simulation writes to beside its workspace.
struct Outputs {
  int64_t* peak_bytes = nullptr;  // [D], unless everything fits anywhere
  int64_t* start_ns = nullptr;    // [N] with a schedule; or [M] with a limit, where somebody asks for it
  int64_t* end_ns = nullptr;      // alike
  Legs legs;                      // with a schedule, where somebody asks for them
};

// One run over one placement. The order of what happens at one time is that of the reference simulator.
// kDevices is D where it is known when this is compiled, which makes loops over devices cheap, or 0.
template <int kDevices, Order kOrder, Purpose kPurpose, Extras kExtras>
class Simulation {
  static constexpr bool kChores = kExtras == Extras::kAll;
  static constexpr bool kFeeding = kExtras != Extras::kNone;
  static constexpr bool kWithSchedule = kPurpose == Purpose::kSchedule;
  static constexpr bool kBounded = kPurpose == Purpose::kWithin || kPurpose == Purpose::kWithinMemory;
  static constexpr bool kMemory = kPurpose != Purpose::kWithin;

 public:
  TF_PLACER_INLINE Simulation(const SimulationPlan& plan, Workspace* workspace, const Outputs& outputs)
      : num_devices_(plan.num_devices),
        num_ops_(plan.num_ops),
        num_leaves_(workspace->due.size() / 2),
        ops_(plan.ops.data()),
        tensors_(plan.tensors.data()),
        consumers_(plan.consumers.data()),
        shared_inputs_(plan.shared_inputs.data()),
        shared_(plan.shared.data()),
        aliases_(plan.aliases.data()),
        freed_bytes_(plan.end_bytes.data()),
        sizes_(plan.sizes.data()),
        costs_(plan.costs.data()),
        link_class_(plan.link_class.data()),
        channel_(plan.channel.data()),
        tensor_ns_(plan.tensor_ns.data()),
        priority_(plan.priority.data()),
        tensor_producer_(plan.tensor_producer.data()),
        tail_ns_(plan.tail_ns.data()),
        plan_priority_(workspace->plan_priority.get()),
        awaited_(workspace->awaited.data()),
        awaited_ops_(&workspace->awaited_ops),
        original_op_(plan.original_op.data()),
        num_all_tensors_(plan.num_all_tensors),
        original_tensor_(plan.original_tensor.data()),
        state_(workspace->state.get()),
        uses_(workspace->uses.get()),
        transfers_(workspace->transfers.get()),
        fresh_(workspace->fresh.get()),
        arrived_ns_(kFeeding && plan.has_dispatch ? workspace->arrived_ns.get() : nullptr),
        free_ready_(workspace->ready.get() + int64_t{plan.num_devices} * plan.max_ready),
        ready_end_(workspace->ready_end.data()),
        devices_(workspace->devices.data()),
        bytes_(workspace->bytes.data()),
        channels_(workspace->channels.data()),
        due_(workspace->due.data()),
        peak_bytes_(outputs.peak_bytes),
        start_ns_(outputs.start_ns),
        end_ns_(outputs.end_ns),
        legs_(outputs.legs),
        hand_over_(workspace->hand_overs.get()),
        hand_overs_end_(hand_over_) {
    Running* running = workspace->running.get();
    for (int d = 0; d < num_devices_; ++d) {
      const int64_t row = int64_t{d} * plan.max_ready;
      int32_t* const ready = workspace->ready.get() + row;
      const int32_t streams = std::min<int64_t>(plan.streams[d], plan.max_running);
      Ready* const heap = kOrder == Order::kUniform ? nullptr : workspace->heap.get() + row;
      devices_[d] = {ready, ready, running, heap, 0, streams, 0, plan.newest_first[d], {-1, -1}, 0, {},
                     plan.dispatch_ns[d], 0};
      ready_end_[d] = ready;
      running += streams;
    }
    ready_end_[num_devices_] = free_ready_;
    if (kMemory) {
      std::fill_n(bytes_, num_devices_, 0);
      std::fill_n(peak_bytes_, num_devices_, 0);
    }
    if (kFeeding && arrived_ns_ != nullptr) std::fill_n(arrived_ns_, num_ops_, 0);
    std::fill_n(due_, 2 * num_leaves_, kNever);
  }

  // How long the step takes. `priority_of_op` [N] comes before the problem's own where kOrder is kByPlan.
  TF_PLACER_INLINE int64_t Run(const SimulationPlan& plan, const int32_t* device_of_unit,
                               const int32_t* priority_of_op) {
    Place(plan, device_of_unit);
    if (kOrder == Order::kByPlan) {
      Prioritize(priority_of_op);
      FindAwaited();
    }
    return RunPlaced(plan);
  }

  // How long the step takes, or more than `limit_ns` as soon as it is known to take longer or not to fit. Where kOrder
  // is kByPlan the workspace has the priorities and what is waited for.
  TF_PLACER_INLINE int64_t RunWithin(const SimulationPlan& plan, const Placed& placed, int64_t limit_ns,
                                     const int64_t* capacity_bytes) {
    std::copy_n(placed.state(), num_ops_, state_);
    joining_ns_ = placed.JoiningNs(plan);
    limit_ns_ = limit_ns - joining_ns_;
    capacity_bytes_ = capacity_bytes;
    for (int d = 0; d < D(); ++d) {
      devices_[d].left_ns = placed.work_ns()[d];
      if (kMemory) bytes_[d] = placed.held_bytes()[d];
    }
    return RunPlaced(plan);
  }

 private:
  TF_PLACER_INLINE int64_t RunPlaced(const SimulationPlan& plan) {
    for (int d = 0; kOrder == Order::kByPlan && d < D(); ++d) devices_[d].awaited = awaited_[d];
    for (const int32_t op : plan.sources) MakeReady(op, 1);
    EndFreeOps();
    touched_ = ~uint64_t{0} >> (kMaxDevices - num_devices_);
    while (true) {
      QueueTransfers();
      // A transfer can take no time at all; the ops it makes ready belong to this moment too.
      if (Due() >= after_now_) {
        StartOps();
        if (kBounded && over_) return kStopped;
        const uint64_t due = Due();
        if (due == kNever) return now_ns_ + joining_ns_;
        now_ns_ = due >> kSlotBits;
        after_now_ = static_cast<uint64_t>(now_ns_ + 1) << kSlotBits;
      }
      while (due_[1] < after_now_) {
        EndSlot(due_[1] & ((1 << kSlotBits) - 1));
        EndFreeOps();
      }
      if (kFeeding && hand_over_due_ < after_now_) {
        EndHandOvers();
        EndFreeOps();
      }
    }
  }

  // When something happens next; behind it in kSlotBits what, if it is no hand-over.
  TF_PLACER_INLINE uint64_t Due() const { return kFeeding ? std::min(due_[1], hand_over_due_) : due_[1]; }

  TF_PLACER_INLINE int32_t D() const { return kDevices > 0 ? kDevices : num_devices_; }

  TF_PLACER_INLINE void Place(const SimulationPlan& plan, const int32_t* device_of_unit) {
    for (const auto& resident : plan.resident) bytes_[device_of_unit[resident.unit]] += resident.bytes;
    const SimulationPlan::OpInit* const inits = plan.inits.data();
    uint64_t computes = 0;
    for (int n = 0; n < num_ops_; ++n) {
      const int32_t device = device_of_unit[inits[n].unit];
      int32_t free = inits[n].free;
      if (free == static_cast<int32_t>(SimulationPlan::Free::kSomewhere)) {
        free = (plan.free_on[ops_[n].cost / (D() + 1)] >> device) & 1;
      }
      state_[n] = {inits[n].pending, static_cast<uint16_t>(device),
                   static_cast<uint16_t>(device + free * (D() - device))};
      computes |= uint64_t{!free} << device;
    }
    for (; computes != 0; computes &= computes - 1) {
      joining_ns_ = std::max(joining_ns_, plan.join_ns[__builtin_ctzll(computes)]);
    }
  }

  TF_PLACER_INLINE void Prioritize(const int32_t* priority_of_op) {
    for (int n = 0; n < num_ops_; ++n) {
      const int64_t own = int64_t{priority_[n]} - INT32_MIN;  // in the lower half, so not negative
      plan_priority_[n] = int64_t{priority_of_op[original_op_[n]]} * (int64_t{1} << 32) + own;
    }
  }

  // Ops of a priority below 0 are waited for, in their order, unless they cost nothing. Most plans have none.
  __attribute__((noinline)) void FindAwaited() {
    std::fill_n(awaited_, D(), Awaited{});
    awaited_ops_->clear();
    for (int32_t n = 0; n < num_ops_; ++n) {
      if (plan_priority_[n] < 0 && state_[n].queue < D()) awaited_ops_->push_back(n);
    }
    if (awaited_ops_->empty()) return;
    std::sort(awaited_ops_->begin(), awaited_ops_->end(), [this](int32_t left, int32_t right) {
      if (state_[left].queue != state_[right].queue) return state_[left].queue < state_[right].queue;
      return plan_priority_[left] < plan_priority_[right];
    });
    const int32_t* op = awaited_ops_->data();
    const int32_t* const end = op + awaited_ops_->size();
    for (int d = 0; d < D(); ++d) {
      awaited_[d].begin = op;
      while (op != end && state_[*op].queue == d) ++op;
      awaited_[d].end = op;
    }
  }

  TF_PLACER_INLINE void SetDue(int32_t slot, int64_t end_ns) {
    SetKey(slot, static_cast<uint64_t>(end_ns) << kSlotBits | slot);
  }

  TF_PLACER_INLINE void SetKey(int32_t slot, uint64_t key) {
    size_t node = num_leaves_ + slot;
    due_[node] = key;
    while (node > 1) {
      const uint64_t other = due_[node ^ 1];
      key = other < key ? other : key;
      node >>= 1;
      due_[node] = key;
    }
  }

  // Without a branch, since whether an op becomes ready is as good as random: it is always written
  // behind its queue, which grows by it or does not.
  TF_PLACER_INLINE void MakeReady(int32_t op, int32_t yes) {
    int32_t*& end = ready_end_[state_[op].queue];
    *end = op;
    end += yes;
    __builtin_prefetch(ops_ + op);  // it matters where the graph is larger than the cache
  }

  // A tensor is at `device`: if `op` is there too, that is one less to wait for.
  TF_PLACER_INLINE void Arrive(int32_t op, int32_t device) {
    const int32_t here = state_[op].device == device;
    MakeReady(op, ((state_[op].pending -= here) == 0) & here);
  }

  // Output bytes, then the time on every device.
  TF_PLACER_INLINE const int64_t* CostOf(int32_t op) const {
    return costs_ + ops_[op].cost;
  }

  TF_PLACER_INLINE void KeepSpan(int32_t op, int64_t takes_ns) {
    if (!kWithSchedule && !(kBounded && start_ns_ != nullptr)) return;
    const int32_t row = kWithSchedule ? original_op_[op] : op;
    start_ns_[row] = now_ns_;
    end_ns_[row] = now_ns_ + takes_ns;
  }

  TF_PLACER_INLINE void KeepLeg(Leg leg, const Transfer& transfer, int64_t takes_ns) {
    if (!kWithSchedule || legs_.start_ns == nullptr) return;
    const int64_t row = int64_t{leg} * num_all_tensors_ + original_tensor_[transfer.tensor];
    legs_.start_ns[row * D() + transfer.target] = now_ns_;
    legs_.end_ns[row * D() + transfer.target] = now_ns_ + takes_ns;
  }

  TF_PLACER_INLINE void EndFreeOps() {
    while (ready_end_[D()] != free_ready_) {
      const int32_t op = *--ready_end_[D()];
      const int32_t device = state_[op].device;
      if (kMemory) bytes_[device] += CostOf(op)[0];
      KeepSpan(op, 0);
      if (kFeeding && arrived_ns_ != nullptr && arrived_ns_[op] > 0) PassOnArrival(op);
      EndOp(op, device);
    }
  }

  // What a free op had from another device its readers have from there, too. Rare.
  __attribute__((noinline)) void PassOnArrival(int32_t op) {
    for (int32_t t = ops_[op].tensor_begin; t < ops_[op + 1].tensor_begin; ++t) {
      const int32_t consumer = tensors_[t].consumer;
      if (consumer >= 0) {
        PassOnArrival(op, consumer);
        continue;
      }
      const SimulationPlan::Shared& shared = shared_[~consumer];
      for (int32_t i = shared.begin; i < shared.end; ++i) PassOnArrival(op, consumers_[i]);
    }
  }

  void PassOnArrival(int32_t op, int32_t consumer) {
    if (state_[consumer].device != state_[op].device) return;
    arrived_ns_[consumer] = std::max(arrived_ns_[consumer], arrived_ns_[op]);
  }

  TF_PLACER_INLINE void EndOp(int32_t op, int32_t device) {
    fresh_sorted_ &= num_fresh_ == 0;  // one op hands its tensors over in order
    const SimulationPlan::Op* const facts = ops_ + op;
    for (int32_t t = facts->tensor_begin; t < facts[1].tensor_begin; ++t) {
      const int32_t consumer = tensors_[t].consumer;
      if (consumer >= 0) {
        const int32_t target = state_[consumer].device;
        Arrive(consumer, device);
        fresh_[num_fresh_] = FreshKey(t, device, target, kToSend);
        num_fresh_ += target != device;
      } else {
        SendShared(t, ~consumer, device);
      }
    }
    // Inputs go last, as an output may share the memory of one.
    if (kMemory) {
      int64_t freed_bytes = freed_bytes_[facts->end_bytes];
      for (int32_t i = facts->shared_begin; i < facts[1].shared_begin; ++i) {
        freed_bytes += ReleaseShared(shared_inputs_[i], device);
      }
      bytes_[device] -= freed_bytes;
    }
  }

  TF_PLACER_INLINE void SendShared(int32_t tensor, int32_t row, int32_t source) {
    int32_t* const uses = uses_ + row * (D() + 1);
    for (int d = 0; kMemory && d < D(); ++d) uses[d] = 0;
    uint64_t targets = 0;
    for (int32_t i = shared_[row].begin; i < shared_[row].end; ++i) {
      const int32_t device = state_[consumers_[i]].device;
      if (kMemory) ++uses[device];
      targets |= uint64_t{1} << device;
      Arrive(consumers_[i], source);
    }
    const int64_t fresh_before = num_fresh_;
    for (targets &= ~(uint64_t{1} << source); targets != 0; targets &= targets - 1) {
      fresh_[num_fresh_++] = FreshKey(tensor, source, __builtin_ctzll(targets), kToSend);
    }
    if (!kMemory) return;
    uses[source] += num_fresh_ - fresh_before;
    const int32_t alias = shared_[row].alias;
    if (alias >= 0 && aliases_[alias].parent >= 0) ++uses_[aliases_[alias].parent + source];
  }

  // Counts down what keeps a shared tensor on a device; returns the bytes that this frees.
  TF_PLACER_INLINE int64_t ReleaseShared(int32_t uses_row, int32_t device) {
    int32_t* const uses = uses_ + uses_row;
    const int32_t left = --uses[device];
    const int32_t size = uses[D()];
    if (size < 0) return left == 0 ? ReleaseAlias(uses_, state_, aliases_, sizes_, D(), ~size, device) : 0;
    return sizes_[size] & -int64_t{left == 0};
  }

  // Of a tensor whose last use on a device has ended: a copy has memory of its own, but where the tensor was made it
  // was a use of another one. Static, so that the simulation's own fields stay in registers.
  static __attribute__((noinline)) int64_t ReleaseAlias(int32_t* uses, const OpState* state,
                                                        const SimulationPlan::Alias* aliases, const int64_t* sizes,
                                                        int32_t num_devices, int32_t alias, int32_t device) {
    while (true) {
      if (device != state[aliases[alias].producer].device) return sizes[aliases[alias].size];
      if (aliases[alias].parent < 0) return 0;
      int32_t* const parent = uses + aliases[alias].parent;
      if (--parent[device] > 0) return 0;
      if (parent[num_devices] >= 0) return sizes[parent[num_devices]];
      alias = ~parent[num_devices];
    }
  }

  enum TransferState { kToSend, kSent, kCrossed };

  // Sorts by tensor, then target. A device number has 6 bits.
  static TF_PLACER_INLINE uint64_t FreshKey(int32_t tensor, int32_t source, int32_t target,
                                            TransferState state) {
    return static_cast<uint64_t>(tensor) << 16 | static_cast<uint64_t>(target) << 8 | state << 6 | source;
  }

  // Something may be fresh already, and this need not come behind it.
  TF_PLACER_INLINE void Requeue(const Transfer& transfer, TransferState state) {
    fresh_sorted_ &= num_fresh_ == 0;
    fresh_[num_fresh_++] = FreshKey(transfer.tensor, transfer.source, transfer.target, state);
  }

  TF_PLACER_INLINE void QueueTransfers() {
    if (!fresh_sorted_) std::sort(fresh_, fresh_ + num_fresh_);
    for (int64_t i = 0; i < num_fresh_; ++i) {
      const int32_t tensor = fresh_[i] >> 16;
      const int32_t target = (fresh_[i] >> 8) & 0xff;
      const int32_t source = fresh_[i] & 0x3f;
      if (kChores) {
        const int state = (fresh_[i] >> 6) & 0x3;
        if (state == kCrossed || (state == kToSend && SendNs(tensor, source, target) > 0)) {
          QueueChore(tensor, source, target, state == kCrossed ? target : source);
          continue;
        }
      }
      QueueTransfer(tensor, source, target);
    }
    num_fresh_ = 0;
    fresh_sorted_ = true;
  }

  TF_PLACER_INLINE int64_t SendNs(int32_t tensor, int32_t source, int32_t target) const {
    return sizes_[tensors_[tensor].size + link_class_[source * D() + target] + 1];
  }

  TF_PLACER_INLINE int64_t ReceiveNs(int32_t tensor, int32_t source, int32_t target) const {
    return sizes_[tensors_[tensor].size + link_class_[source * D() + target] + 2];
  }

  TF_PLACER_INLINE void QueueChore(int32_t tensor, int32_t source, int32_t target, int32_t device) {
    const int32_t index = num_transfers_++;
    transfers_[index] = {tensor, -1, static_cast<uint16_t>(source), static_cast<uint16_t>(target)};
    touched_ |= uint64_t{1} << device;
    DeviceState& state = devices_[device];
    if (state.newest_first && device == source) {
      *ready_end_[device]++ = ~index;  // sorts below the ops of this moment, and the later ones below it
      return;
    }
    (state.chores.head < 0 ? state.chores.head : transfers_[state.chores.tail].next) = index;
    state.chores.tail = index;
  }

  TF_PLACER_INLINE void QueueTransfer(int32_t tensor, int32_t source, int32_t target) {
    const int32_t index = num_transfers_++;
    const int32_t channel_index = channel_[source * D() + target];
    const int32_t slot = D() + channel_index;
    TransferList& channel = channels_[channel_index];
    transfers_[index] = {tensor, -1, static_cast<uint16_t>(source), static_cast<uint16_t>(target)};
    if (due_[num_leaves_ + slot] == kNever) {
      StartTransfer(slot, index);
    } else {
      transfers_[channel.tail].next = index;
    }
    channel.tail = index;
  }

  TF_PLACER_INLINE void StartTransfer(int32_t slot, int32_t index) {
    const Transfer& transfer = transfers_[index];
    const int32_t size = tensors_[transfer.tensor].size;
    const int32_t consumer = tensors_[transfer.tensor].consumer;
    // As for ops. One of the two is wasted: cheaper than to ask which.
    __builtin_prefetch(state_ + std::max(consumer, 0));
    __builtin_prefetch(shared_ + std::max(~consumer, 0));
    const int32_t link = transfer.source * D() + transfer.target;
    channels_[slot - D()].head = index;
    const int64_t takes_ns = sizes_[size + link_class_[link]];
    KeepLeg(kCross, transfer, takes_ns);
    SetDue(slot, now_ns_ + takes_ns);
    if (kMemory) bytes_[transfer.target] += sizes_[size];
  }

  TF_PLACER_INLINE void EndSlot(int32_t slot) {
    if (slot < D()) {
      EndComputation(slot);
    } else {
      EndTransfer(slot);
    }
  }

  TF_PLACER_INLINE void EndComputation(int32_t d) {
    DeviceState& device = devices_[d];
    const int32_t op = device.running[--device.num_running].op;
    if (device.num_running > 0) {
      SetDue(d, device.running[device.num_running - 1].end_ns);
    } else {
      SetKey(d, kNever);
    }
    touched_ |= uint64_t{1} << d;
    if (kChores && op < 0) {
      EndChore(transfers_[~op], d);
    } else {
      EndOp(op, d);
    }
  }

  TF_PLACER_INLINE void EndChore(const Transfer& transfer, int32_t device) {
    if (device == transfer.source) {
      Requeue(transfer, kSent);
    } else {
      ArriveFromAfar(transfer);
    }
  }

  TF_PLACER_INLINE void EndTransfer(int32_t slot) {
    const int32_t index = channels_[slot - D()].head;
    const Transfer& transfer = transfers_[index];
    if (transfer.next < 0) {
      SetKey(slot, kNever);
    } else {
      StartTransfer(slot, transfer.next);
    }
    const SimulationPlan::Tensor& tensor = tensors_[transfer.tensor];
    if (kMemory) {
      bytes_[transfer.source] -= tensor.consumer >= 0
                                     ? sizes_[tensor.size]
                                     : ReleaseShared(~tensor.consumer * (D() + 1), transfer.source);
    }
    const int64_t hand_over_ns = kFeeding ? tensor_ns_[transfer.source * D() + transfer.target] : 0;
    if (hand_over_ns > 0) {
      StartHandOver(index, hand_over_ns);
    } else {
      Receive(transfer);
    }
  }

  // Nearly always behind all others, as most links take the same time for it.
  TF_PLACER_INLINE void StartHandOver(int32_t transfer, int64_t takes_ns) {
    const int64_t due_ns = now_ns_ + takes_ns;
    HandOver* place = hand_overs_end_++;
    for (; place != hand_over_ && place[-1].due_ns > due_ns; --place) *place = place[-1];
    *place = {due_ns, transfer};
    hand_over_due_ = static_cast<uint64_t>(hand_over_->due_ns) << kSlotBits;
  }

  TF_PLACER_INLINE void EndHandOvers() {
    do {
      Receive(transfers_[hand_over_++->transfer]);
    } while (hand_over_ != hand_overs_end_ && hand_over_->due_ns == now_ns_);
    hand_over_due_ = hand_over_ == hand_overs_end_ ? kNever : static_cast<uint64_t>(hand_over_->due_ns) << kSlotBits;
  }

  TF_PLACER_INLINE void Receive(const Transfer& transfer) {
    if (kChores && ReceiveNs(transfer.tensor, transfer.source, transfer.target) > 0) {
      Requeue(transfer, kCrossed);
    } else {
      ArriveFromAfar(transfer);
    }
  }

  TF_PLACER_INLINE void ArriveFromAfar(const Transfer& transfer) {
    touched_ |= uint64_t{1} << transfer.target;
    const SimulationPlan::Tensor& tensor = tensors_[transfer.tensor];
    if (tensor.consumer >= 0) {
      if (kFeeding && arrived_ns_ != nullptr) arrived_ns_[tensor.consumer] = now_ns_;
      MakeReady(tensor.consumer, --state_[tensor.consumer].pending == 0);
      return;
    }
    const SimulationPlan::Shared& shared = shared_[~tensor.consumer];
    for (int32_t i = shared.begin; i < shared.end; ++i) {
      const int32_t consumer = consumers_[i];
      if (kFeeding && arrived_ns_ != nullptr && state_[consumer].device == transfer.target) {
        arrived_ns_[consumer] = now_ns_;
      }
      Arrive(consumer, transfer.target);
    }
  }

  // Everything else at the present time has happened before, so this is when memory is compared with
  // its peak. Whatever ends makes ops ready on one device only, so few devices are worth a look.
  TF_PLACER_INLINE void StartOps() {
    for (; touched_ != 0; touched_ &= touched_ - 1) {
      const int d = __builtin_ctzll(touched_);
      DeviceState& device = devices_[d];
      if (kChores) StartChores(d, device);
      if (kOrder == Order::kUniform) {
        StartInOrder(d, device);
      } else {
        StartByPriority(d, device);
      }
    }
    if (kOrder == Order::kByPlan && Due() == kNever) StartInVain();
    for (int d = 0; kMemory && d < D(); ++d) {
      peak_bytes_[d] = std::max(peak_bytes_[d], bytes_[d]);
      if (kBounded) over_ |= bytes_[d] > capacity_bytes_[d];
    }
  }

  TF_PLACER_INLINE void StartChores(int d, DeviceState& device) {
    while (device.chores.head >= 0 && device.num_running < device.streams) {
      const int32_t index = device.chores.head;
      device.chores.head = transfers_[index].next;
      StartChore(d, index);
    }
  }

  TF_PLACER_INLINE void StartChore(int d, int32_t index) {
    const Transfer& transfer = transfers_[index];
    const bool sends = d == transfer.source;
    const int64_t takes_ns = sends ? SendNs(transfer.tensor, transfer.source, transfer.target)
                                   : ReceiveNs(transfer.tensor, transfer.source, transfer.target);
    KeepLeg(sends ? kSend : kReceive, transfer, takes_ns);
    Occupy(d, ~index, takes_ns);
  }

  // An op, or ~transfer to be sent.
  TF_PLACER_INLINE void StartReady(int d, int32_t item) {
    if (kChores && item < 0) {
      StartChore(d, ~item);
    } else {
      StartOp(d, item);
    }
  }

  TF_PLACER_INLINE void StartInOrder(int d, DeviceState& device) {
    int32_t* end = ready_end_[d];
    if (end - device.ready_sorted > 1) std::sort(device.ready_sorted, end);
    if (device.newest_first) {
      while (device.ready_head != end && device.num_running < device.streams) StartReady(d, *--end);
      device.ready_sorted = ready_end_[d] = end;
      return;
    }
    device.ready_sorted = end;
    while (device.ready_head != end && device.num_running < device.streams) {
      StartOp(d, *device.ready_head++);
    }
    if (device.ready_head != end) __builtin_prefetch(CostOf(*device.ready_head));
  }

  TF_PLACER_INLINE void StartByPriority(int d, DeviceState& device) {
    for (; device.ready_sorted != ready_end_[d]; ++device.ready_sorted) {
      const int32_t item = *device.ready_sorted;
      // Complemented, ops of one moment come from the last to the first, then what is to be sent.
      device.heap[device.heap_size++] = device.newest_first ? Ready{PriorityOf(item), -now_ns_, ~item}
                                                            : Ready{PriorityOf(item), now_ns_, item};
      std::push_heap(device.heap, device.heap + device.heap_size, std::greater<Ready>());
    }
    while (device.heap_size > 0 && device.num_running < device.streams) {
      if (kOrder == Order::kByPlan && Awaits(device)) return;
      StartFirst(d, device);
    }
  }

  TF_PLACER_INLINE void StartFirst(int d, DeviceState& device) {
    std::pop_heap(device.heap, device.heap + device.heap_size, std::greater<Ready>());
    int32_t item = device.heap[--device.heap_size].item;
    if (device.newest_first) item = ~item;
    if (kOrder == Order::kByPlan && item >= 0) state_[item].pending = kStarted;
    StartReady(d, item);
  }

  // Whether an op that comes before all that is ready is waited for.
  TF_PLACER_INLINE bool Awaits(DeviceState& device) {
    Awaited& awaited = device.awaited;
    while (awaited.begin != awaited.end && state_[*awaited.begin].pending == kStarted) ++awaited.begin;
    return awaited.begin != awaited.end && plan_priority_[*awaited.begin] < device.heap->priority;
  }

  // Nothing is under way: if anything is left, devices wait for one another.
  TF_PLACER_INLINE void StartInVain() {
    for (int d = 0; d < D(); ++d) {
      if (devices_[d].heap_size > 0) return StartFirst(d, devices_[d]);
    }
  }

  TF_PLACER_INLINE int64_t PriorityOf(int32_t item) const {
    const int32_t op = item >= 0 ? item : tensor_producer_[transfers_[~item].tensor];
    return kOrder == Order::kByPlan ? plan_priority_[op] : priority_[op];
  }

  TF_PLACER_INLINE void StartOp(int32_t d, int32_t op) {
    const int64_t* const cost = CostOf(op);
    const bool is_fed = kFeeding && devices_[d].dispatch_ns > 0;
    const int64_t takes_ns = cost[1 + d] + (is_fed ? WaitForDispatch(d, op) : 0);
    KeepSpan(op, takes_ns);
    if (kMemory) bytes_[d] += cost[0];
    if (kBounded) Spend(d, op, cost[1 + d], takes_ns);
    // It ends some events from now: time to fetch what it will need then.
    __builtin_prefetch(tensors_ + ops_[op].tensor_begin);
    if (kMemory) __builtin_prefetch(shared_inputs_ + ops_[op].shared_begin);
    if (kMemory) __builtin_prefetch(freed_bytes_ + ops_[op].end_bytes);
    Occupy(d, op, takes_ns);
  }

  // How long the device waits, now that it could run `op`, until the host has dispatched it.
  TF_PLACER_INLINE int64_t WaitForDispatch(int32_t d, int32_t op) {
    DeviceState& device = devices_[d];
    device.dispatched_ns = std::max(device.dispatched_ns, arrived_ns_[op]) + device.dispatch_ns;
    return std::max(device.dispatched_ns - now_ns_, int64_t{0});
  }

  // What is proven when an op starts: the ops that wait for it follow it, and what this device has left to
  // compute, this op among it, comes from now on.
  TF_PLACER_INLINE void Spend(int32_t d, int32_t op, int64_t cost_ns, int64_t takes_ns) {
    DeviceState& device = devices_[d];
    const int64_t left_ns = limit_ns_ - now_ns_;
    over_ |= takes_ns + tail_ns_[op] > left_ns;
    over_ |= device.left_ns > int128{left_ns} * device.streams;
    device.left_ns -= cost_ns;
  }

  // `op` is ~transfer for a chore.
  TF_PLACER_INLINE void Occupy(int32_t d, int32_t op, int64_t takes_ns) {
    DeviceState& device = devices_[d];
    const int64_t end_ns = now_ns_ + takes_ns;
    int32_t i = device.num_running++;
    for (; i > 0 && device.running[i - 1].end_ns < end_ns; --i) device.running[i] = device.running[i - 1];
    device.running[i] = {end_ns, op};
    SetDue(d, device.running[device.num_running - 1].end_ns);
  }

  const int32_t num_devices_, num_ops_, num_leaves_;
  const SimulationPlan::Op* const ops_;
  const SimulationPlan::Tensor* const tensors_;
  const int32_t* const consumers_;
  const int32_t* const shared_inputs_;
  const SimulationPlan::Shared* const shared_;
  const SimulationPlan::Alias* const aliases_;
  const int64_t* const freed_bytes_;
  const int64_t* const sizes_;
  const int64_t* const costs_;
  const int32_t* const link_class_;
  const int32_t* const channel_;
  const int64_t* const tensor_ns_;
  const int32_t* const priority_;
  const int32_t* const tensor_producer_;
  const int64_t* const tail_ns_;
  int64_t* const plan_priority_;
  Awaited* const awaited_;
  std::vector<int32_t>* const awaited_ops_;
  const int32_t* const original_op_;
  const int64_t num_all_tensors_;
  const int32_t* const original_tensor_;
  OpState* const state_;
  int32_t* const uses_;
  Transfer* const transfers_;
  uint64_t* const fresh_;
  int64_t* const arrived_ns_;  // nullptr where nothing has to be dispatched
  int32_t* const free_ready_;
  int32_t** const ready_end_;
  DeviceState* const devices_;
  int64_t* const bytes_;
  TransferList* const channels_;
  uint64_t* const due_;
  int64_t* const peak_bytes_;
  int64_t* const start_ns_;
  int64_t* const end_ns_;
  const Legs legs_;
  HandOver* hand_over_;  // the next one
  HandOver* hand_overs_end_;
  uint64_t hand_over_due_ = kNever;  // its key, which comes behind all that is due at the same time
  int64_t now_ns_ = 0;
  int64_t joining_ns_ = 0;
  uint64_t after_now_ = uint64_t{1} << kSlotBits;  // the first key of the next nanosecond
  int64_t num_fresh_ = 0;
  bool fresh_sorted_ = true;
  uint64_t touched_ = 0;  // devices where an op may start
  int32_t num_transfers_ = 0;
  int64_t limit_ns_ = 0;
  const int64_t* capacity_bytes_ = nullptr;
  bool over_ = false;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SIMULATION_H_
