#include "sequences.h"

#include <algorithm>
#include <iterator>

namespace tf_placer {

Sequences::Sequences(const SimulationPlan& plan, const int32_t* device_of_unit, const int32_t* priority_of_op,
                     std::vector<Workspace>* workspaces)
    : plan_(plan),
      workspaces_(*workspaces),
      ops_(plan.num_devices),
      before_(plan.num_devices),
      target_(plan.num_ops, -1) {
  for (int32_t op = 0; op < plan.num_ops; ++op) {
    for (Workspace& workspace : workspaces_) workspace.plan_priority[op] = int64_t{plan.priority[op]} - INT32_MIN;
    const int32_t device = device_of_unit[plan.inits[op].unit];
    if (plan.IsFree(op, device)) continue;
    ops_[device].push_back(op);
    wait_ |= priority_of_op[plan.original_op[op]] < 0;
  }
  for (int32_t d = 0; d < plan.num_devices; ++d) {
    std::stable_sort(ops_[d].begin(), ops_[d].end(), [&](int32_t left, int32_t right) {
      return priority_of_op[plan.original_op[left]] < priority_of_op[plan.original_op[right]];
    });
    Renumber(d);
  }
}

void Sequences::Move(const std::vector<Step>& steps, const Waits& step, RandomBits* random) {
  changed_.clear();
  moved_.clear();
  for (const Step& move : steps) {
    for (int32_t i = plan_.unit_op_begin[move.unit]; i < plan_.unit_op_begin[move.unit + 1]; ++i) {
      moved_.push_back(plan_.unit_ops[i]);
      target_[moved_.back()] = move.target;
    }
    Keep(move.source);
    Keep(move.target);
  }
  for (const int32_t device : changed_) {
    auto& ops = ops_[device];
    ops.erase(std::remove_if(ops.begin(), ops.end(), [this](int32_t op) { return target_[op] >= 0; }), ops.end());
  }
  const auto starts_earlier = [&step](int32_t left, int32_t right) { return step.StartOf(left) < step.StartOf(right); };
  if (moved_.size() == 1) {
    Insert(moved_[0], steps[0].target, step, random);
  } else {
    std::stable_sort(moved_.begin(), moved_.end(), starts_earlier);
    for (const int32_t device : changed_) {
      auto& ops = ops_[device];
      const auto middle = static_cast<std::ptrdiff_t>(ops.size());
      std::copy_if(moved_.begin(), moved_.end(), std::back_inserter(ops), [this, device](int32_t op) {
        return target_[op] == device && !plan_.IsFree(op, device);
      });
      std::inplace_merge(ops.begin(), ops.begin() + middle, ops.end(), starts_earlier);
    }
  }
  for (const int32_t op : moved_) target_[op] = -1;
  for (const int32_t device : changed_) Renumber(device);
}

// Between the first op that ends after it could begin and the first that begins after it would have ended.
void Sequences::Insert(int32_t op, int32_t device, const Waits& step, RandomBits* random) {
  if (plan_.IsFree(op, device)) return;
  auto& ops = ops_[device];
  const int64_t ready_ns = step.ReadyOf(op);
  const int64_t end_ns = std::max(step.EndOf(op), ready_ns + plan_.costs[plan_.ops[op].cost + 1 + device]);
  const auto first = std::partition_point(ops.begin(), ops.end(),
                                          [&](int32_t other) { return step.EndOf(other) <= ready_ns; });
  const auto last = std::partition_point(first, ops.end(), [&](int32_t other) { return step.StartOf(other) < end_ns; });
  ops.insert(first + static_cast<std::ptrdiff_t>(random->Below(last - first + 1)), op);
}

void Sequences::Move(const Shift& shift, int32_t device) {
  changed_.clear();
  Keep(device);
  auto& ops = ops_[device];
  ops.erase(std::find(ops.begin(), ops.end(), shift.op));
  ops.insert(std::find(ops.begin(), ops.end(), shift.other) + shift.behind, shift.op);
  Renumber(device);
}

void Sequences::Undo() {
  for (const int32_t device : changed_) {
    std::swap(ops_[device], before_[device]);
    Renumber(device);
  }
  changed_.clear();
}

void Sequences::Write(int32_t* priority_of_op) const {
  std::fill_n(priority_of_op, plan_.num_all_ops, 0);
  for (const auto& ops : ops_) {
    const int32_t first = wait_ ? -static_cast<int32_t>(ops.size()) : 0;
    for (size_t i = 0; i < ops.size(); ++i) priority_of_op[plan_.original_op[ops[i]]] = first + static_cast<int32_t>(i);
  }
}

void Sequences::Keep(int32_t device) {
  if (std::find(changed_.begin(), changed_.end(), device) != changed_.end()) return;
  changed_.push_back(device);
  before_[device] = ops_[device];
}

// As a simulation makes them of the priorities that `Write` gives.
void Sequences::Renumber(int32_t device) {
  const auto& ops = ops_[device];
  const int64_t first = wait_ ? -static_cast<int64_t>(ops.size()) : 0;
  for (Workspace& workspace : workspaces_) {
    for (size_t i = 0; i < ops.size(); ++i) {
      const int64_t own = int64_t{plan_.priority[ops[i]]} - INT32_MIN;
      workspace.plan_priority[ops[i]] = (first + static_cast<int64_t>(i)) * (int64_t{1} << 32) + own;
    }
    if (wait_) workspace.awaited[device] = {ops.data(), ops.data() + ops.size()};
  }
}

}  // namespace tf_placer
