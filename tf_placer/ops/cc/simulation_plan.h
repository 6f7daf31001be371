// What a simulation needs of one graph and one cluster, rearranged once. std only.
//
// Letters: N ops, U units, T tensors, E consumers of
// tensors, D devices.

#ifndef TF_PLACER_OPS_CC_SIMULATION_PLAN_H_
#define TF_PLACER_OPS_CC_SIMULATION_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "simulator_arrays.h"

namespace tf_placer {

struct ReducedArrays;

// What can be known of the arrays before a placement is: built once, read by every thread.
class SimulationPlan {
 public:
  // `arrays` must have passed CheckArrays; they are read here and not kept.
  explicit SimulationPlan(const SimulatorArrays& arrays);

  // A simulation reads these in an order that no cache can guess, so they are kept small: numbers that
  // repeat (sizes, costs) are rows of tables. An op's tensors are rows [tensor_begin, next op's
  // tensor_begin), and the inputs whose uses it must count down are rows of `shared_inputs`, alike.
  struct Op {
    int32_t tensor_begin;
    int32_t shared_begin;
    int32_t cost;       // begin of a row of `costs`
    int32_t end_bytes;  // row of `end_bytes`: inputs nobody else reads, and outputs nobody reads
  };

  // A tensor that somebody consumes.
  struct Tensor {
    int32_t consumer;  // the only one, or ~row of `shared` when there are several
    int32_t size;      // begin of a row of `sizes`
  };

  // A tensor with several consumers, rows [begin, end) of `consumers`, or one that shares memory. It needs use
  // counters: a row of D + 1 numbers in the workspace, D counters and `size`, or ~alias where it has memory of its own
  // only where it is received.
  struct Shared {
    int32_t begin;
    int32_t end;
    int32_t size;
    int32_t alias;  // row of `aliases`, or -1
  };

  // Where the tensor is made it counts as a use of another one, for as long as it has uses itself.
  struct Alias {
    int32_t producer;
    int32_t size;
    int32_t parent;  // begin of the other's row of use counters; -1 where it holds nothing that is counted
  };

  // What to begin with for every op: what it waits for, and whether it is free on all devices, on none,
  // or, which is rare, on those of `free_on`.
  enum class Free : uint8_t { kNowhere, kEverywhere, kSomewhere };
  struct OpInit {
    int32_t unit;
    int32_t pending : 30;
    uint32_t free : 2;
  };

  struct Resident {
    int32_t unit;
    int64_t bytes;
  };

  // Whether an op costs nothing on a device.
  bool IsFree(int32_t op, int32_t device) const {
    const auto free = static_cast<Free>(inits[op].free);
    if (free != Free::kSomewhere) return free == Free::kEverywhere;
    return (free_on[ops[op].cost / (num_devices + 1)] >> device) & 1;
  }

  // Calls `visit` with the producer, the consumer and the begin of a row of `sizes` of each edge, by producer.
  template <typename Visit>
  void EachEdge(const Visit& visit) const {
    for (size_t t = 0; t < tensors.size(); ++t) {
      const int32_t consumer = tensors[t].consumer;
      if (consumer >= 0) {
        visit(tensor_producer[t], consumer, tensors[t].size);
        continue;
      }
      const Shared& row = shared[~consumer];
      for (int32_t i = row.begin; i < row.end; ++i) visit(tensor_producer[t], consumers[i], row.size);
    }
  }

  int num_all_ops;      // N
  int num_all_tensors;  // T
  int num_ops;          // M, those that are left to simulate
  int num_devices, num_channels;
  int64_t max_transfers;   // of one placement
  int64_t max_running;     // computations and chores at once on one device
  int64_t max_ready;       // ops, and tensors to be sent, that wait for one device
  bool uniform_priority;
  bool has_chores;         // some link takes time of the devices that it joins
  bool has_dispatch;       // some device's ops are dispatched to it one by one
  bool has_hand_over;      // some link's tensors are there only some time after they have crossed
  std::vector<int32_t> original_op;     // [M] position among the N
  std::vector<OpInit> inits;            // [M]
  std::vector<int32_t> priority;        // [M]
  std::vector<int32_t> sources;         // ops that wait for nothing
  std::vector<Op> ops;                  // [M + 1]
  std::vector<Tensor> tensors;          // in the order of their ids
  std::vector<int32_t> tensor_producer; // of these tensors
  std::vector<int32_t> original_tensor; // of these tensors, position among the T
  std::vector<int64_t> tail_ns;         // [M] least time of the longest chain of ops that must follow each
  std::vector<Shared> shared;
  std::vector<Alias> aliases;
  std::vector<int32_t> consumers;       // of shared tensors
  std::vector<int32_t> shared_inputs;   // begins of rows of use counters
  std::vector<int64_t> costs;           // [distinct costs, D + 1]: own bytes of outputs, then compute_ns
  std::vector<uint64_t> free_on;        // [distinct costs] bit d: nothing on device d
  // [distinct sizes, 1 + link classes]: bytes, then transfer_ns of each class of links; with chores
  // [distinct sizes, 1 + 3 * link classes], as transfer_ns is followed by send_ns and receive_ns.
  std::vector<int64_t> sizes;
  std::vector<int64_t> end_bytes;       // [distinct sums]
  std::vector<Resident> resident;       // units that keep memory
  std::vector<int64_t> bytes_of_unit;   // [U] the same
  std::vector<int32_t> unit_op_begin;   // [U + 1] rows of `unit_ops`
  std::vector<int32_t> unit_ops;        // [M]
  std::vector<int32_t> streams;         // [D]
  std::vector<bool> newest_first;       // [D]
  std::vector<int64_t> join_ns;         // [D]
  std::vector<int64_t> dispatch_ns;     // [D]
  std::vector<int64_t> tensor_ns;       // [D, D] from the end of a transfer until its tensor is there
  std::vector<int32_t> link_class;      // [D, D] column of `sizes`
  std::vector<int32_t> channel;         // [D, D], renumbered to [0, num_channels)

 private:
  void AddUnits(const SimulatorArrays& arrays);
  void AddResident(const SimulatorArrays& all, const ReducedArrays& reduced);
  void AddOps(const SimulatorArrays& arrays, const std::vector<int64_t>& own_bytes);
  void AddLinks(const SimulatorArrays& arrays);
  void AddTensors(const SimulatorArrays& arrays, const ReducedArrays& reduced);
  void AddSharedInputs();
  void AddTails(const SimulatorArrays& arrays);

  int size_columns_;
  std::vector<int64_t> distinct_bytes_;  // ascending
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SIMULATION_PLAN_H_
