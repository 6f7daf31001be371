// What a simulation needs of one graph and one cluster, checked and rearranged once. std only.
//
// Letters: N ops, U units, T tensors, E consumers of
// tensors, D devices.

#ifndef TF_PLACER_OPS_CC_SIMULATION_PLAN_H_
#define TF_PLACER_OPS_CC_SIMULATION_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tf_placer {

// A device is a bit of a 64-bit mask.
constexpr int kMaxDevices = 64;

// Arrays of one graph and one cluster; they belong to the caller. Row-major.
struct SimulatorArrays {
  int32_t num_ops = 0;
  int32_t num_units = 0;
  int32_t num_tensors = 0;
  int32_t num_consumers = 0;
  int32_t num_devices = 0;
  const int32_t* unit_of_op = nullptr;         // [N]
  const int64_t* compute_ns = nullptr;         // [N, D], 0 = free
  const int32_t* priority = nullptr;           // [N], lower first
  const int32_t* tensor_producer = nullptr;    // [T], ascending
  const int64_t* tensor_bytes = nullptr;       // [T]
  const int32_t* consumer_offset = nullptr;    // [T + 1]
  const int32_t* consumer_op = nullptr;        // [E], ascending within a tensor
  const int64_t* resident_bytes = nullptr;     // [U]
  const int32_t* streams = nullptr;            // [D]
  const int64_t* link_latency_ns = nullptr;    // [D, D], the diagonal is not read
  const int64_t* link_bytes_per_s = nullptr;   // [D, D], the diagonal is not read
  const int32_t* channel_of_link = nullptr;    // [D, D], in [0, D * D) off the diagonal
};

// One line that says what is wrong with the arrays, or "" when nothing is. After "" no simulation can
// read out of bounds, wait for ever or overflow.
std::string CheckArrays(const SimulatorArrays& arrays);

// What can be known of the arrays before a placement is: built once, read by every thread.
class SimulationPlan {
 public:
  // `arrays` must have passed CheckArrays; they are read here and not kept.
  explicit SimulationPlan(const SimulatorArrays& arrays);

  // Static facts of one op. Its tensors are [tensor_begin, (op + 1)->tensor_begin) and the shared
  // inputs whose uses it must count down are [shared_begin, (op + 1)->shared_begin).
  struct Op {
    int32_t tensor_begin;
    int32_t shared_begin;
    int64_t start_bytes;  // all outputs
    int64_t end_bytes;    // inputs nobody else reads, and outputs nobody reads
  };

  // A tensor that somebody consumes. One read once needs no use counter, and names its reader here.
  struct Tensor {
    int32_t first;         // the only consumer, or the begin in `consumers` when shared
    int32_t last;          // end in `consumers`; unused when there is one consumer
    int32_t size_class;    // row of `size_bytes` and `transfer_ns`
    int32_t shared_index;  // row of the use counters, -1 when there is one consumer
  };

  // The part of an op that a simulation touches for every edge: 8 bytes, so that an edge is one
  // cache miss at most.
  struct OpState {
    int32_t pending;  // tensors it still waits for
    uint16_t device;
    uint16_t queue;  // its device, or D when it is free there
  };

  int num_ops, num_units, num_devices, num_link_classes, num_channels;
  int num_shared;          // tensors with several consumers
  int64_t max_transfers;   // of one placement
  bool uniform_priority;
  std::vector<int32_t> unit_of_op;          // [N]
  std::vector<int64_t> compute_ns;          // [N, D]
  std::vector<uint64_t> free_on;            // [N] bit d: costs nothing on device d
  std::vector<int32_t> pending;             // [N]
  std::vector<int32_t> priority;            // [N]
  std::vector<int32_t> sources;             // ops that wait for nothing
  std::vector<Op> ops;                      // [N + 1]
  std::vector<Tensor> tensors;              // consumed tensors, in the order of their ids
  std::vector<int32_t> consumers;           // of shared tensors
  std::vector<int32_t> shared_inputs;       // rows of the use counters
  std::vector<int64_t> shared_bytes;        // [num_shared]
  std::vector<int64_t> resident_bytes;      // [U]
  std::vector<int32_t> streams;             // [D]
  std::vector<int64_t> size_bytes;          // [distinct sizes]
  std::vector<int64_t> transfer_ns;         // [distinct sizes, num_link_classes]
  std::vector<int32_t> link_class;          // [D, D]
  std::vector<int32_t> channel;             // [D, D], renumbered to [0, num_channels)

 private:
  void AddTensors(const SimulatorArrays& arrays);
  void AddLinks(const SimulatorArrays& arrays);
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SIMULATION_PLAN_H_
