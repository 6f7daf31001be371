#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simulation_plan.h"
#include "simulator.h"
#include "simulator_arrays.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/mutex.h"
#include "tensorflow/core/util/work_sharder.h"

namespace tf_placer {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Positions of the op's inputs, as registered in simulator_ops.cc.
enum Input {
  kDeviceOfUnit,
  kUnitOfOp,
  kComputeNs,
  kPriority,
  kTensorProducer,
  kTensorBytes,
  kConsumerOffset,
  kConsumerOp,
  kResidentBytes,
  kStreams,
  kNewestFirst,
  kJoinNs,
  kLinkLatencyNs,
  kLinkBytesPerS,
  kChannelOfLink,
  kLinkSendNs,
  kLinkSendPsPerByte,
  kLinkReceiveNs,
  kLinkReceivePsPerByte,
  kNumInputs,
};

// A plan and the tensors it was made from. Holding the tensors keeps their buffers from being reused or
// written to, so an input that shares its buffer with one of them has equal contents.
struct CachedPlan {
  CachedPlan(std::vector<Tensor> tensors, const SimulatorArrays& arrays)
      : inputs(std::move(tensors)), plan(arrays) {}

  bool IsOf(OpKernelContext* ctx) const {
    for (int i = 0; i < static_cast<int>(inputs.size()); ++i) {
      const Tensor& given = ctx->input(i + 1);
      if (given.shape() != inputs[i].shape() || given.data() != inputs[i].data()) return false;
    }
    return true;
  }

