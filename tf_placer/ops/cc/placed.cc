#include "placed.h"

#include <algorithm>

namespace tf_placer {

Placed::Placed(const SimulationPlan& plan)
    : state_(plan.num_ops),
      work_ns_(plan.num_devices, 0),
      held_bytes_(plan.num_devices, 0),
      computing_(plan.num_devices, 0) {
  for (int32_t n = 0; n < plan.num_ops; ++n) {
    state_[n].pending = plan.inits[n].pending;
    Add(plan, n, 0, 1);
  }
  for (const int64_t bytes : plan.bytes_of_unit) held_bytes_[0] += bytes;
}

void Placed::Move(const SimulationPlan& plan, int32_t unit, int32_t source, int32_t target) {
  held_bytes_[source] -= plan.bytes_of_unit[unit];
  held_bytes_[target] += plan.bytes_of_unit[unit];
  for (int32_t i = plan.unit_op_begin[unit]; i < plan.unit_op_begin[unit + 1]; ++i) {
    Add(plan, plan.unit_ops[i], source, -1);
    Add(plan, plan.unit_ops[i], target, 1);
  }
}

void Placed::Add(const SimulationPlan& plan, int32_t op, int32_t device, int32_t sign) {
  const bool free = plan.IsFree(op, device);
  state_[op].device = device;
  state_[op].queue = free ? plan.num_devices : device;
  work_ns_[device] += sign * plan.costs[plan.ops[op].cost + 1 + device];
  computing_[device] += sign * !free;
}

bool Placed::IsOver(const SimulationPlan& plan, int64_t limit_ns, const int64_t* capacity_bytes) const {
  const int64_t left_ns = limit_ns - JoiningNs(plan);
  for (int32_t d = 0; d < plan.num_devices; ++d) {
    if (held_bytes_[d] > capacity_bytes[d]) return true;
    if (work_ns_[d] > int128{left_ns} * plan.streams[d]) return true;
    if (computing_[d] * int128{plan.dispatch_ns[d]} > left_ns) return true;
  }
  return false;
}

int64_t Placed::JoiningNs(const SimulationPlan& plan) const {
  int64_t joining_ns = 0;
  for (int32_t d = 0; d < plan.num_devices; ++d) {
    if (computing_[d] > 0) joining_ns = std::max(joining_ns, plan.join_ns[d]);
  }
  return joining_ns;
}

}  // namespace tf_placer
