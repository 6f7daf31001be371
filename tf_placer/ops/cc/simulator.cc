#include "simulator.h"

#include "simulation.h"

namespace tf_placer {

namespace {

template <int kDevices, Order kOrder, Purpose kPurpose, bool kChores>
int64_t Run(const SimulationPlan& plan, const int32_t* device_of_unit, const int32_t* priority_of_op,
            Workspace* workspace, const Outputs& outputs) {
  Simulation<kDevices, kOrder, kPurpose, kChores> simulation(plan, workspace, outputs);
  return simulation.Run(plan, device_of_unit, priority_of_op);
}

using RunFn = decltype(&Run<0, Order::kUniform, Purpose::kCosts, true>);

template <Purpose kPurpose, bool kChores>
RunFn Chosen(const SimulationPlan& plan, bool by_plan) {
  if (by_plan) return Run<0, Order::kByPlan, kPurpose, kChores>;
  if (!plan.uniform_priority) return Run<0, Order::kByPriority, kPurpose, kChores>;
  switch (kPurpose == Purpose::kSchedule ? 0 : plan.num_devices) {
    case 2:
      return Run<2, Order::kUniform, Purpose::kCosts, kChores>;
    case 3:
      return Run<3, Order::kUniform, Purpose::kCosts, kChores>;
    case 5:
      return Run<5, Order::kUniform, Purpose::kCosts, kChores>;
    default:
      return Run<0, Order::kUniform, kPurpose, kChores>;
  }
}

template <Purpose kPurpose>
RunFn Chosen(const SimulationPlan& plan, bool by_plan) {
  return plan.has_chores ? Chosen<kPurpose, true>(plan, by_plan) : Chosen<kPurpose, false>(plan, by_plan);
}

}  // namespace

void Simulate(const SimulationPlan& plan, const int32_t* device_of_unit, const int32_t* priority_of_op,
              Workspace* workspace, int64_t* runtime_ns, int64_t* peak_bytes, int64_t* start_ns, int64_t* end_ns,
              const Legs& legs) {
  const bool by_plan = priority_of_op != nullptr;
  const bool with_schedule = start_ns != nullptr;
  if (with_schedule) {
    // The ops that the plan left out start and end at 0.
    std::fill_n(start_ns, plan.num_all_ops, 0);
    std::fill_n(end_ns, plan.num_all_ops, 0);
  }
  for (int64_t* const times_ns : {legs.start_ns, legs.end_ns}) {
    if (times_ns != nullptr) std::fill_n(times_ns, int64_t{kNumLegs} * plan.num_all_tensors * plan.num_devices, -1);
  }
  const RunFn run =
      with_schedule ? Chosen<Purpose::kSchedule>(plan, by_plan) : Chosen<Purpose::kCosts>(plan, by_plan);
  *runtime_ns = run(plan, device_of_unit, priority_of_op, workspace, Outputs{peak_bytes, start_ns, end_ns, legs});
}

}  // namespace tf_placer
