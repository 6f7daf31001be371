#include "simulate_within.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "simulation.h"

namespace tf_placer {
namespace {

template <int kDevices, Order kOrder, Purpose kPurpose, Extras kExtras>
int64_t Run(const SimulationPlan& plan, const Placed& placed, int64_t limit_ns, const int64_t* capacity_bytes,
            Workspace* workspace) {
  Outputs outputs;
  outputs.peak_bytes = workspace->peak_bytes.data();
  if (!workspace->spans.start_ns.empty()) {
    outputs.start_ns = workspace->spans.start_ns.data();
    outputs.end_ns = workspace->spans.end_ns.data();
  }
  Simulation<kDevices, kOrder, kPurpose, kExtras> simulation(plan, workspace, outputs);
  return simulation.RunWithin(plan, placed, limit_ns, capacity_bytes);
}

using RunFn = decltype(&Run<0, Order::kUniform, Purpose::kWithin, Extras::kAll>);

template <int kDevices, Order kOrder, Purpose kPurpose>
RunFn Chosen(Extras extras) {
  // Devices whose own time messages take are asked for in orders that differ in priorities: not worth the compiling.
  if constexpr (kDevices == 0) {
    if (extras == Extras::kAll) return Run<0, kOrder, kPurpose, Extras::kAll>;
  }
  return extras == Extras::kNone ? Run<kDevices, kOrder, kPurpose, Extras::kNone>
                                 : Run<kDevices, kOrder, kPurpose, Extras::kFeeding>;
}

template <Purpose kPurpose>
RunFn Chosen(const SimulationPlan& plan, bool by_plan) {
  const Extras extras = ExtrasOf(plan);
  if (by_plan) return Chosen<0, Order::kByPlan, kPurpose>(extras);
  if (!plan.uniform_priority) return Chosen<0, Order::kByPriority, kPurpose>(extras);
  if (extras == Extras::kAll) return Chosen<0, Order::kUniform, kPurpose>(extras);
  if (plan.num_devices == 2) return Chosen<2, Order::kUniform, kPurpose>(extras);
  if (plan.num_devices == 3) return Chosen<3, Order::kUniform, kPurpose>(extras);
  if (plan.num_devices == 5) return Chosen<5, Order::kUniform, kPurpose>(extras);
  return Chosen<0, Order::kUniform, kPurpose>(extras);
}

}  // namespace

int64_t SimulateWithin(const SimulationPlan& plan, const Placed& placed, int64_t limit_ns,
                       const int64_t* capacity_bytes, bool fits_anywhere, bool by_plan, Workspace* workspace) {
  limit_ns = std::min(limit_ns, kLongestNs);
  if (placed.IsOver(plan, limit_ns, capacity_bytes)) return kOver;
  const RunFn run = fits_anywhere ? Chosen<Purpose::kWithin>(plan, by_plan) : Chosen<Purpose::kWithinMemory>(plan, by_plan);
  const int64_t runtime_ns = run(plan, placed, limit_ns, capacity_bytes, workspace);
  return runtime_ns <= limit_ns ? runtime_ns : kOver;
}

// A device holds at most one copy of each tensor, beside what its units keep.
bool FitsAnywhere(const SimulatorArrays& arrays, const int64_t* capacity_bytes) {
  int64_t bytes = std::accumulate(arrays.tensor_bytes, arrays.tensor_bytes + arrays.num_tensors, int64_t{0});
  bytes = std::accumulate(arrays.resident_bytes, arrays.resident_bytes + arrays.num_units, bytes);
  return std::all_of(capacity_bytes, capacity_bytes + arrays.num_devices,
                     [bytes](int64_t capacity) { return bytes <= capacity; });
}

}  // namespace tf_placer
