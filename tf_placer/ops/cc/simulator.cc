#include "simulator.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace tf_placer {
namespace {

constexpr int64_t kNever = INT64_MAX;

// One tensor on its way, waiting or moving. Transfers of a channel form a list in FIFO order, and since
// a channel never reorders, a transfer's end is known when it is queued.
struct Transfer {
  int64_t end_ns;
  int64_t bytes;
  int32_t tensor;
  int32_t next;  // behind it in its channel, -1 for none
  uint16_t source;
  uint16_t target;
};

// An op that computes on one of a device's streams.
struct Running {
  int64_t end_ns;
  int32_t op;
};

// A ready op in a device's heap, used when priorities differ.
struct Ready {
  int32_t priority;
  int32_t op;
  int64_t ready_ns;

  bool operator>(const Ready& other) const {
    return std::tie(priority, ready_ns, op) > std::tie(other.priority, other.ready_ns, other.op);
  }
};

struct Channel {
  int32_t head;
  int32_t tail;
  int64_t tail_end_ns;
};

struct DeviceState {
  int32_t* ready;        // [N] in the order of readiness
  int32_t ready_head;    // next to start
  int32_t ready_sorted;  // [ready_sorted, ready_tail) became ready at the present time
  int32_t num_running;
  int32_t streams;
  Running* running;  // [streams], latest end first
  Ready* heap;       // [N]
  int32_t heap_size;
  int64_t bytes;
  int64_t peak_bytes;
};

// Memory that is not touched until it is needed.
template <typename T>
std::unique_ptr<T[]> Uninitialized(int64_t size) {
  return std::unique_ptr<T[]>(new T[std::max<int64_t>(size, 1)]);
}

}  // namespace

struct Workspace::Arrays {
  explicit Arrays(const SimulationPlan& plan)
      : state(Uninitialized<SimulationPlan::OpState>(plan.num_ops)),
        uses(Uninitialized<int32_t>(int64_t{plan.num_shared} * plan.num_devices)),
        transfers(Uninitialized<Transfer>(plan.max_transfers)),
        fresh(Uninitialized<uint64_t>(plan.max_transfers)),
        ready(Uninitialized<int32_t>(int64_t{plan.num_ops} * (plan.num_devices + 1))),
        heap(Uninitialized<Ready>(plan.uniform_priority ? 0 : int64_t{plan.num_ops} * plan.num_devices)),
        channels(plan.num_channels),
        devices(plan.num_devices),
        ready_tail(plan.num_devices + 1),
        next_ns(plan.num_devices + plan.num_channels) {
    int64_t slots = 0;
    for (const int32_t streams : plan.streams) slots += std::min(streams, plan.num_ops);
    running = Uninitialized<Running>(slots);
  }

  std::unique_ptr<SimulationPlan::OpState[]> state;  // [N]
  std::unique_ptr<int32_t[]> uses;       // [num_shared, D] what keeps a shared tensor on a device
  std::unique_ptr<Transfer[]> transfers;
  std::unique_ptr<uint64_t[]> fresh;     // transfers made at the present time, not yet queued
  std::unique_ptr<int32_t[]> ready;      // [D + 1, N], the last row for ops that are free
  std::unique_ptr<Ready[]> heap;         // [D, N]
  std::unique_ptr<Running[]> running;
  std::vector<Channel> channels;
  std::vector<DeviceState> devices;
  std::vector<int32_t> ready_tail;       // [D + 1]
  std::vector<int64_t> next_ns;          // [D + C] when each device's and channel's next end is due
};

Workspace::Workspace(const SimulationPlan& plan) : arrays_(std::make_unique<Arrays>(plan)) {}
Workspace::~Workspace() = default;

