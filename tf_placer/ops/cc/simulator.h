// Event-driven simulation of placements: the algorithm alone, no tensors, std only.
//
// The model is written down, precisely and slowly, in tests/oracles/simulator.py; the two
// must agree to the nanosecond and to the byte.

#ifndef TF_PLACER_OPS_CC_SIMULATOR_H_
#define TF_PLACER_OPS_CC_SIMULATOR_H_

#include <cstdint>

#include "legs.h"
#include "simulation_plan.h"
#include "workspace.h"

namespace tf_placer {

// Simulates one placement.
//   device_of_unit  [U], each in [0, D)
//   priority_of_op  [N], before the priorities of the plan, which then only break ties; or nullptr, and else the
//                   workspace must have been made with `by_plan`
//   runtime_ns      when everything has ended
//   peak_bytes      [D]
//   start_ns, end_ns  [N], or both nullptr when the schedule is not wanted
//   legs            with a schedule: when each tensor is on its way, -1 where it is not
void Simulate(const SimulationPlan& plan, const int32_t* device_of_unit, const int32_t* priority_of_op,
              Workspace* workspace, int64_t* runtime_ns, int64_t* peak_bytes, int64_t* start_ns, int64_t* end_ns,
              const Legs& legs = {});

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SIMULATOR_H_
