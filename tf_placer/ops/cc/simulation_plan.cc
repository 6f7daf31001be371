#include "simulation_plan.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "reduced_arrays.h"

namespace tf_placer {
namespace {

std::vector<int64_t> Distinct(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

int32_t RowOf(const std::vector<int64_t>& distinct, int64_t value) {
  return std::lower_bound(distinct.begin(), distinct.end(), value) - distinct.begin();
}

// Of an op, where its unit may be; where it may be nowhere, nobody asks.
int64_t LeastNs(const SimulatorArrays& a, int32_t op) {
  int64_t least_ns = INT64_MAX;
  for (int64_t d = 0; d < a.num_devices; ++d) {
    if (a.allowed != nullptr && !a.allowed[int64_t{a.unit_of_op[op]} * a.num_devices + d]) continue;
    least_ns = std::min(least_ns, a.compute_ns[int64_t{op} * a.num_devices + d]);
  }
  return least_ns == INT64_MAX ? 0 : least_ns;
}

}  // namespace

SimulationPlan::SimulationPlan(const SimulatorArrays& arrays) {
  const ReducedArrays reduced(arrays);
  const SimulatorArrays a = reduced.Arrays();
  num_all_ops = arrays.num_ops;
  num_all_tensors = arrays.num_tensors;
  num_ops = a.num_ops;
  num_devices = a.num_devices;
  max_transfers = 0;
  has_chores = false;
  original_op = reduced.original_op;
  inits.resize(num_ops);
  ops.assign(num_ops + 1, Op{0, 0, 0, 0});
  priority.assign(a.priority, a.priority + num_ops);
  streams.assign(a.streams, a.streams + num_devices);
  newest_first.assign(a.newest_first, a.newest_first + num_devices);
  join_ns.assign(a.join_ns, a.join_ns + num_devices);
  dispatch_ns.assign(a.dispatch_ns, a.dispatch_ns + num_devices);
  has_dispatch = std::any_of(dispatch_ns.begin(), dispatch_ns.end(), [](int64_t ns) { return ns > 0; });
  uniform_priority = std::adjacent_find(priority.begin(), priority.end(),
                                        std::not_equal_to<int32_t>()) == priority.end();
  AddUnits(a);
  AddResident(arrays, reduced);
  AddOps(a, reduced.own_bytes);
  AddLinks(a);
  AddTensors(a, reduced);
  AddSharedInputs();
  AddTails(a);
  max_running = num_ops + (has_chores ? 2 * max_transfers : 0);
  max_ready = num_ops + (has_chores ? max_transfers : 0);
}

void SimulationPlan::AddResident(const SimulatorArrays& all, const ReducedArrays& reduced) {
  std::vector<int64_t> bytes(all.resident_bytes, all.resident_bytes + all.num_units);
  for (int32_t n = 0; n < num_ops; ++n) bytes[all.unit_of_op[original_op[n]]] += reduced.held_bytes[n];
  for (int32_t t = 0; all.alias_of_tensor != nullptr && t < all.num_tensors; ++t) {
    if (all.alias_of_tensor[t] == t) bytes[all.unit_of_op[all.tensor_producer[t]]] += all.tensor_bytes[t];
  }
  for (int32_t u = 0; u < all.num_units; ++u) {
    if (bytes[u] > 0) resident.push_back({u, bytes[u]});
  }
  bytes_of_unit = std::move(bytes);
}

void SimulationPlan::AddUnits(const SimulatorArrays& a) {
  unit_op_begin.assign(a.num_units + 1, 0);
  for (int32_t n = 0; n < num_ops; ++n) ++unit_op_begin[a.unit_of_op[n] + 1];
  std::partial_sum(unit_op_begin.begin(), unit_op_begin.end(), unit_op_begin.begin());
  std::vector<int32_t> next(unit_op_begin.begin(), unit_op_begin.end() - 1);
  unit_ops.resize(num_ops);
  for (int32_t n = 0; n < num_ops; ++n) unit_ops[next[a.unit_of_op[n]]++] = n;
}

void SimulationPlan::AddOps(const SimulatorArrays& a, const std::vector<int64_t>& own_bytes) {
  const int width = num_devices + 1;
  std::vector<int64_t> rows(int64_t{num_ops} * width, 0);
  for (int32_t t = 0; t < a.num_tensors; ++t) {
    rows[int64_t{a.tensor_producer[t]} * width] += own_bytes[t];
  }
  for (int64_t n = 0; n < num_ops; ++n) {
    std::copy_n(a.compute_ns + n * num_devices, num_devices, rows.begin() + n * width + 1);
  }
  const auto less = [&rows, width](int64_t left, int64_t right) {
    const auto begin = rows.begin();
    return std::lexicographical_compare(begin + left * width, begin + (left + 1) * width,
                                        begin + right * width, begin + (right + 1) * width);
  };
  // Stable, and numbered in the order of the ops: ops that run together have their rows together.
  std::vector<int32_t> by_cost(num_ops), first_with_cost(num_ops);
  std::iota(by_cost.begin(), by_cost.end(), 0);
  std::stable_sort(by_cost.begin(), by_cost.end(), less);
  for (int32_t i = 0; i < num_ops; ++i) {
    const bool is_new = i == 0 || less(by_cost[i - 1], by_cost[i]);
    first_with_cost[by_cost[i]] = is_new ? by_cost[i] : first_with_cost[by_cost[i - 1]];
  }
  for (int32_t n = 0; n < num_ops; ++n) {
    if (first_with_cost[n] != n) {
      ops[n].cost = ops[first_with_cost[n]].cost;
      continue;
    }
    ops[n].cost = costs.size();
    costs.insert(costs.end(), rows.begin() + int64_t{n} * width, rows.begin() + int64_t{n + 1} * width);
    free_on.push_back(0);
    for (int d = 0; d < num_devices; ++d) {
      free_on.back() |= uint64_t{a.compute_ns[int64_t{n} * num_devices + d] == 0} << d;
    }
  }
  std::vector<int32_t> pending(num_ops, 0);
  for (int64_t e = 0; e < a.num_consumers; ++e) ++pending[a.consumer_op[e]];
  const uint64_t everywhere = ~uint64_t{0} >> (kMaxDevices - num_devices);
  for (int32_t n = 0; n < num_ops; ++n) {
    const uint64_t free = free_on[ops[n].cost / width];
    const Free where = free == 0            ? Free::kNowhere
                       : free == everywhere ? Free::kEverywhere
                                            : Free::kSomewhere;
    inits[n] = {a.unit_of_op[n], pending[n], static_cast<uint32_t>(where)};
    if (pending[n] == 0) sources.push_back(n);
  }
}

void SimulationPlan::AddLinks(const SimulatorArrays& a) {
  std::map<std::array<int64_t, 6>, int32_t> classes;
  std::map<int32_t, int32_t> channels;
  link_class.assign(num_devices * num_devices, 0);
  tensor_ns.assign(num_devices * num_devices, 0);
  channel.assign(num_devices * num_devices, 0);
  for (int i = 0; i < num_devices * num_devices; ++i) {
    if (i / num_devices == i % num_devices) continue;
    const std::array<int64_t, 6> kind{a.link_latency_ns[i],       a.link_bytes_per_s[i],
                                      a.link_send_ns[i],          a.link_send_ps_per_byte[i],
                                      a.link_receive_ns[i],       a.link_receive_ps_per_byte[i]};
    has_chores |= std::any_of(kind.begin() + 2, kind.end(), [](int64_t cost) { return cost > 0; });
    link_class[i] = classes.emplace(kind, classes.size()).first->second;
    tensor_ns[i] = a.link_tensor_ns[i];
    channel[i] = channels.emplace(a.channel_of_link[i], channels.size()).first->second;
  }
  has_hand_over = std::any_of(tensor_ns.begin(), tensor_ns.end(), [](int64_t ns) { return ns > 0; });
  num_channels = channels.size();
  const int per_class = has_chores ? 3 : 1;
  for (int32_t& column : link_class) column = 1 + per_class * column;
  size_columns_ = 1 + per_class * classes.size();

  distinct_bytes_ = Distinct(std::vector<int64_t>(a.tensor_bytes, a.tensor_bytes + a.num_tensors));
  for (const int64_t bytes : distinct_bytes_) {
    const size_t row = sizes.size();
    sizes.resize(row + size_columns_);
    sizes[row] = bytes;
    for (const auto& [kind, number] : classes) {
      int64_t* const columns = &sizes[row + 1 + per_class * number];
      columns[0] = TransferNs(kind[0], bytes, kind[1]);
      if (!has_chores) continue;
      columns[1] = ChoreNs(kind[2], bytes, kind[3]);
      columns[2] = ChoreNs(kind[4], bytes, kind[5]);
    }
  }
}

void SimulationPlan::AddTensors(const SimulatorArrays& a, const ReducedArrays& reduced) {
  std::vector<int64_t> bytes_at_end(reduced.held_bytes);
  std::vector<bool> is_aliased(a.num_tensors, false);
  for (const int32_t alias : reduced.alias) {
    if (alias >= 0) is_aliased[alias] = true;
  }
  std::vector<int32_t> row_of_tensor(a.num_tensors, -1);
  for (int32_t t = 0; t < a.num_tensors; ++t) {
    const int32_t begin = a.consumer_offset[t];
    const int32_t fanout = a.consumer_offset[t + 1] - begin;
    const int64_t bytes = a.tensor_bytes[t];
    if (fanout == 0) {
      bytes_at_end[a.tensor_producer[t]] += reduced.own_bytes[t];
      continue;
    }
    ++ops[a.tensor_producer[t] + 1].tensor_begin;
    tensor_producer.push_back(a.tensor_producer[t]);
    original_tensor.push_back(reduced.original_tensor[t]);
    max_transfers += std::min(fanout, num_devices - 1);
    const int32_t size = RowOf(distinct_bytes_, bytes) * size_columns_;
    const bool is_alias = reduced.shares[t];
    if (fanout == 1 && !is_alias && !is_aliased[t]) {
      if (!reduced.goes_over[t]) bytes_at_end[a.consumer_op[begin]] += bytes;
      tensors.push_back({a.consumer_op[begin], size});
    } else {
      const int32_t first = consumers.size();
      consumers.insert(consumers.end(), a.consumer_op + begin, a.consumer_op + begin + fanout);
      tensors.push_back({~static_cast<int32_t>(shared.size()), size});
      row_of_tensor[t] = shared.size() * (num_devices + 1);
      shared.push_back({first, first + fanout, size, is_alias ? static_cast<int32_t>(aliases.size()) : -1});
      if (!is_alias) continue;
      const int32_t parent = reduced.alias[t] < 0 ? -1 : row_of_tensor[reduced.alias[t]];
      aliases.push_back({a.tensor_producer[t], size, parent});
    }
  }
  // Numbered in the order of the ops, like `costs`.
  std::unordered_map<int64_t, int32_t> row_of_bytes;
  for (int64_t n = 0; n < num_ops; ++n) {
    const auto [row, is_new] = row_of_bytes.emplace(bytes_at_end[n], end_bytes.size());
    if (is_new) end_bytes.push_back(bytes_at_end[n]);
    ops[n].end_bytes = row->second;
    ops[n + 1].tensor_begin += ops[n].tensor_begin;
  }
}

// Tensors of no bytes are left out: nobody needs to know when they are freed.
void SimulationPlan::AddSharedInputs() {
  for (const Shared& tensor : shared) {
    if (sizes[tensor.size] == 0) continue;
    for (int32_t i = tensor.begin; i < tensor.end; ++i) ++ops[consumers[i] + 1].shared_begin;
  }
  for (int64_t n = 0; n < num_ops; ++n) ops[n + 1].shared_begin += ops[n].shared_begin;
  shared_inputs.resize(ops[num_ops].shared_begin);
  std::vector<int32_t> next;
  for (const Op& op : ops) next.push_back(op.shared_begin);
  for (int32_t row = 0; row < static_cast<int32_t>(shared.size()); ++row) {
    if (sizes[shared[row].size] == 0) continue;
    for (int32_t i = shared[row].begin; i < shared[row].end; ++i) {
      shared_inputs[next[consumers[i]]++] = row * (num_devices + 1);
    }
  }
}

// Wherever each of them is placed, and without what crosses: consumers come behind their producers.
void SimulationPlan::AddTails(const SimulatorArrays& a) {
  tail_ns.assign(num_ops, 0);
  for (int32_t t = a.num_tensors; t-- > 0;) {
    int64_t& tail = tail_ns[a.tensor_producer[t]];
    for (int32_t e = a.consumer_offset[t]; e < a.consumer_offset[t + 1]; ++e) {
      const int64_t least_ns = LeastNs(a, a.consumer_op[e]);
      tail = std::max(tail, least_ns + tail_ns[a.consumer_op[e]]);
    }
  }
}

}  // namespace tf_placer
