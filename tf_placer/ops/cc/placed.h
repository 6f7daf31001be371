// A placement kept ready for simulations, so that the next one costs what moved and not the whole graph. std only.

#ifndef TF_PLACER_OPS_CC_PLACED_H_
#define TF_PLACER_OPS_CC_PLACED_H_

#include <cstdint>
#include <vector>

#include "simulation_plan.h"
#include "workspace.h"

namespace tf_placer {

// What every op begins a simulation with, and what each device has to compute and to hold.
class Placed {
 public:
  // Everything on device 0.
  explicit Placed(const SimulationPlan& plan);

  // Moves a unit's ops. The unit must be on device `source`.
  void Move(const SimulationPlan& plan, int32_t unit, int32_t source, int32_t target);

  // Whether no simulation is needed to say that the step takes longer than `limit_ns`, or does not fit.
  bool IsOver(const SimulationPlan& plan, int64_t limit_ns, const int64_t* capacity_bytes) const;

  // What the devices that compute add to the step.
  int64_t JoiningNs(const SimulationPlan& plan) const;

  const OpState* state() const { return state_.data(); }             // [M]
  const int64_t* work_ns() const { return work_ns_.data(); }         // [D]
  const int64_t* held_bytes() const { return held_bytes_.data(); }   // [D] from time 0 on

 private:
  void Add(const SimulationPlan& plan, int32_t op, int32_t device, int32_t sign);

  std::vector<OpState> state_;
  std::vector<int64_t> work_ns_, held_bytes_;
  std::vector<int32_t> computing_;  // [D] ops that take time
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_PLACED_H_
