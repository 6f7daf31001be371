#include "list_policy.h"

#include <string>

#include "simulator_tensors.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_placer {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Positions of the op's inputs, as registered in list_policy_ops.cc.
enum Input {
  kCoefficientsOf,
  kLegal,
  kWork,
  kSlowness,
  kMemory,
  kWindow,
  kContext,
  kOrderFeatures,
  kNeighborOffset,
  kNeighbor,
  kNeighborBytes,
  kLinkFixed,
  kLinkPerByte,
};

absl::Status CheckShapes(OpKernelContext* ctx) {
  for (const auto& [input, name] : {std::pair{kCoefficientsOf, "coefficients"}, {kLegal, "legal"}, {kWindow, "window"}}) {
    if (ctx->input(input).dims() != 2) {
      return tensorflow::errors::InvalidArgument(name, ": expected a matrix, got ",
                                                 ctx->input(input).shape().DebugString());
    }
  }
  const int64_t nodes = ctx->input(kLegal).dim_size(0), devices = ctx->input(kLegal).dim_size(1);
  const int64_t rules = ctx->input(kCoefficientsOf).dim_size(0), bins = ctx->input(kWindow).dim_size(1);
  const TensorShape by_device({nodes, devices}), links({devices, devices}), ends({ctx->input(kNeighbor).NumElements()});
  TF_RETURN_IF_ERROR(
      CheckShape(ctx, kCoefficientsOf, "coefficients", TensorShape({rules, ListPolicy::kCoefficients})));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kWork, "work", by_device));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kSlowness, "slowness", by_device));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kMemory, "memory", by_device));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kWindow, "window", TensorShape({nodes, bins})));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kContext, "context", TensorShape({nodes, ListPolicy::kContext})));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kOrderFeatures, "order_features", TensorShape({nodes, ListPolicy::kOrder})));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kNeighborOffset, "neighbor_offset", TensorShape({nodes + 1})));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kNeighbor, "neighbor", ends));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kNeighborBytes, "neighbor_bytes", ends));
  TF_RETURN_IF_ERROR(CheckShape(ctx, kLinkFixed, "link_fixed", links));
  return CheckShape(ctx, kLinkPerByte, "link_per_byte", links);
}

const double* Doubles(OpKernelContext* ctx, int input) { return ctx->input(input).flat<double>().data(); }

ListArrays ArraysOf(OpKernelContext* ctx) {
  ListArrays arrays;
  arrays.num_nodes = ctx->input(kLegal).dim_size(0);
  arrays.num_devices = ctx->input(kLegal).dim_size(1);
  arrays.num_bins = ctx->input(kWindow).dim_size(1);
  arrays.num_ends = ctx->input(kNeighbor).NumElements();
  arrays.legal = ctx->input(kLegal).flat<bool>().data();
  arrays.work = Doubles(ctx, kWork);
  arrays.slowness = Doubles(ctx, kSlowness);
  arrays.memory = Doubles(ctx, kMemory);
  arrays.window = Doubles(ctx, kWindow);
  arrays.context = Doubles(ctx, kContext);
  arrays.order_features = Doubles(ctx, kOrderFeatures);
  arrays.neighbor_offset = ctx->input(kNeighborOffset).flat<int32_t>().data();
  arrays.neighbor = ctx->input(kNeighbor).flat<int32_t>().data();
  arrays.neighbor_bytes = Doubles(ctx, kNeighborBytes);
  arrays.link_fixed = Doubles(ctx, kLinkFixed);
  arrays.link_per_byte = Doubles(ctx, kLinkPerByte);
  return arrays;
}

class PlaceByListOp : public OpKernel {
 public:
  explicit PlaceByListOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("passes", &passes_));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShapes(ctx));
    const ListArrays arrays = ArraysOf(ctx);
    const std::string problem = CheckListArrays(arrays);
    OP_REQUIRES(ctx, problem.empty(), tensorflow::errors::InvalidArgument(problem));
    const int64_t rules = ctx->input(kCoefficientsOf).dim_size(0);
    const double* const coefficients_bxp = Doubles(ctx, kCoefficientsOf);
    Tensor* device_of_node;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({rules, arrays.num_nodes}), &device_of_node));
    int32_t* const device_of_node_bxv = device_of_node->flat<int32_t>().data();

    const auto place = [&](int64_t begin, int64_t end) {
      ListPolicy policy(arrays);
      for (int64_t b = begin; b < end; ++b) {
        policy.Place(coefficients_bxp + b * ListPolicy::kCoefficients, passes_, device_of_node_bxv + b * arrays.num_nodes);
      }
    };
    const int64_t cycles_per_node = 200 * (arrays.num_devices + 1);
    const auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers->num_threads, workers->workers, rules,
                      passes_ * cycles_per_node * (arrays.num_nodes + 1), place);
  }

 private:
  int passes_ = 1;
};

REGISTER_KERNEL_BUILDER(Name("TfPlacerPlaceByList").Device(tensorflow::DEVICE_CPU), PlaceByListOp);

}  // namespace
}  // namespace tf_placer
