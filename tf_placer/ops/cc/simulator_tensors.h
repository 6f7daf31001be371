// The arrays of a graph and a cluster as inputs of an op: for the kernels that simulate.

#ifndef TF_PLACER_OPS_CC_SIMULATOR_TENSORS_H_
#define TF_PLACER_OPS_CC_SIMULATOR_TENSORS_H_

#include <memory>
#include <utility>
#include <vector>

#include "simulator_arrays.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/mutex.h"

namespace tf_placer {

// Positions of the inputs behind the first of them, as the ops register them.
enum SimulatorInput {
  kUnitOfOp,
  kComputeNs,
  kPriority,
  kTensorProducer,
  kTensorBytes,
  kAliasOfTensor,
  kConsumerOffset,
  kConsumerOp,
  kResidentBytes,
  kStreams,
  kNewestFirst,
  kJoinNs,
  kDispatchNs,
  kLinkLatencyNs,
  kLinkBytesPerS,
  kChannelOfLink,
  kLinkTensorNs,
  kLinkSendNs,
  kLinkSendPsPerByte,
  kLinkReceiveNs,
  kLinkReceivePsPerByte,
  kNumSimulatorInputs,
};

absl::Status CheckShape(tensorflow::OpKernelContext* ctx, int input, const char* name,
                        const tensorflow::TensorShape& expected);

// Whether the inputs from `first` on have the shapes of one graph with `units` units. With `orders` > 0 what may differ
// between them has a dimension more, in front: `compute_ns`, `priority`, `newest_first`, `dispatch_ns`,
// `link_bytes_per_s` and `link_tensor_ns`.
absl::Status CheckSimulatorShapes(tensorflow::OpKernelContext* ctx, int first, int64_t units, int64_t orders);

// The arrays; with several orders those of one of them.
SimulatorArrays ArraysOf(tensorflow::OpKernelContext* ctx, int first, int64_t order);

// Whether rows [B, U] of devices are in [0, num_devices), one line that names `name` and the first that is not.
absl::Status CheckDevices(const char* name, const tensorflow::Tensor& device_of_unit, int64_t num_devices);

// What a kernel prepared from its inputs from `first` on, kept as long as it is given the same tensors. Holding these
// keeps their buffers from being reused or written to, so an input that shares its buffer with one has equal contents.
template <typename Prepared>
class KeptFor {
 public:
  std::shared_ptr<const Prepared> Find(tensorflow::OpKernelContext* ctx, int first, int last) {
    tensorflow::mutex_lock lock(mutex_);
    if (prepared_ == nullptr) return nullptr;
    for (int i = first; i < last; ++i) {
      const tensorflow::Tensor& kept = inputs_[i - first];
      if (ctx->input(i).shape() != kept.shape() || ctx->input(i).data() != kept.data()) return nullptr;
    }
    return prepared_;
  }

  void Keep(tensorflow::OpKernelContext* ctx, int first, int last, std::shared_ptr<const Prepared> prepared) {
    std::vector<tensorflow::Tensor> inputs;
    for (int i = first; i < last; ++i) inputs.push_back(ctx->input(i));
    tensorflow::mutex_lock lock(mutex_);
    inputs_ = std::move(inputs);
    prepared_ = std::move(prepared);
  }

 private:
  tensorflow::mutex mutex_;
  std::vector<tensorflow::Tensor> inputs_ TF_GUARDED_BY(mutex_);
  std::shared_ptr<const Prepared> prepared_ TF_GUARDED_BY(mutex_);
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SIMULATOR_TENSORS_H_
