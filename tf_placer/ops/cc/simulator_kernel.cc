#include <memory>
#include <string>

#include "legs.h"
#include "simulation_plan.h"
#include "simulator.h"
#include "simulator_arrays.h"
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

// Positions of the op's inputs, as registered in simulator_ops.cc.
enum Input { kDeviceOfUnit, kPriorityOfOp, kFirstOfProblem, kNumInputs = kFirstOfProblem + kNumSimulatorInputs };

absl::Status CheckShapes(OpKernelContext* ctx) {
  const Tensor& device_of_unit = ctx->input(kDeviceOfUnit);
  if (device_of_unit.dims() != 2) {
    return tensorflow::errors::InvalidArgument("device_of_unit: expected shape [B,U], got ",
                                               device_of_unit.shape().DebugString());
  }
  TF_RETURN_IF_ERROR(CheckSimulatorShapes(ctx, kFirstOfProblem, device_of_unit.dim_size(1), 0));
  const Tensor& priority_of_op = ctx->input(kPriorityOfOp);
  if (priority_of_op.dims() == 2 && priority_of_op.dim_size(0) == 0) return absl::OkStatus();
  const int64_t ops = ctx->input(kFirstOfProblem + kUnitOfOp).NumElements();
  return CheckShape(ctx, kPriorityOfOp, "priority_of_op", TensorShape({device_of_unit.dim_size(0), ops}));
}

class SimulatePlacementsOp : public OpKernel {
 public:
  explicit SimulatePlacementsOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("with_schedule", &with_schedule_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("with_legs", &with_legs_));
    OP_REQUIRES(ctx, with_schedule_ || !with_legs_,
                tensorflow::errors::InvalidArgument("with_legs: legs come with a schedule only"));
  }

  void Compute(OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckShapes(ctx));
    std::shared_ptr<const SimulationPlan> kept;
    OP_REQUIRES_OK(ctx, PlanOf(ctx, &kept));
    const SimulationPlan& plan = *kept;
    OP_REQUIRES_OK(ctx, CheckDevices("device_of_unit", ctx->input(kDeviceOfUnit), plan.num_devices));

    const int64_t num_ops = plan.num_all_ops;
    const int64_t num_units = ctx->input(kDeviceOfUnit).dim_size(1);
    const int64_t batch = ctx->input(kDeviceOfUnit).dim_size(0);
    const int32_t* const device_of_unit_bxu = ctx->input(kDeviceOfUnit).flat<int32_t>().data();
    const bool by_plan = ctx->input(kPriorityOfOp).dim_size(0) > 0;
    const int32_t* const priority_of_op_bxn = ctx->input(kPriorityOfOp).flat<int32_t>().data();
    const TensorShape schedule_shape({with_schedule_ ? batch : 0, num_ops});
    const int64_t num_tensors = plan.num_all_tensors;
    const TensorShape legs_shape({with_legs_ ? batch : 0, kNumLegs, num_tensors, plan.num_devices});
    Tensor *runtime_ns, *peak_bytes, *start_ns, *end_ns, *leg_start_ns, *leg_end_ns;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({batch}), &runtime_ns));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, TensorShape({batch, plan.num_devices}), &peak_bytes));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(2, schedule_shape, &start_ns));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(3, schedule_shape, &end_ns));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(4, legs_shape, &leg_start_ns));
    OP_REQUIRES_OK(ctx, ctx->allocate_output(5, legs_shape, &leg_end_ns));
    int64_t* const runtime_ns_b = runtime_ns->flat<int64_t>().data();
    int64_t* const peak_bytes_bxd = peak_bytes->flat<int64_t>().data();
    int64_t* const start_ns_bxn = start_ns->flat<int64_t>().data();
    int64_t* const end_ns_bxn = end_ns->flat<int64_t>().data();
    int64_t* const leg_start_ns_bx3xtxd = leg_start_ns->flat<int64_t>().data();
    int64_t* const leg_end_ns_bx3xtxd = leg_end_ns->flat<int64_t>().data();
    const int64_t num_legs = int64_t{kNumLegs} * num_tensors * plan.num_devices;

    // Long blocks, because making a workspace costs as much as a part of a simulation.
    const auto simulate = [&](int64_t begin, int64_t end) {
      Workspace workspace(plan, by_plan);
      for (int64_t b = begin; b < end; ++b) {
        Legs legs;
        if (with_legs_) legs = {leg_start_ns_bx3xtxd + b * num_legs, leg_end_ns_bx3xtxd + b * num_legs};
        Simulate(plan, device_of_unit_bxu + b * num_units, by_plan ? priority_of_op_bxn + b * num_ops : nullptr,
                 &workspace, runtime_ns_b + b, peak_bytes_bxd + b * plan.num_devices,
                 with_schedule_ ? start_ns_bxn + b * num_ops : nullptr,
                 with_schedule_ ? end_ns_bxn + b * num_ops : nullptr, legs);
      }
    };
    constexpr int64_t kCyclesPerOp = 100;
    const auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
    tensorflow::Shard(workers->num_threads, workers->workers, batch, kCyclesPerOp * (num_ops + 1),
                      simulate);
  }

 private:
  absl::Status PlanOf(OpKernelContext* ctx, std::shared_ptr<const SimulationPlan>* plan) {
    *plan = kept_.Find(ctx, kFirstOfProblem, kNumInputs);
    if (*plan != nullptr) return absl::OkStatus();
    const SimulatorArrays arrays = ArraysOf(ctx, kFirstOfProblem, 0);
    const std::string problem = CheckArrays(arrays);
    if (!problem.empty()) return tensorflow::errors::InvalidArgument(problem);
    *plan = std::make_shared<const SimulationPlan>(arrays);
    kept_.Keep(ctx, kFirstOfProblem, kNumInputs, *plan);
    return absl::OkStatus();
  }

  bool with_schedule_ = false;
  bool with_legs_ = false;
  KeptFor<SimulationPlan> kept_;
};

REGISTER_KERNEL_BUILDER(Name("TfPlacerSimulatePlacements").Device(tensorflow::DEVICE_CPU),
                        SimulatePlacementsOp);

}  // namespace
}  // namespace tf_placer
