// Leaves out the ops whose part in every simulation is known before the placement is. std only.

#ifndef TF_PLACER_OPS_CC_REDUCED_ARRAYS_H_
#define TF_PLACER_OPS_CC_REDUCED_ARRAYS_H_

#include <cstdint>
#include <vector>

#include "simulator_arrays.h"

namespace tf_placer {

// An op is settled when it is free on every device and waits for nothing but settled ops of its own
// unit: wherever the unit is placed, the op ends at time 0 without a transfer. A settled op whose
// tensors stay in the unit is left out, and what it leaves behind is exact:
//   - a settled consumer has ended at 0 too, so it neither waits for the tensor nor keeps it in memory;
//   - any other consumer has the tensor at 0, so it waits for one tensor less;
//   - the tensor is in memory from 0 until that consumer ends, which is what `held_bytes` says. A tensor
//     with bytes and several such consumers would need a counter: its producer is not left out.
// An op whose output has an input's memory is not settled, and who made that input is not left out: that memory is
// held until the output's last consumer has ended.
// Of a Keras training step, with its variables and constants, this is a third of all ops.
struct ReducedArrays {
  // Reads `full`, whose units and cluster arrays it goes on pointing to.
  explicit ReducedArrays(const SimulatorArrays& full);

  // The arrays of the M ops that are left, in their order. Points into this object.
  SimulatorArrays Arrays() const;

  std::vector<int32_t> original_op;  // [M] position in `full`
  std::vector<int32_t> original_tensor;  // of each that is left, position in `full`
  std::vector<int64_t> held_bytes;   // [M] on the op's device from time 0 until the op ends
  // Of each tensor that is left: bytes of its own where it is made, and the tensor that is left whose memory it has
  // there for as long as it lives, or -1: also where that holds nothing wherever it is placed, or nobody reads it.
  std::vector<int64_t> own_bytes;
  std::vector<int32_t> alias;
  // A tensor's memory goes over, once and for all, where its only reader makes an output of as many bytes in it: that
  // output is as one with memory of its own, but nothing is allocated for it, and the reader frees nothing.
  std::vector<bool> goes_over;  // to its reader's output
  std::vector<bool> shares;     // has memory of its own only where it is received

 private:
  std::vector<bool> SettledOps() const;
  std::vector<bool> OpsLeftOut(const std::vector<bool>& settled) const;
  void FindAliases();
  void KeepOps(const std::vector<bool>& left_out);
  void HandOver();
  void KeepTensors(const std::vector<bool>& settled, const std::vector<bool>& left_out);

  const SimulatorArrays full_;
  std::vector<int64_t> all_own_bytes_;  // [T]
  std::vector<int32_t> all_alias_;      // [T]
  std::vector<int32_t> new_op_;  // [N], -1 for an op that is left out
  std::vector<int32_t> unit_of_op_, priority_, tensor_producer_, consumer_offset_, consumer_op_;
  std::vector<int64_t> compute_ns_, tensor_bytes_;
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_REDUCED_ARRAYS_H_
