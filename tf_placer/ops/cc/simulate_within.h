// Whether a step takes at most so long: a simulation that stops when it knows. std only.

#ifndef TF_PLACER_OPS_CC_SIMULATE_WITHIN_H_
#define TF_PLACER_OPS_CC_SIMULATE_WITHIN_H_

#include <cstdint>

#include "placed.h"
#include "simulation_plan.h"
#include "workspace.h"

namespace tf_placer {

// Of a step that takes longer than it was given, or does not fit.
constexpr int64_t kOver = INT64_MAX;

// No step takes longer: CheckArrays refuses arrays of which one could.
constexpr int64_t kLongestNs = int64_t{1} << 50;

// How long the step takes, exactly, if that is at most `limit_ns` and every device stays within its capacity at every
// moment; else kOver. It stops as soon as one of these is proven to exceed the limit: the time; the end of an op that
// starts and the shortest that the ops that wait for it can take; what a device has left to compute.
//   placed          of this plan
//   capacity_bytes  [D]
//   by_plan         the workspace has a plan's priorities, and what is waited for
//   fits_anywhere   nothing can exceed any device's capacity (see FitsAnywhere): memory is not counted
int64_t SimulateWithin(const SimulationPlan& plan, const Placed& placed, int64_t limit_ns,
                       const int64_t* capacity_bytes, bool fits_anywhere, bool by_plan, Workspace* workspace);

// Whether all tensors and all that units keep, together, fit on every device; and every other device as well may hold
// a copy of everything.
bool FitsAnywhere(const SimulatorArrays& arrays, const int64_t* capacity_bytes);

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SIMULATE_WITHIN_H_