class Simulation {
 public:
  Simulation(const SimulationPlan& plan, Workspace* workspace, int64_t* start_ns, int64_t* end_ns)
      : plan_(plan),
        num_devices_(plan.num_devices),
        num_slots_(plan.num_devices + plan.num_channels),
        ops_(plan.ops.data()),
        tensors_(plan.tensors.data()),
        state_(workspace->arrays_->state.get()),
        uses_(workspace->arrays_->uses.get()),
        transfers_(workspace->arrays_->transfers.get()),
        fresh_(workspace->arrays_->fresh.get()),
        free_ready_(workspace->arrays_->ready.get() + int64_t{plan.num_devices} * plan.num_ops),
        ready_(workspace->arrays_->ready.get()),
        devices_(workspace->arrays_->devices.data()),
        channels_(workspace->arrays_->channels.data()),
        ready_tail_(workspace->arrays_->ready_tail.data()),
        next_ns_(workspace->arrays_->next_ns.data()),
        start_ns_(start_ns),
        end_ns_(end_ns) {
    Running* running = workspace->arrays_->running.get();
    for (int d = 0; d < num_devices_; ++d) {
      DeviceState& device = devices_[d];
      device = DeviceState{};
      device.ready = ready_ + int64_t{d} * plan.num_ops;
      device.streams = std::min(plan.streams[d], plan.num_ops);
      device.running = running;
      device.heap = workspace->arrays_->heap.get() + int64_t{d} * plan.num_ops;
      running += device.streams;
    }
    std::fill_n(ready_tail_, num_devices_ + 1, 0);
    std::fill_n(next_ns_, num_slots_, kNever);
  }

  int64_t Run(const int32_t* device_of_unit) {
    Place(device_of_unit);
    for (const int32_t op : plan_.sources) MakeReady(op, 1);
    while (true) {
      EndFreeOps();
      QueueTransfers();
      // A transfer can take no time at all; the ops it makes ready belong to this moment too.
      if (!ends_now_) {
        StartOps();
        const int64_t due_ns = *std::min_element(next_ns_, next_ns_ + num_slots_);
        if (due_ns == kNever) return now_ns_;
        now_ns_ = due_ns;
      }
      ends_now_ = false;
      EndDue();
    }
  }

  void PeakBytes(int64_t* peak_bytes) const {
    for (int d = 0; d < num_devices_; ++d) peak_bytes[d] = devices_[d].peak_bytes;
  }

 private:
  void Place(const int32_t* device_of_unit) {
    for (int u = 0; u < plan_.num_units; ++u) devices_[device_of_unit[u]].bytes += plan_.resident_bytes[u];
    for (int n = 0; n < plan_.num_ops; ++n) {
      const int32_t device = device_of_unit[plan_.unit_of_op[n]];
      const bool free = (plan_.free_on[n] >> device) & 1;
      state_[n] = {plan_.pending[n], static_cast<uint16_t>(device),
                   static_cast<uint16_t>(free ? num_devices_ : device)};
    }
  }

  // Without a branch, since whether an op becomes ready is as good as random: it is always written
  // behind its queue, which grows by it or does not.
  void MakeReady(int32_t op, int32_t yes) {
    const int32_t queue = state_[op].queue;
    ready_[int64_t{queue} * plan_.num_ops + ready_tail_[queue]] = op;
    ready_tail_[queue] += yes;
  }

  void EndFreeOps() {
    while (ready_tail_[num_devices_] > 0) {
      const int32_t op = free_ready_[--ready_tail_[num_devices_]];
      devices_[state_[op].device].bytes += ops_[op].start_bytes;
      if (start_ns_ != nullptr) start_ns_[op] = now_ns_;
      EndOp(op);
    }
  }

  void EndOp(int32_t op) {
    const int32_t device = state_[op].device;
    if (end_ns_ != nullptr) end_ns_[op] = now_ns_;
    int64_t freed_bytes = ops_[op].end_bytes;
    for (int32_t i = ops_[op].shared_begin; i < ops_[op + 1].shared_begin; ++i) {
      freed_bytes += ReleaseShared(plan_.shared_inputs[i], device);
    }
    devices_[device].bytes -= freed_bytes;
    for (int32_t t = ops_[op].tensor_begin; t < ops_[op + 1].tensor_begin; ++t) {
      if (tensors_[t].shared_index < 0) {
        SendToOne(t, device);
      } else {
        SendToAll(t, device);
      }
    }
  }

