// Where one simulation at a time keeps its state. std only.

#ifndef TF_PLACER_OPS_CC_WORKSPACE_H_
#define TF_PLACER_OPS_CC_WORKSPACE_H_

#include <cstdint>
#include <memory>
#include <tuple>
#include <vector>

#include "simulation_plan.h"

namespace tf_placer {

// One tensor on its way, waiting or moving. The transfers of a channel form a list in FIFO order, and so do
// the chores of a device.
struct Transfer {
  int32_t tensor;
  int32_t next;  // behind it in its list, -1 for none
  uint16_t source;
  uint16_t target;
};

// What a simulation touches for every edge.
struct OpState {
  int32_t pending;  // tensors it still waits for
  uint16_t device;
  uint16_t queue;  // its device, or D when it is free there
};

struct Running {
  int64_t end_ns;
  int32_t op;
};

// What is ready in a device's heap, used when priorities differ.
struct Ready {
  int64_t priority;  // a plan's in the upper half, if it has any
  int64_t ready_ns;
  int32_t item;  // op or ~transfer, complemented where newest first

  bool operator>(const Ready& other) const {
    return std::tie(priority, ready_ns, item) > std::tie(other.priority, other.ready_ns, other.item);
  }
};

// A tensor that has crossed and is not there yet.
struct HandOver {
  int64_t due_ns;
  int32_t transfer;
};

// When ops start and end, of a simulation with a limit; [M] each, or empty where nobody asks.
struct Spans {
  std::vector<int64_t> start_ns, end_ns;
};

// Ops of one device that are waited for, the first first: none of a higher priority starts before one of them.
struct Awaited {
  const int32_t* begin = nullptr;
  const int32_t* end = nullptr;
};

struct TransferList {
  int32_t head;
  int32_t tail;
};

struct DeviceState {
  int32_t* ready_head;    // the next op to start, in the order of readiness; where newest first the bottom, and
                          // ~transfers to be sent are among the ops
  int32_t* ready_sorted;  // from here on, ops became ready at the present time and are not sorted
  Running* running;       // [streams], latest end first
  Ready* heap;            // [max_ready] when priorities differ
  int32_t num_running;
  int32_t streams;
  int32_t heap_size;
  bool newest_first;
  TransferList chores;    // waiting; empty when the head is -1
  int64_t left_ns;        // of its ops that have not started; where there is a limit
  Awaited awaited;        // from the first on that has not started
  int64_t dispatch_ns;    // what the host takes for each op
  int64_t dispatched_ns;  // until when the host has worked for the ops so far
};

// Made once per thread, and used for any number of placements of the plan it was made for: a simulation
// allocates nothing.
struct Workspace {
  // `by_plan`: placements come with priorities of their own.
  explicit Workspace(const SimulationPlan& plan, bool by_plan = false);

  std::unique_ptr<OpState[]> state;  // [N]
  std::unique_ptr<int32_t[]> uses;  // [shared, D + 1]: what keeps a shared tensor on each
                                    // device, then its size or ~alias
  std::unique_ptr<Transfer[]> transfers;
  std::unique_ptr<uint64_t[]> fresh;  // transfers handed over at the present time, not yet queued
  std::unique_ptr<HandOver[]> hand_overs;  // in the order in which they are due
  std::unique_ptr<int64_t[]> arrived_ns;   // [N] when what an op had from another device came last; with dispatch
  std::unique_ptr<int32_t[]> ready;   // [D + 1, max_ready], the last row for ops that are free
  std::vector<int32_t*> ready_end;    // [D + 1]
  std::unique_ptr<Ready[]> heap;      // [D, max_ready] when priorities differ
  std::unique_ptr<int64_t[]> plan_priority;  // [N] a plan's and the problem's as one number
  std::vector<Awaited> awaited;              // [D] of a plan with an order
  std::vector<int32_t> awaited_ops;          // where they are kept, unless the plan's owner does
  std::unique_ptr<Running[]> running;
  std::vector<DeviceState> devices;
  std::vector<int64_t> bytes;  // [D] in use now
  std::vector<TransferList> channels;
  std::vector<int64_t> peak_bytes;  // [D] where nobody asks for it
  std::vector<uint64_t> due;  // the tournament; as leaves the devices, the channels, then padding
  Spans spans;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_WORKSPACE_H_
