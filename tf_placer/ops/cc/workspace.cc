#include "workspace.h"

#include <algorithm>

namespace tf_placer {
namespace {

// Memory that is not touched until it is needed.
template <typename T>
std::unique_ptr<T[]> Uninitialized(int64_t size) {
  return std::unique_ptr<T[]>(new T[std::max<int64_t>(size, 1)]);
}

int NumLeaves(const SimulationPlan& plan) {
  int leaves = 1;
  while (leaves < plan.num_devices + plan.num_channels) leaves *= 2;
  return leaves;
}

}  // namespace

Workspace::Workspace(const SimulationPlan& plan, bool by_plan)
    : state(Uninitialized<OpState>(plan.num_ops)),
      uses(Uninitialized<int32_t>(static_cast<int64_t>(plan.shared.size()) * (plan.num_devices + 1))),
      // With chores a transfer is listed up to three times: to be sent, moving, to be received.
      transfers(Uninitialized<Transfer>((plan.has_chores ? 3 : 1) * plan.max_transfers)),
      fresh(Uninitialized<uint64_t>(plan.max_transfers)),
      hand_overs(Uninitialized<HandOver>(plan.has_hand_over ? plan.max_transfers : 0)),
      arrived_ns(Uninitialized<int64_t>(plan.has_dispatch ? plan.num_ops : 0)),
      ready(Uninitialized<int32_t>(plan.max_ready * (plan.num_devices + 1))),
      ready_end(plan.num_devices + 1),
      heap(Uninitialized<Ready>(plan.uniform_priority && !by_plan ? 0 : plan.max_ready * plan.num_devices)),
      plan_priority(Uninitialized<int64_t>(by_plan ? plan.num_ops : 0)),
      awaited(plan.num_devices),
      devices(plan.num_devices),
      bytes(plan.num_devices),
      channels(plan.num_channels),
      peak_bytes(plan.num_devices),
      due(2 * NumLeaves(plan)) {
  int64_t streams = 0;
  for (const int32_t of_device : plan.streams) streams += std::min<int64_t>(of_device, plan.max_running);
  running = Uninitialized<Running>(streams);
  for (size_t row = 0; row < plan.shared.size(); ++row) {
    uses[row * (plan.num_devices + 1) + plan.num_devices] =
        plan.shared[row].alias < 0 ? plan.shared[row].size : ~plan.shared[row].alias;
  }
}

}  // namespace tf_placer
