#include "list_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace tf_placer {
namespace {

constexpr double kMostOverfull = 3, kMostRival = 6, kMostTransfer = 6, kMostFull = 5;
constexpr double kTransferScale = 8, kAnyTransferScale = 200;
constexpr double kRoom = 0.85;  // of a device's memory
constexpr double kFullScale = 20;

}  // namespace

std::string CheckListArrays(const ListArrays& arrays) {
  const int64_t devices = arrays.num_devices;
  for (int64_t v = 0; v < arrays.num_nodes; ++v) {
    const bool* const legal = arrays.legal + v * devices;
    if (std::none_of(legal, legal + devices, [](bool one) { return one; })) {
      return "legal: node " + std::to_string(v) + " has no device";
    }
    if (arrays.kind[v] < 0 || arrays.kind[v] >= arrays.num_nodes) {
      return "kind: " + std::to_string(arrays.kind[v]) + " at " + std::to_string(v) + " is no number of a node";
    }
    if (arrays.neighbor_offset[v] > arrays.neighbor_offset[v + 1]) {
      return "neighbor_offset: not ascending at " + std::to_string(v);
    }
  }
  if (arrays.neighbor_offset[0] != 0 || arrays.neighbor_offset[arrays.num_nodes] != arrays.num_ends) {
    return "neighbor_offset: expected 0 first and " + std::to_string(arrays.num_ends) + " last";
  }
  for (int64_t e = 0; e < arrays.num_ends; ++e) {
    if (arrays.neighbor[e] < 0 || arrays.neighbor[e] >= arrays.num_nodes) {
      return "neighbor: " + std::to_string(arrays.neighbor[e]) + " at " + std::to_string(e) + " is no node";
    }
  }
  return "";
}

std::string CheckKept(const ListArrays& arrays, int64_t rules, const int32_t* kept_bxv) {
  for (int64_t i = 0; i < rules * arrays.num_nodes; ++i) {
    const int64_t node = i % arrays.num_nodes, device = kept_bxv[i];
    if (device == ListPolicy::kNowhere) continue;
    if (device < 0 || device >= arrays.num_devices || !arrays.legal[node * arrays.num_devices + device]) {
      return "kept: node " + std::to_string(node) + " may not be on " + std::to_string(device);
    }
  }
  return "";
}

ListPolicy::ListPolicy(const ListArrays& arrays)
    : arrays_(arrays),
      total_bytes_(arrays.num_nodes),
      load_(arrays.num_devices),
      memory_(arrays.num_devices),
      busy_(arrays.num_devices * arrays.num_bins),
      near_bytes_(arrays.num_nodes * arrays.num_devices),
      near_count_(arrays.num_nodes * arrays.num_devices),
      nodes_on_(arrays.num_devices),
      alike_(arrays.num_nodes * arrays.num_devices),
      last_alike_(arrays.num_nodes),
      done_(arrays.num_devices),
      end_(arrays.num_devices),
      end_of_node_(arrays.num_nodes),
      coefficients_of_node_(kFeatures),
      scores_(arrays.num_devices),
      features_(arrays.num_devices * kFeatures),
      order_(arrays.num_nodes),
      keys_(arrays.num_nodes),
      fixed_(arrays.num_nodes) {
  for (int64_t v = 0; v < arrays.num_nodes; ++v) {
    double total = 0;
    for (int32_t e = arrays.neighbor_offset[v]; e < arrays.neighbor_offset[v + 1]; ++e) {
      total += arrays.neighbor_bytes[e];
    }
    total_bytes_[v] = std::max(total, 1.0);
  }
}

