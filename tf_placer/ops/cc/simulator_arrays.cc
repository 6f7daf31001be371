#include "simulator_arrays.h"

#include <algorithm>

namespace tf_placer {
namespace {

constexpr int64_t kNsPerSecond = 1000000000;
constexpr int64_t kPsPerNs = 1000;
// Sums are held below this, so that no time and no memory count can overflow int64, a time not even
// with the number of what is due behind it (kSlotBits), as the simulator keeps it.
constexpr int64_t kLargestSumBytes = int64_t{1} << 62;
constexpr int64_t kLargestSumNs = int64_t{1} << 50;

int128 ExactTransferNs(int64_t latency_ns, int64_t bytes, int64_t bytes_per_s) {
  return latency_ns + (int128{bytes} * kNsPerSecond + bytes_per_s - 1) / bytes_per_s;
}

int128 ExactChoreNs(int64_t fixed_ns, int64_t bytes, int64_t ps_per_byte) {
  return fixed_ns + (int128{bytes} * ps_per_byte + kPsPerNs - 1) / kPsPerNs;
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

std::string CheckAliases(const SimulatorArrays& a) {
  if (a.alias_of_tensor == nullptr) return "";
  for (int64_t t = 0; t < a.num_tensors; ++t) {
    const int32_t alias = a.alias_of_tensor[t];
    if (alias == -1) continue;
    if (alias < 0 || alias >= a.num_tensors) return At("alias_of_tensor", t, "is not a tensor, nor -1 for none");
    const int32_t* const end = a.consumer_op + a.consumer_offset[alias + 1];
    if (alias != t && !std::binary_search(a.consumer_op + a.consumer_offset[alias], end, a.tensor_producer[t])) {
      return At("alias_of_tensor", t, "is not an input of the tensor's producer, nor the tensor itself");
    }
    if (a.tensor_bytes[t] == 0) return At("alias_of_tensor", t, "is of a tensor of 0 bytes; it must be -1");
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
    if (a.join_ns[i] < 0) return At("join_ns", i, "is negative");
    if (a.dispatch_ns[i] < 0) return At("dispatch_ns", i, "is negative");
  }
  for (int32_t i = 0; i < d * d; ++i) {
    if (i / d == i % d) continue;
    if (a.link_latency_ns[i] < 0) return At("link_latency_ns", i, "is negative");
    if (a.link_bytes_per_s[i] < 1) return At("link_bytes_per_s", i, "is below 1");
    if (a.link_tensor_ns[i] < 0) return At("link_tensor_ns", i, "is negative");
    if (a.link_send_ns[i] < 0) return At("link_send_ns", i, "is negative");
    if (a.link_send_ps_per_byte[i] < 0) return At("link_send_ps_per_byte", i, "is negative");
    if (a.link_receive_ns[i] < 0) return At("link_receive_ns", i, "is negative");
    if (a.link_receive_ps_per_byte[i] < 0) return At("link_receive_ps_per_byte", i, "is negative");
    if (a.channel_of_link[i] < 0 || a.channel_of_link[i] >= d * d) {
      return At("channel_of_link", i, "must be in [0, D * D)");
    }
  }
  return "";
}

// Something is computing, being dispatched or on its way until all is done, so the sum of all durations bounds it.
std::string CheckSums(const SimulatorArrays& a) {
  const int32_t d = a.num_devices;
  int128 sum_ns = 0;
  int128 sum_bytes = 0;
  const int128 dispatch_ns = *std::max_element(a.dispatch_ns, a.dispatch_ns + d);
  for (int64_t n = 0; n < a.num_ops; ++n) {
    sum_ns += dispatch_ns + *std::max_element(a.compute_ns + n * d, a.compute_ns + (n + 1) * d);
  }
  sum_ns += *std::max_element(a.join_ns, a.join_ns + d);
  int64_t latency_ns = 0;
  int128 tensor_ns = 0;
  int64_t bytes_per_s = INT64_MAX;
  int128 chores_ns = 0;
  int128 chores_ps_per_byte = 0;
  for (int32_t i = 0; i < d * d; ++i) {
    if (i / d == i % d) continue;
    latency_ns = std::max(latency_ns, a.link_latency_ns[i]);
    tensor_ns = std::max(tensor_ns, int128{a.link_tensor_ns[i]});
    bytes_per_s = std::min(bytes_per_s, a.link_bytes_per_s[i]);
    chores_ns = std::max(chores_ns, int128{a.link_send_ns[i]} + a.link_receive_ns[i]);
    chores_ps_per_byte =
        std::max(chores_ps_per_byte, int128{a.link_send_ps_per_byte[i]} + a.link_receive_ps_per_byte[i]);
  }
  if (chores_ns > kLargestSumNs || chores_ps_per_byte > kLargestSumNs) {
    return "link_send_ns, link_receive_ns or their ps_per_byte exceed 2^50";
  }
  for (int64_t t = 0; t < a.num_tensors; ++t) {
    const int64_t targets = std::min(d - 1, a.consumer_offset[t + 1] - a.consumer_offset[t]);
    if (targets > 0) {
      sum_ns += targets * (ExactTransferNs(latency_ns, a.tensor_bytes[t], bytes_per_s) + tensor_ns +
                           ExactChoreNs(chores_ns, a.tensor_bytes[t], chores_ps_per_byte) + 2);
    }
    sum_bytes += a.tensor_bytes[t];
  }
  for (int64_t u = 0; u < a.num_units; ++u) sum_bytes += a.resident_bytes[u];
  if (sum_ns > kLargestSumNs) return "the sum of all compute, dispatch and transfer times exceeds 2^50 ns (13 days)";
  if (sum_bytes > kLargestSumBytes) return "the sum of tensor_bytes and resident_bytes exceeds 2^62";
  return "";
}

}  // namespace

std::string At(const char* what, int64_t position, const std::string& problem) {
  return std::string(what) + "[" + std::to_string(position) + "] " + problem;
}

std::string CheckArrays(const SimulatorArrays& arrays) {
  for (const auto check : {CheckCluster, CheckOps, CheckTensors, CheckAliases, CheckSums}) {
    const std::string problem = check(arrays);
    if (!problem.empty()) return problem;
  }
  return "";
}

int64_t TransferNs(int64_t latency_ns, int64_t bytes, int64_t bytes_per_s) {
  return static_cast<int64_t>(ExactTransferNs(latency_ns, bytes, bytes_per_s));
}

int64_t ChoreNs(int64_t fixed_ns, int64_t bytes, int64_t ps_per_byte) {
  return static_cast<int64_t>(ExactChoreNs(fixed_ns, bytes, ps_per_byte));
}

}  // namespace tf_placer