  // Counts down what keeps a shared tensor on a device; returns the bytes that this frees.
  int64_t ReleaseShared(int32_t shared_index, int32_t device) {
    const int32_t left = --uses_[int64_t{shared_index} * num_devices_ + device];
    return left == 0 ? plan_.shared_bytes[shared_index] : 0;
  }

  void SendToOne(int32_t tensor, int32_t source) {
    const int32_t consumer = tensors_[tensor].first;
    const int32_t device = state_[consumer].device;
    const int32_t local = device == source;
    MakeReady(consumer, (state_[consumer].pending -= local) == 0 && local);
    fresh_[num_fresh_] = FreshKey(tensor, source, device);
    num_fresh_ += 1 - local;
  }

  void SendToAll(int32_t tensor, int32_t source) {
    int32_t* uses = uses_ + int64_t{tensors_[tensor].shared_index} * num_devices_;
    std::fill_n(uses, num_devices_, 0);
    uint64_t devices = 0;
    for (int32_t i = tensors_[tensor].first; i < tensors_[tensor].last; ++i) {
      const int32_t consumer = plan_.consumers[i];
      const int32_t device = state_[consumer].device;
      const int32_t local = device == source;
      ++uses[device];
      devices |= uint64_t{1} << device;
      MakeReady(consumer, (state_[consumer].pending -= local) == 0 && local);
    }
    devices &= ~(uint64_t{1} << source);
    for (; devices != 0; devices &= devices - 1) {
      ++uses[source];
      fresh_[num_fresh_++] = FreshKey(tensor, source, __builtin_ctzll(devices));
    }
  }

  // Sorts by tensor, then target.
  static uint64_t FreshKey(int32_t tensor, int32_t source, int32_t target) {
    return static_cast<uint64_t>(tensor) << 16 | static_cast<uint64_t>(target) << 8 | source;
  }

  void QueueTransfers() {
    if (num_fresh_ == 0) return;
    if (!std::is_sorted(fresh_, fresh_ + num_fresh_)) std::sort(fresh_, fresh_ + num_fresh_);
    for (int64_t i = 0; i < num_fresh_; ++i) QueueTransfer(fresh_[i]);
    num_fresh_ = 0;
  }

  void QueueTransfer(uint64_t key) {
    const int32_t tensor = key >> 16;
    const int32_t target = (key >> 8) & 0xff;
    const int32_t source = key & 0xff;
    const int32_t link = source * num_devices_ + target;
    const int32_t size = tensors_[tensor].size_class;
    const int64_t transfer_ns =
        plan_.transfer_ns[int64_t{size} * plan_.num_link_classes + plan_.link_class[link]];
    const int32_t slot = num_devices_ + plan_.channel[link];
    Channel& channel = channels_[plan_.channel[link]];
    Transfer& transfer = transfers_[num_transfers_];
    const bool idle = next_ns_[slot] == kNever;
    const int64_t end_ns = (idle ? now_ns_ : channel.tail_end_ns) + transfer_ns;
    transfer = {end_ns, plan_.size_bytes[size], tensor, -1, static_cast<uint16_t>(source),
                static_cast<uint16_t>(target)};
    if (idle) {
      channel.head = num_transfers_;
      next_ns_[slot] = end_ns;
      ends_now_ |= end_ns == now_ns_;
      devices_[target].bytes += transfer.bytes;
    } else {
      transfers_[channel.tail].next = num_transfers_;
    }
    channel.tail = num_transfers_++;
    channel.tail_end_ns = end_ns;
  }

  void EndDue() {
    for (int slot = 0; slot < num_slots_; ++slot) {
      if (next_ns_[slot] != now_ns_) continue;
      if (slot < num_devices_) {
        EndComputation(slot);
      } else {
        EndTransfer(slot);
      }
    }
  }

  void EndComputation(int32_t d) {
    DeviceState& device = devices_[d];
    do {
      EndOp(device.running[--device.num_running].op);
    } while (device.num_running > 0 && device.running[device.num_running - 1].end_ns == now_ns_);
    next_ns_[d] = device.num_running > 0 ? device.running[device.num_running - 1].end_ns : kNever;
  }

