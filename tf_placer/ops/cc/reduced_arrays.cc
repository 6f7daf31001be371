#include "reduced_arrays.h"

#include <algorithm>

namespace tf_placer {

ReducedArrays::ReducedArrays(const SimulatorArrays& full) : full_(full), new_op_(full.num_ops, -1) {
  FindAliases();
  const std::vector<bool> settled = SettledOps();
  const std::vector<bool> left_out = OpsLeftOut(settled);
  KeepOps(left_out);
  KeepTensors(settled, left_out);
  HandOver();
}

// An alias is of an earlier tensor, or of itself: that is there for the whole step, as what units keep is. What holds
// nothing at home may still be received, and held, elsewhere.
void ReducedArrays::FindAliases() {
  all_own_bytes_.assign(full_.tensor_bytes, full_.tensor_bytes + full_.num_tensors);
  all_alias_.assign(full_.num_tensors, -1);
  for (int32_t t = 0; full_.alias_of_tensor != nullptr && t < full_.num_tensors; ++t) {
    const int32_t alias = full_.alias_of_tensor[t];
    if (alias < 0) continue;
    all_own_bytes_[t] = 0;
    if (alias == t) continue;
    const bool is_read = full_.consumer_offset[t] < full_.consumer_offset[t + 1];
    const bool is_near = full_.unit_of_op[full_.tensor_producer[alias]] == full_.unit_of_op[full_.tensor_producer[t]];
    const bool holds_nothing_near = all_own_bytes_[alias] == 0 && all_alias_[alias] < 0;
    const bool holds = full_.tensor_bytes[alias] > 0 && !(is_near && holds_nothing_near);
    if (is_read && holds) all_alias_[t] = alias;
  }
}

// In topological order a producer's verdict stands before its consumers ask for it.
std::vector<bool> ReducedArrays::SettledOps() const {
  std::vector<bool> settled(full_.num_ops);
  for (int64_t n = 0; n < full_.num_ops; ++n) {
    const int64_t* const compute_ns = full_.compute_ns + n * full_.num_devices;
    settled[n] = std::all_of(compute_ns, compute_ns + full_.num_devices, [](int64_t ns) { return ns == 0; });
  }
  for (int32_t t = 0; t < full_.num_tensors; ++t) {
    const int32_t producer = full_.tensor_producer[t];
    if (all_alias_[t] >= 0) settled[producer] = false;
    for (int32_t e = full_.consumer_offset[t]; e < full_.consumer_offset[t + 1]; ++e) {
      const int32_t consumer = full_.consumer_op[e];
      if (!settled[producer] || full_.unit_of_op[producer] != full_.unit_of_op[consumer]) {
        settled[consumer] = false;
      }
    }
  }
  return settled;
}

std::vector<bool> ReducedArrays::OpsLeftOut(const std::vector<bool>& settled) const {
  std::vector<bool> left_out(settled);
  for (int32_t t = 0; t < full_.num_tensors; ++t) {
    const int32_t producer = full_.tensor_producer[t];
    int32_t holders = 0;
    for (int32_t e = full_.consumer_offset[t]; e < full_.consumer_offset[t + 1]; ++e) {
      const int32_t consumer = full_.consumer_op[e];
      if (full_.unit_of_op[producer] != full_.unit_of_op[consumer]) left_out[producer] = false;
      holders += !settled[consumer];
    }
    if (holders > 1 && all_own_bytes_[t] > 0) left_out[producer] = false;
    if (all_alias_[t] >= 0) left_out[full_.tensor_producer[all_alias_[t]]] = false;
  }
  return left_out;
}

void ReducedArrays::KeepOps(const std::vector<bool>& left_out) {
  for (int32_t n = 0; n < full_.num_ops; ++n) {
    if (left_out[n]) continue;
    const int64_t* const compute_ns = full_.compute_ns + int64_t{n} * full_.num_devices;
    new_op_[n] = original_op.size();
    original_op.push_back(n);
    unit_of_op_.push_back(full_.unit_of_op[n]);
    priority_.push_back(full_.priority[n]);
    compute_ns_.insert(compute_ns_.end(), compute_ns, compute_ns + full_.num_devices);
  }
  held_bytes.assign(original_op.size(), 0);
}

void ReducedArrays::KeepTensors(const std::vector<bool>& settled, const std::vector<bool>& left_out) {
  consumer_offset_.push_back(0);
  std::vector<int32_t> new_tensor(full_.num_tensors, -1);
  for (int32_t t = 0; t < full_.num_tensors; ++t) {
    const int32_t producer = full_.tensor_producer[t];
    for (int32_t e = full_.consumer_offset[t]; e < full_.consumer_offset[t + 1]; ++e) {
      const int32_t consumer = full_.consumer_op[e];
      if (settled[consumer]) continue;
      if (left_out[producer]) {
        held_bytes[new_op_[consumer]] += all_own_bytes_[t];
      } else {
        consumer_op_.push_back(new_op_[consumer]);
      }
    }
    if (left_out[producer]) continue;
    new_tensor[t] = original_tensor.size();
    original_tensor.push_back(t);
    own_bytes.push_back(all_own_bytes_[t]);
    alias.push_back(all_alias_[t] < 0 ? -1 : new_tensor[all_alias_[t]]);
    tensor_producer_.push_back(new_op_[producer]);
    tensor_bytes_.push_back(full_.tensor_bytes[t]);
    consumer_offset_.push_back(consumer_op_.size());
  }
}

void ReducedArrays::HandOver() {
  const int32_t num_tensors = tensor_bytes_.size();
  std::vector<int32_t> num_sharing(num_tensors, 0);
  for (const int32_t shared : alias) {
    if (shared >= 0) ++num_sharing[shared];
  }
  goes_over.assign(num_tensors, false);
  shares.resize(num_tensors);
  for (int32_t t = 0; t < num_tensors; ++t) {
    shares[t] = own_bytes[t] != tensor_bytes_[t];
    const int32_t shared = alias[t];
    if (shared < 0 || shares[shared] || num_sharing[shared] > 1) continue;
    const bool has_one_reader = consumer_offset_[shared + 1] - consumer_offset_[shared] == 1;
    if (!has_one_reader || tensor_bytes_[shared] != tensor_bytes_[t]) continue;
    goes_over[shared] = true;
    shares[t] = false;
    alias[t] = -1;
  }
}

SimulatorArrays ReducedArrays::Arrays() const {
  SimulatorArrays arrays = full_;
  arrays.num_ops = original_op.size();
  arrays.num_tensors = tensor_producer_.size();
  arrays.num_consumers = consumer_op_.size();
  arrays.unit_of_op = unit_of_op_.data();
  arrays.compute_ns = compute_ns_.data();
  arrays.priority = priority_.data();
  arrays.tensor_producer = tensor_producer_.data();
  arrays.tensor_bytes = tensor_bytes_.data();
  arrays.consumer_offset = consumer_offset_.data();
  arrays.consumer_op = consumer_op_.data();
  return arrays;
}

}  // namespace tf_placer
