#include "simulation_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tf_placer {
namespace {

__extension__ typedef __int128 int128;

constexpr int64_t kNsPerSecond = 1000000000;
// Sums are held below this, so that no time and no memory count can overflow int64.
constexpr int64_t kLargestSum = int64_t{1} << 62;

std::string At(const char* what, int64_t position, const std::string& problem) {
  return std::string(what) + "[" + std::to_string(position) + "] " + problem;
}

// latency + ceil(bytes / bandwidth), exactly.
int128 TransferNs(int64_t latency_ns, int64_t bytes, int64_t bytes_per_s) {
  return latency_ns + (int128{bytes} * kNsPerSecond + bytes_per_s - 1) / bytes_per_s;
}

std::string CheckOps(const SimulatorArrays& a) {
  for (int64_t n = 0; n < a.num_ops; ++n) {
    if (a.unit_of_op[n] < 0 || a.unit_of_op[n] >= a.num_units) {
      return At("unit_of_op", n, "is " + std::to_string(a.unit_of_op[n]) + ", expected a unit in [0, " +
                                     std::to_string(a.num_units) + ")");
    }
  }
  for (int64_t i = 0; i < int64_t{a.num_ops} * a.num_devices; ++i) {
    if (a.compute_ns[i] < 0) return At("compute_ns", i, "is negative");
  }
  for (int64_t u = 0; u < a.num_units; ++u) {
    if (a.resident_bytes[u] < 0) return At("resident_bytes", u, "is negative");
  }
  return "";
}

// Consumers must come after their producer: that is what rules out cycles.
std::string CheckTensors(const SimulatorArrays& a) {
  if (a.consumer_offset[0] != 0 || a.consumer_offset[a.num_tensors] != a.num_consumers) {
    return "consumer_offset must begin with 0 and end with the number of consumers, " +
           std::to_string(a.num_consumers);
  }
  for (int64_t t = 0; t < a.num_tensors; ++t) {
    const int32_t producer = a.tensor_producer[t];
    if (producer < 0 || producer >= a.num_ops) return At("tensor_producer", t, "is not an op");
    if (t > 0 && producer < a.tensor_producer[t - 1]) return At("tensor_producer", t, "is not ascending");
    if (a.tensor_bytes[t] < 0) return At("tensor_bytes", t, "is negative");
    if (a.consumer_offset[t] > a.consumer_offset[t + 1] || a.consumer_offset[t + 1] > a.num_consumers) {
      return At("consumer_offset", t + 1, "is below the one before it or beyond the consumers");
    }
    int32_t before = producer;
    for (int64_t e = a.consumer_offset[t]; e < a.consumer_offset[t + 1]; ++e) {
      if (a.consumer_op[e] <= before || a.consumer_op[e] >= a.num_ops) {
        return At("consumer_op", e,
                  "must be an op after its producer and after the consumer before it (topological order, "
                  "distinct and ascending consumers)");
      }
      before = a.consumer_op[e];
    }
  }
  return "";
}

std::string CheckCluster(const SimulatorArrays& a) {
  const int32_t d = a.num_devices;
  if (d < 1 || d > kMaxDevices) {
    return "expected 1 to " + std::to_string(kMaxDevices) + " devices, got " + std::to_string(d);
  }
  for (int32_t i = 0; i < d; ++i) {
    if (a.streams[i] < 1) return At("streams", i, "is below 1");
  }
  for (int32_t i = 0; i < d * d; ++i) {
    if (i / d == i % d) continue;
    if (a.link_latency_ns[i] < 0) return At("link_latency_ns", i, "is negative");
    if (a.link_bytes_per_s[i] < 1) return At("link_bytes_per_s", i, "is below 1");
    if (a.channel_of_link[i] < 0 || a.channel_of_link[i] >= d * d) {
      return At("channel_of_link", i, "must be in [0, D * D)");
    }
  }
  return "";
}

// Something is computing or on its way until the step ends, so the sum of all durations bounds it.
std::string CheckSums(const SimulatorArrays& a) {
  const int32_t d = a.num_devices;
  int128 sum_ns = 0;
  int128 sum_bytes = 0;
  for (int64_t n = 0; n < a.num_ops; ++n) {
    sum_ns += *std::max_element(a.compute_ns + n * d, a.compute_ns + (n + 1) * d);
  }
  int64_t latency_ns = 0;
  int64_t bytes_per_s = INT64_MAX;
  for (int32_t i = 0; i < d * d; ++i) {
    if (i / d == i % d) continue;
    latency_ns = std::max(latency_ns, a.link_latency_ns[i]);
    bytes_per_s = std::min(bytes_per_s, a.link_bytes_per_s[i]);
  }
  for (int64_t t = 0; t < a.num_tensors; ++t) {
    const int64_t targets = std::min(d - 1, a.consumer_offset[t + 1] - a.consumer_offset[t]);
    if (targets > 0) sum_ns += targets * TransferNs(latency_ns, a.tensor_bytes[t], bytes_per_s);
    sum_bytes += a.tensor_bytes[t];
  }
  for (int64_t u = 0; u < a.num_units; ++u) sum_bytes += a.resident_bytes[u];
  if (sum_ns > kLargestSum) return "the sum of all compute and transfer times exceeds 2^62 ns";
  if (sum_bytes > kLargestSum) return "the sum of tensor_bytes and resident_bytes exceeds 2^62";
  return "";
}

}  // namespace