void ListPolicy::Place(const double* coefficients, int passes, const int32_t* kept_v, int32_t* device_of_node_v) {
  device_of_node_ = device_of_node_v;
  last_ = kNowhere;
  for (auto* state : {&load_, &memory_, &busy_, &near_bytes_, &near_count_, &end_of_node_}) {
    std::fill(state->begin(), state->end(), 0);
  }
  std::fill(nodes_on_.begin(), nodes_on_.end(), 0);
  std::fill(alike_.begin(), alike_.end(), 0);
  std::fill(last_alike_.begin(), last_alike_.end(), kNowhere);
  std::fill_n(device_of_node_, arrays_.num_nodes, kNowhere);
  const double* const order_coefficients = coefficients + kFeatures * kContext - 1;  // kPlace has none
  for (int64_t v = 0; v < arrays_.num_nodes; ++v) {
    const double* const features = arrays_.order_features + v * kOrder;
    keys_[v] = features[kPlace];
    for (int k = kPlace + 1; k < kOrder; ++k) keys_[v] += order_coefficients[k] * features[k];
    // What has no choice is there from the beginning.
    const bool *const legal = arrays_.legal + v * arrays_.num_devices, *const end = legal + arrays_.num_devices;
    fixed_[v] = std::count(legal, end, true) == 1 ? std::find(legal, end, true) - legal : kept_v[v];
    if (fixed_[v] != kNowhere) Put(v, fixed_[v], 1);
  }
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [this](int64_t a, int64_t b) { return keys_[a] < keys_[b]; });
  for (int pass = 0; pass < passes; ++pass) {
    std::fill(done_.begin(), done_.end(), 0);
    for (const int64_t node : order_) {
      int32_t device = device_of_node_[node];
      if (fixed_[node] == kNowhere) {
        if (device != kNowhere) Put(node, device, -1);
        device = Decide(coefficients, node);
        Put(node, device, 1);
      }
      const double duration = arrays_.duration[node * arrays_.num_devices + device];
      end_of_node_[node] = done_[device] = std::max(ReadyOn(node, device), done_[device]) + duration;
      last_ = last_alike_[arrays_.kind[node]] = device;
    }
  }
}

void ListPolicy::Put(int64_t node, int32_t device, double sign) {
  const int64_t devices = arrays_.num_devices, bins = arrays_.num_bins;
  const double work = sign * arrays_.work[node * devices + device];
  load_[device] += work;
  memory_[device] += sign * arrays_.memory[node * devices + device];
  nodes_on_[device] += sign > 0 ? 1 : -1;
  alike_[arrays_.kind[node] * devices + device] += sign > 0 ? 1 : -1;
  for (int64_t t = 0; t < bins; ++t) busy_[device * bins + t] += work * arrays_.window[node * bins + t];
  for (int32_t e = arrays_.neighbor_offset[node]; e < arrays_.neighbor_offset[node + 1]; ++e) {
    const int64_t there = arrays_.neighbor[e] * devices + device;
    near_bytes_[there] += sign * arrays_.neighbor_bytes[e];
    near_count_[there] += sign;
  }
  device_of_node_[node] = sign > 0 ? device : kNowhere;
}

double ListPolicy::ReadyOn(int64_t node, int64_t device) const {
  double ready = 0;
  for (int32_t e = arrays_.neighbor_offset[node]; e < arrays_.neighbor_offset[node + 1]; ++e) {
    const int32_t other = arrays_.neighbor[e], source = device_of_node_[other];
    if (source == kNowhere || !arrays_.from_neighbor[e]) continue;
    const int64_t link = source * arrays_.num_devices + device;
    const double transfer = arrays_.link_fixed[link] + arrays_.neighbor_bytes[e] * arrays_.link_per_byte[link];
    ready = std::max(ready, end_of_node_[other] + transfer);
  }
  return ready;
}

