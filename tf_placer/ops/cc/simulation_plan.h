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

  // A tensor with several consumers, rows [begin, end) of `consumers`. It needs use counters: a row of
  // D + 1 numbers in the workspace, D counters and `size`.
  struct Shared {
    int32_t begin;
    int32_t end;
    int32_t size;
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

  int num_ops, num_units, num_devices, num_channels;
  int64_t max_transfers;   // of one placement
  bool uniform_priority;
  std::vector<OpInit> inits;            // [N]
  std::vector<int32_t> priority;        // [N]
  std::vector<int32_t> sources;         // ops that wait for nothing
  std::vector<Op> ops;                  // [N + 1]
  std::vector<Tensor> tensors;          // in the order of their ids
  std::vector<Shared> shared;
  std::vector<int32_t> consumers;       // of shared tensors
  std::vector<int32_t> shared_inputs;   // begins of rows of use counters
  std::vector<int64_t> costs;           // [distinct costs, D + 1]: output bytes, then compute_ns
  std::vector<uint64_t> free_on;        // [distinct costs] bit d: nothing on device d
  std::vector<int64_t> sizes;           // [distinct sizes, 1 + link classes]: bytes, then transfer_ns
  std::vector<int64_t> end_bytes;       // [distinct sums]
  std::vector<Resident> resident;       // units that keep memory
  std::vector<int32_t> streams;         // [D]
  std::vector<int32_t> link_class;      // [D, D] column of `sizes`
  std::vector<int32_t> channel;         // [D, D], renumbered to [0, num_channels)

 private:
  void AddOps(const SimulatorArrays& arrays);
  void AddLinks(const SimulatorArrays& arrays);
  void AddTensors(const SimulatorArrays& arrays);
  void AddSharedInputs();

  int num_link_classes_;
  std::vector<int64_t> distinct_bytes_;  // ascending
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SIMULATION_PLAN_H_