  const std::vector<Tensor> inputs;  // those after device_of_unit
  const SimulationPlan plan;
};

absl::Status CheckShape(OpKernelContext* ctx, int input, const char* name, const TensorShape& expected) {
  if (ctx->input(input).shape() == expected) return absl::OkStatus();
  return tensorflow::errors::InvalidArgument(name, ": expected shape ", expected.DebugString(), ", got ",
                                             ctx->input(input).shape().DebugString());
}

absl::Status CheckShapes(OpKernelContext* ctx) {
  if (ctx->input(kDeviceOfUnit).dims() != 2) {
    return tensorflow::errors::InvalidArgument("device_of_unit: expected shape [B,U], got ",
                                               ctx->input(kDeviceOfUnit).shape().DebugString());
  }
  const int64_t units = ctx->input(kDeviceOfUnit).dim_size(1);
  const int64_t ops = ctx->input(kUnitOfOp).NumElements();
  const int64_t tensors = ctx->input(kTensorProducer).NumElements();
  const int64_t consumers = ctx->input(kConsumerOp).NumElements();
  const int64_t devices = ctx->input(kStreams).NumElements();
  for (const int64_t size : {units, ops, tensors, consumers}) {
    if (size >= INT32_MAX) {
      return tensorflow::errors::InvalidArgument("expected fewer than 2^31 - 1 units, ops, tensors and ",
                                                 "consumers, got ", size);
    }
  }
  const std::vector<std::tuple<int, const char*, TensorShape>> expected = {
      {kUnitOfOp, "unit_of_op", TensorShape({ops})},
      {kComputeNs, "compute_ns", TensorShape({ops, devices})},
      {kPriority, "priority", TensorShape({ops})},
      {kTensorProducer, "tensor_producer", TensorShape({tensors})},
      {kTensorBytes, "tensor_bytes", TensorShape({tensors})},
      {kConsumerOffset, "consumer_offset", TensorShape({tensors + 1})},
      {kConsumerOp, "consumer_op", TensorShape({consumers})},
      {kResidentBytes, "resident_bytes", TensorShape({units})},
      {kStreams, "streams", TensorShape({devices})},
      {kNewestFirst, "newest_first", TensorShape({devices})},
      {kJoinNs, "join_ns", TensorShape({devices})},
      {kLinkLatencyNs, "link_latency_ns", TensorShape({devices, devices})},
      {kLinkBytesPerS, "link_bytes_per_s", TensorShape({devices, devices})},
      {kChannelOfLink, "channel_of_link", TensorShape({devices, devices})},
      {kLinkSendNs, "link_send_ns", TensorShape({devices, devices})},
      {kLinkSendPsPerByte, "link_send_ps_per_byte", TensorShape({devices, devices})},
      {kLinkReceiveNs, "link_receive_ns", TensorShape({devices, devices})},
      {kLinkReceivePsPerByte, "link_receive_ps_per_byte", TensorShape({devices, devices})},
  };
  for (const auto& [input, name, shape] : expected) {
    TF_RETURN_IF_ERROR(CheckShape(ctx, input, name, shape));
  }
  return absl::OkStatus();
}

SimulatorArrays ArraysOf(OpKernelContext* ctx) {
  SimulatorArrays arrays;
  arrays.num_ops = ctx->input(kUnitOfOp).NumElements();
  arrays.num_units = ctx->input(kResidentBytes).NumElements();
  arrays.num_tensors = ctx->input(kTensorProducer).NumElements();
  arrays.num_consumers = ctx->input(kConsumerOp).NumElements();
  arrays.num_devices = ctx->input(kStreams).NumElements();
  arrays.unit_of_op = ctx->input(kUnitOfOp).flat<int32_t>().data();
  arrays.compute_ns = ctx->input(kComputeNs).flat<int64_t>().data();
  arrays.priority = ctx->input(kPriority).flat<int32_t>().data();
  arrays.tensor_producer = ctx->input(kTensorProducer).flat<int32_t>().data();
  arrays.tensor_bytes = ctx->input(kTensorBytes).flat<int64_t>().data();
  arrays.consumer_offset = ctx->input(kConsumerOffset).flat<int32_t>().data();
  arrays.consumer_op = ctx->input(kConsumerOp).flat<int32_t>().data();
  arrays.resident_bytes = ctx->input(kResidentBytes).flat<int64_t>().data();
  arrays.streams = ctx->input(kStreams).flat<int32_t>().data();
  arrays.newest_first = ctx->input(kNewestFirst).flat<bool>().data();
  arrays.join_ns = ctx->input(kJoinNs).flat<int64_t>().data();
  arrays.link_latency_ns = ctx->input(kLinkLatencyNs).flat<int64_t>().data();
  arrays.link_bytes_per_s = ctx->input(kLinkBytesPerS).flat<int64_t>().data();
  arrays.channel_of_link = ctx->input(kChannelOfLink).flat<int32_t>().data();
  arrays.link_send_ns = ctx->input(kLinkSendNs).flat<int64_t>().data();
  arrays.link_send_ps_per_byte = ctx->input(kLinkSendPsPerByte).flat<int64_t>().data();
  arrays.link_receive_ns = ctx->input(kLinkReceiveNs).flat<int64_t>().data();
  arrays.link_receive_ps_per_byte = ctx->input(kLinkReceivePsPerByte).flat<int64_t>().data();
  return arrays;
}

class SimulatePlacementsOp : public OpKernel {
 public:
  explicit SimulatePlacementsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("with_schedule", &with_schedule_));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShapes(ctx));
    std::shared_ptr<const CachedPlan> cached;
    OP_REQUIRES_OK(ctx, PlanOf(ctx, &cached));
    const SimulationPlan& plan = cached->plan;

    const int64_t num_ops = ctx->input(kUnitOfOp).NumElements();
    const int64_t num_units = ctx->input(kResidentBytes).NumElements();
    const auto device_of_unit_bxu = ctx->input(kDeviceOfUnit).matrix<int32_t>();
    const int64_t batch = device_of_unit_bxu.dimension(0);
    for (int64_t i = 0; i < device_of_unit_bxu.size(); ++i) {
      const int32_t device = device_of_unit_bxu.data()[i];
      OP_REQUIRES(ctx, device >= 0 && device < plan.num_devices,
                  tensorflow::errors::InvalidArgument("device_of_unit[", i / num_units, ",",
                                                      i % num_units, "]: expected a device in [0, ",
                                                      plan.num_devices, "), got ", device));
    }

    const TensorShape schedule_shape({with_schedule_ ? batch : 0, num_ops});
    Tensor *runtime_ns, *peak_bytes, *start_ns, *end_ns;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({batch}), &runtime_ns));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, TensorShape({batch, plan.num_devices}), &peak_bytes));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, schedule_shape, &start_ns));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(3, schedule_shape, &end_ns));
    int64_t* const runtime_ns_b = runtime_ns->flat<int64_t>().data();
    int64_t* const peak_bytes_bxd = peak_bytes->flat<int64_t>().data();
    int64_t* const start_ns_bxn = start_ns->flat<int64_t>().data();
    int64_t* const end_ns_bxn = end_ns->flat<int64_t>().data();

    // Long blocks, because making a workspace costs as much as a part of a simulation.
    const auto simulate = [&](int64_t begin, int64_t end) {
      Workspace workspace(plan);
      for (int64_t b = begin; b < end; ++b) {
        Simulate(plan, device_of_unit_bxu.data() + b * num_units, &workspace, runtime_ns_b + b,
                 peak_bytes_bxd + b * plan.num_devices,
                 with_schedule_ ? start_ns_bxn + b * num_ops : nullptr,
                 with_schedule_ ? end_ns_bxn + b * num_ops : nullptr);
      }
    };
    constexpr int64_t kCyclesPerOp = 100;
    const auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers->num_threads, workers->workers, batch, kCyclesPerOp * (num_ops + 1),
                      simulate);
  }

 private:
  absl::Status PlanOf(OpKernelContext* ctx, std::shared_ptr<const CachedPlan>* cached) {
    {
      tensorflow::mutex_lock lock(mutex_);
      if (cached_ != nullptr && cached_->IsOf(ctx)) {
        *cached = cached_;
        return absl::OkStatus();
      }
    }
    const SimulatorArrays arrays = ArraysOf(ctx);
    const std::string problem = CheckArrays(arrays);
    if (!problem.empty()) return tensorflow::errors::InvalidArgument(problem);
    std::vector<Tensor> inputs;
    for (int i = 1; i < kNumInputs; ++i) inputs.push_back(ctx->input(i));
    *cached = std::make_shared<const CachedPlan>(std::move(inputs), arrays);
    tensorflow::mutex_lock lock(mutex_);
    cached_ = *cached;
    return absl::OkStatus();
  }

  bool with_schedule_ = false;
  tensorflow::mutex mutex_;
  std::shared_ptr<const CachedPlan> cached_ TF_GUARDED_BY(mutex_);
};

REGISTER_KERNEL_BUILDER(Name("TfPlacerSimulatePlacements").Device(tensorflow::DEVICE_CPU),
                        SimulatePlacementsOp);

}  // namespace
}  // namespace tf_placer
