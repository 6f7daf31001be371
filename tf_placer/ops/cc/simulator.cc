#include "simulator.h"

#include "simulation.h"

namespace tf_placer {

namespace {

template <int kDevices, Order kOrder, Purpose kPurpose, Extras kExtras>
int64_t Run(const SimulationPlan& plan, const int32_t* device_of_unit, const int32_t* priority_of_op,
            Workspace* workspace, const Outputs& outputs) {
  Simulation<kDevices, kOrder, kPurpose, kExtras> simulation(plan, workspace, outputs);
  return simulation.Run(plan, device_of_unit, priority_of_op);
}

using RunFn = decltype(&Run<0, Order::kUniform, Purpose::kCosts, Extras::kAll>);

template <int kDevices, Order kOrder>
RunFn ChosenCosts(Extras extras) {
  if (extras == Extras::kNone) return Run<kDevices, kOrder, Purpose::kCosts, Extras::kNone>;
  if (extras == Extras::kFeeding) return Run<kDevices, kOrder, Purpose::kCosts, Extras::kFeeding>;
  return Run<kDevices, kOrder, Purpose::kCosts, Extras::kAll>;
}

template <Order kOrder>
RunFn ChosenSchedule(Extras extras) {
  if (extras == Extras::kAll) return Run<0, kOrder, Purpose::kSchedule, Extras::kAll>;
  return Run<0, kOrder, Purpose::kSchedule, Extras::kFeeding>;
}

RunFn Chosen(const SimulationPlan& plan, bool by_plan, bool with_schedule) {
  const Extras extras = ExtrasOf(plan);
  if (by_plan) return with_schedule ? ChosenSchedule<Order::kByPlan>(extras) : ChosenCosts<0, Order::kByPlan>(extras);
  if (!plan.uniform_priority) {
    return with_schedule ? ChosenSchedule<Order::kByPriority>(extras) : ChosenCosts<0, Order::kByPriority>(extras);
  }
  if (with_schedule) return ChosenSchedule<Order::kUniform>(extras);
  switch (plan.num_devices) {
    case 2:
      return ChosenCosts<2, Order::kUniform>(extras);
    case 3:
      return ChosenCosts<3, Order::kUniform>(extras);
    case 5:
      return ChosenCosts<5, Order::kUniform>(extras);
    default:
      return ChosenCosts<0, Order::kUniform>(extras);
  }
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
  const RunFn run = Chosen(plan, by_plan, with_schedule);
  *runtime_ns = run(plan, device_of_unit, priority_of_op, workspace, Outputs{peak_bytes, start_ns, end_ns, legs});
}

}  // namespace tf_placer