  void EndTransfer(int32_t slot) {
    Channel& channel = channels_[slot - num_devices_];
    const Transfer& transfer = transfers_[channel.head];
    if (transfer.next < 0) {
      next_ns_[slot] = kNever;
    } else {
      const Transfer& next = transfers_[transfer.next];
      channel.head = transfer.next;
      next_ns_[slot] = next.end_ns;
      ends_now_ |= next.end_ns == now_ns_;
      devices_[next.target].bytes += next.bytes;
    }
    const SimulationPlan::Tensor& tensor = tensors_[transfer.tensor];
    if (tensor.shared_index < 0) {
      devices_[transfer.source].bytes -= transfer.bytes;
      MakeReady(tensor.first, --state_[tensor.first].pending == 0);
      return;
    }
    devices_[transfer.source].bytes -= ReleaseShared(tensor.shared_index, transfer.source);
    for (int32_t i = tensor.first; i < tensor.last; ++i) {
      const int32_t consumer = plan_.consumers[i];
      const int32_t here = state_[consumer].device == transfer.target;
      MakeReady(consumer, (state_[consumer].pending -= here) == 0 && here);
    }
  }

  void StartOps() {
    for (int d = 0; d < num_devices_; ++d) {
      DeviceState& device = devices_[d];
      const int32_t tail = ready_tail_[d];
      if (plan_.uniform_priority) {
        if (tail - device.ready_sorted > 1) std::sort(device.ready + device.ready_sorted, device.ready + tail);
        device.ready_sorted = tail;
        while (device.num_running < device.streams && device.ready_head < tail) {
          StartOp(d, device.ready[device.ready_head++]);
        }
      } else {
        for (int32_t i = device.ready_sorted; i < tail; ++i) {
          const int32_t op = device.ready[i];
          device.heap[device.heap_size++] = {plan_.priority[op], op, now_ns_};
          std::push_heap(device.heap, device.heap + device.heap_size, std::greater<Ready>());
        }
        device.ready_sorted = tail;
        while (device.num_running < device.streams && device.heap_size > 0) {
          std::pop_heap(device.heap, device.heap + device.heap_size, std::greater<Ready>());
          StartOp(d, device.heap[--device.heap_size].op);
        }
      }
      device.peak_bytes = std::max(device.peak_bytes, device.bytes);
    }
  }

  void StartOp(int32_t d, int32_t op) {
    DeviceState& device = devices_[d];
    if (start_ns_ != nullptr) start_ns_[op] = now_ns_;
    device.bytes += ops_[op].start_bytes;
    const int64_t end_ns = now_ns_ + plan_.compute_ns[int64_t{op} * num_devices_ + d];
    int32_t i = device.num_running++;
    for (; i > 0 && device.running[i - 1].end_ns < end_ns; --i) device.running[i] = device.running[i - 1];
    device.running[i] = {end_ns, op};
    next_ns_[d] = device.running[device.num_running - 1].end_ns;
  }

  const SimulationPlan& plan_;
  const int32_t num_devices_;
  const int32_t num_slots_;
  const SimulationPlan::Op* const ops_;
  const SimulationPlan::Tensor* const tensors_;
  SimulationPlan::OpState* const state_;
  int32_t* const uses_;
  Transfer* const transfers_;
  uint64_t* const fresh_;
  int32_t* const free_ready_;
  int32_t* const ready_;
  DeviceState* const devices_;
  Channel* const channels_;
  int32_t* const ready_tail_;
  int64_t* const next_ns_;
  int64_t* const start_ns_;
  int64_t* const end_ns_;
  int64_t now_ns_ = 0;
  int64_t num_fresh_ = 0;
  int32_t num_transfers_ = 0;
  bool ends_now_ = false;
};

void Simulate(const SimulationPlan& plan, const int32_t* device_of_unit, Workspace* workspace,
              int64_t* runtime_ns, int64_t* peak_bytes, int64_t* start_ns, int64_t* end_ns) {
  Simulation simulation(plan, workspace, start_ns, end_ns);
  *runtime_ns = simulation.Run(device_of_unit);
  simulation.PeakBytes(peak_bytes);
}

}  // namespace tf_placer