int32_t ListPolicy::Decide(const double* coefficients, int64_t node) {
  const int64_t devices = arrays_.num_devices, bins = arrays_.num_bins;
  const double total = total_bytes_[node];
  const double* const near_bytes = near_bytes_.data() + node * devices;
  const double* const near_count = near_count_.data() + node * devices;
  const double* const work = arrays_.work + node * devices;
  const bool* const legal = arrays_.legal + node * devices;

  std::fill(features_.begin(), features_.end(), 0);
  const int32_t* const alike = alike_.data() + arrays_.kind[node] * devices;
  const double all_alike = std::max(std::accumulate(alike, alike + devices, 0), 1);
  double open = 0, most = 0, earliest = std::numeric_limits<double>::max();
  for (int32_t e = arrays_.neighbor_offset[node]; e < arrays_.neighbor_offset[node + 1]; ++e) {
    const int32_t other = arrays_.neighbor[e];
    const double bytes = arrays_.neighbor_bytes[e];
    if (device_of_node_[other] != kNowhere) continue;
    open += bytes;
    for (int64_t d = 0; d < devices; ++d) {
      features_[d * kFeatures + kIndirect] += bytes * near_bytes_[other * devices + d] / (total_bytes_[other] * total);
    }
  }
  for (int64_t d = 0; d < devices; ++d) {
    most = std::max(most, load_[d] + work[d]);
    const double ready = ReadyOn(node, d);
    features_[d * kFeatures + kIdle] = std::log1p(std::max(ready - done_[d], 0.0) * kAnyTransferScale) / 3;
    end_[d] = std::max(ready, done_[d]) + arrays_.duration[node * devices + d];
    if (legal[d]) earliest = std::min(earliest, end_[d]);
  }
  for (int64_t d = 0; d < devices; ++d) {
    double* const feature = features_.data() + d * kFeatures;
    double transfer = 0, rival = 0;
    for (int64_t source = 0; source < devices; ++source) {
      transfer += near_bytes[source] * arrays_.link_per_byte[source * devices + d] +
                  near_count[source] * arrays_.link_fixed[source * devices + d];
    }
    for (int64_t t = 0; t < bins; ++t) rival += arrays_.window[node * bins + t] * busy_[d * bins + t];
    const double affinity = std::max(near_bytes[d], 0.0) / total;
    const double later = std::max(end_[d] - earliest, 0.0);
    const double memory = memory_[d] + arrays_.memory[node * devices + d];
    feature[kSlowness] = arrays_.slowness[node * devices + d];
    feature[kLoad] = load_[d];
    feature[kOverfull] = std::clamp(load_[d] + work[d] - 1, 0.0, kMostOverfull);
    feature[kBalance] = most > 0 ? (load_[d] + work[d]) / most : 0;
    feature[kRival] = std::min(rival, kMostRival) / 2;
    feature[kTransfer] = std::min(transfer * kTransferScale, kMostTransfer);
    feature[kAnyTransfer] = std::log1p(std::max(transfer, 0.0) * kAnyTransferScale) / 3;
    feature[kAffinity] = affinity;
    feature[kAnyAffinity] = std::sqrt(affinity);
    feature[kMemory] = memory;
    feature[kFull] = std::clamp((memory - kRoom) * kFullScale, 0.0, kMostFull);
    feature[kUnused] = nodes_on_[d] == 0;
    feature[kLast] = d == last_;
    feature[kFinish] = std::min(later * kTransferScale, kMostTransfer);
    feature[kAnyFinish] = std::log1p(later * kAnyTransferScale) / 3;
    feature[kAlike] = alike[d] / all_alike;
    feature[kAlikeLast] = d == last_alike_[arrays_.kind[node]];
  }
  for (int f = 0; f < kFeatures; ++f) {
    double sum = 0;
    for (int c = 0; c < kContext; ++c) {
      const double context = c == kOpen ? 2 * open / total : arrays_.context[node * kContext + c];
      sum += coefficients[f * kContext + c] * context;
    }
    coefficients_of_node_[f] = sum;
  }
  int32_t best = kNowhere;
  for (int64_t d = 0; d < devices; ++d) {
    double score = 0;
    for (int f = 0; f < kFeatures; ++f) score += coefficients_of_node_[f] * features_[d * kFeatures + f];
    scores_[d] = score;
    if (legal[d] && (best == kNowhere || score > scores_[best])) best = d;
  }
  return best;
}

}  // namespace tf_placer
