// Inputs of an op by their names, and the arrays of a graph and a cluster among them: for kernels.

#ifndef TF_PLACER_OPS_CC_SIMULATOR_TENSORS_H_
#define TF_PLACER_OPS_CC_SIMULATOR_TENSORS_H_

#include <memory>
#include <utility>
#include <vector>

#include "simulator_arrays.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/mutex.h"

namespace tf_placer {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Reads inputs as arrays of the shapes that they must have. What it gives may be read once `status` is OK.
class Inputs {
 public:
  explicit Inputs(OpKernelContext* ctx) : ctx_(ctx) {}

  const Tensor& At(const char* name);

  // Rows (0) or columns (1) of an input that must be a matrix.
  int64_t Size(const char* name, int dimension);

  // Elements of an input of this shape. With `orders` > 0 it has a dimension more, in front, of which one is given.
  template <typename T>
  const T* Of(const char* name, TensorShape shape, int64_t orders = 0, int64_t order = 0) {
    const int64_t begin = order * shape.num_elements();
    if (orders > 0) shape.InsertDim(0, orders);
    const Tensor& tensor = At(name);
    if (tensor.shape() != shape) {
      status_.Update(tensorflow::errors::InvalidArgument(name, ": expected shape ", shape.DebugString(), ", got ",
                                                         tensor.shape().DebugString()));
    }
    return tensor.flat<T>().data() + begin;
  }

  // How many elements an input has, which an int32_t must hold.
  int64_t Count(const char* name);

  // What was wrong first, in one line.
  const absl::Status& status() const { return status_; }

 private:
  OpKernelContext* const ctx_;
  absl::Status status_;
};

// The arrays of a graph with `units` units; with `orders` > 0 those of one order. What may differ between orders has a
// dimension more: `compute_ns`, `priority`, `newest_first`, `dispatch_ns`, `link_bytes_per_s` and `link_tensor_ns`.
SimulatorArrays SimulatorArraysOf(Inputs* inputs, int64_t units, int64_t orders, int64_t order);

// Whether rows [B, U] of devices are in [0, num_devices), one line that names `name` and the first that is not.
absl::Status CheckDevices(const char* name, const Tensor& device_of_unit, int64_t num_devices);

// What a kernel prepared from its inputs from `first` on, kept as long as it is given the same tensors. Holding these
// keeps their buffers from being reused or written to, so an input that shares its buffer with one has equal contents.
template <typename Prepared>
class KeptFor {
 public:
  explicit KeptFor(int first) : first_(first) {}

  std::shared_ptr<const Prepared> Find(OpKernelContext* ctx) {
    tensorflow::mutex_lock lock(mutex_);
    if (prepared_ == nullptr) return nullptr;
    for (int i = first_; i < ctx->num_inputs(); ++i) {
      const Tensor& kept = inputs_[i - first_];
      if (ctx->input(i).shape() != kept.shape() || ctx->input(i).data() != kept.data()) return nullptr;
    }
    return prepared_;
  }

  void Keep(OpKernelContext* ctx, std::shared_ptr<const Prepared> prepared) {
    std::vector<Tensor> inputs;
    for (int i = first_; i < ctx->num_inputs(); ++i) inputs.push_back(ctx->input(i));
    tensorflow::mutex_lock lock(mutex_);
    inputs_ = std::move(inputs);
    prepared_ = std::move(prepared);
  }

 private:
  const int first_;
  tensorflow::mutex mutex_;
  std::vector<Tensor> inputs_ TF_GUARDED_BY(mutex_);
  std::shared_ptr<const Prepared> prepared_ TF_GUARDED_BY(mutex_);
};

}  // namespace tf_placer

#endif  // TF_PLACER_OPS_CC_SIMULATOR_TENSORS_H_