std::string CheckArrays(const SimulatorArrays& arrays) {
  for (const auto check : {CheckCluster, CheckOps, CheckTensors, CheckSums}) {
    const std::string problem = check(arrays);
    if (!problem.empty()) return problem;
  }
  return "";
}

SimulationPlan::SimulationPlan(const SimulatorArrays& a)
    : num_ops(a.num_ops),
      num_units(a.num_units),
      num_devices(a.num_devices),
      num_shared(0),
      max_transfers(0),
      unit_of_op(a.unit_of_op, a.unit_of_op + a.num_ops),
      compute_ns(a.compute_ns, a.compute_ns + int64_t{a.num_ops} * a.num_devices),
      free_on(a.num_ops, 0),
      pending(a.num_ops, 0),
      priority(a.priority, a.priority + a.num_ops),
      ops(a.num_ops + 1, Op{0, 0, 0, 0}),
      resident_bytes(a.resident_bytes, a.resident_bytes + a.num_units),
      streams(a.streams, a.streams + a.num_devices) {
  uniform_priority = std::adjacent_find(priority.begin(), priority.end(),
                                        std::not_equal_to<int32_t>()) == priority.end();
  for (int64_t n = 0; n < num_ops; ++n) {
    for (int d = 0; d < num_devices; ++d) {
      free_on[n] |= uint64_t{compute_ns[n * num_devices + d] == 0} << d;
    }
  }
  for (int64_t e = 0; e < a.num_consumers; ++e) ++pending[a.consumer_op[e]];
  for (int32_t n = 0; n < num_ops; ++n) {
    if (pending[n] == 0) sources.push_back(n);
  }
  AddLinks(a);
  AddTensors(a);
}

void SimulationPlan::AddLinks(const SimulatorArrays& a) {
  std::map<std::pair<int64_t, int64_t>, int32_t> classes;
  std::map<int32_t, int32_t> channels;
  link_class.assign(num_devices * num_devices, 0);
  channel.assign(num_devices * num_devices, 0);
  for (int i = 0; i < num_devices * num_devices; ++i) {
    if (i / num_devices == i % num_devices) continue;
    const std::pair<int64_t, int64_t> kind(a.link_latency_ns[i], a.link_bytes_per_s[i]);
    link_class[i] = classes.emplace(kind, classes.size()).first->second;
    channel[i] = channels.emplace(a.channel_of_link[i], channels.size()).first->second;
  }
  num_link_classes = classes.size();
  num_channels = channels.size();

  size_bytes.assign(a.tensor_bytes, a.tensor_bytes + a.num_tensors);
  std::sort(size_bytes.begin(), size_bytes.end());
  size_bytes.erase(std::unique(size_bytes.begin(), size_bytes.end()), size_bytes.end());
  transfer_ns.resize(size_bytes.size() * num_link_classes);
  for (size_t s = 0; s < size_bytes.size(); ++s) {
    for (const auto& [kind, index] : classes) {
      transfer_ns[s * num_link_classes + index] =
          static_cast<int64_t>(TransferNs(kind.first, size_bytes[s], kind.second));
    }
  }
}

void SimulationPlan::AddTensors(const SimulatorArrays& a) {
  std::vector<std::pair<int32_t, int32_t>> uses;  // (consumer, row of the use counters)
  for (int32_t t = 0; t < a.num_tensors; ++t) {
    const int32_t begin = a.consumer_offset[t];
    const int32_t fanout = a.consumer_offset[t + 1] - begin;
    const int64_t bytes = a.tensor_bytes[t];
    Op& producer = ops[a.tensor_producer[t]];
    producer.start_bytes += bytes;
    if (fanout == 0) {
      producer.end_bytes += bytes;
      continue;
    }
    ++ops[a.tensor_producer[t] + 1].tensor_begin;
    max_transfers += std::min(fanout, num_devices - 1);
    const int32_t size_class =
        std::lower_bound(size_bytes.begin(), size_bytes.end(), bytes) - size_bytes.begin();
    if (fanout == 1) {
      ops[a.consumer_op[begin]].end_bytes += bytes;
      tensors.push_back({a.consumer_op[begin], 0, size_class, -1});
      continue;
    }
    const int32_t first = consumers.size();
    consumers.insert(consumers.end(), a.consumer_op + begin, a.consumer_op + begin + fanout);
    tensors.push_back({first, first + fanout, size_class, num_shared});
    shared_bytes.push_back(bytes);
    if (bytes > 0) {
      for (int32_t i = first; i < first + fanout; ++i) uses.emplace_back(consumers[i], num_shared);
    }
    ++num_shared;
  }
  std::sort(uses.begin(), uses.end());
  for (const auto& [op, row] : uses) {
    ++ops[op + 1].shared_begin;
    shared_inputs.push_back(row);
  }
  for (int64_t n = 0; n < num_ops; ++n) {
    ops[n + 1].tensor_begin += ops[n].tensor_begin;
    ops[n + 1].shared_begin += ops[n].shared_begin;
  }
}

}  // namespace tf_placer
