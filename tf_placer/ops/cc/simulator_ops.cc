#include "legs.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_placer {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status SimulatePlacementsShape(InferenceContext* c) {
  ShapeHandle device_of_unit, priority_of_op, unit_of_op, tensor_bytes, streams;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &device_of_unit));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &priority_of_op));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(2), 1, &unit_of_op));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(6), 1, &tensor_bytes));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(11), 1, &streams));
  const DimensionHandle batch = c->Dim(device_of_unit, 0);
  bool with_schedule = false;
  TF_RETURN_IF_ERROR(c->GetAttr("with_schedule", &with_schedule));
  const ShapeHandle schedule =
      c->Matrix(with_schedule ? batch : c->MakeDim(0), c->Dim(unit_of_op, 0));
  c->set_output(0, c->Vector(batch));
  c->set_output(1, c->Matrix(batch, c->Dim(streams, 0)));
  c->set_output(2, schedule);
  c->set_output(3, schedule);
  bool with_legs = false;
  TF_RETURN_IF_ERROR(c->GetAttr("with_legs", &with_legs));
  const DimensionHandle leg_batch = with_legs ? batch : c->MakeDim(0);
  const ShapeHandle legs =
      c->MakeShape({leg_batch, c->MakeDim(kNumLegs), c->Dim(tensor_bytes, 0), c->Dim(streams, 0)});
  c->set_output(4, legs);
  c->set_output(5, legs);
  return absl::OkStatus();
}

REGISTER_OP("TfPlacerSimulatePlacements")
    .Attr("with_schedule: bool = false")
    .Attr("with_legs: bool = false")
    .Input("device_of_unit: int32")
    .Input("priority_of_op: int32")
    .Input("unit_of_op: int32")
    .Input("compute_ns: int64")
    .Input("priority: int32")
    .Input("tensor_producer: int32")
    .Input("tensor_bytes: int64")
    .Input("alias_of_tensor: int32")
    .Input("consumer_offset: int32")
    .Input("consumer_op: int32")
    .Input("resident_bytes: int64")
    .Input("streams: int32")
    .Input("newest_first: bool")
    .Input("join_ns: int64")
    .Input("dispatch_ns: int64")
    .Input("link_latency_ns: int64")
    .Input("link_bytes_per_s: int64")
    .Input("channel_of_link: int32")
    .Input("link_tensor_ns: int64")
    .Input("link_send_ns: int64")
    .Input("link_send_ps_per_byte: int64")
    .Input("link_receive_ns: int64")
    .Input("link_receive_ps_per_byte: int64")
    .Output("runtime_ns: int64")
    .Output("peak_bytes: int64")
    .Output("start_ns: int64")
    .Output("end_ns: int64")
    .Output("leg_start_ns: int64")
    .Output("leg_end_ns: int64")
    .SetShapeFn(SimulatePlacementsShape)
    .Doc(R"doc(
Simulates a batch of placements of one graph on one cluster.

The model is that of tf_placer/ops/reference_simulator.py. All inputs but the first
two are examined once: a kernel keeps what it prepared from them while it is given the
same tensors again.

device_of_unit: [B, U] device of every unit, one row per placement.
priority_of_op: [B, N] lower runs first among the ready ops of a device, and sends its tensors first; or [0, N] for none.
unit_of_op: [N] unit of every op; ops are in topological order.
compute_ns: [N, D] time of every op on every device, 0 for free.
priority: [N] alike, among those that priority_of_op does not tell apart.
tensor_producer: [T] ascending.
tensor_bytes: [T].
alias_of_tensor: [T] the input of its producer whose memory a tensor has where it is made, -1 for memory of its own.
consumer_offset: [T + 1] where the consumers of every tensor begin.
consumer_op: [E] distinct and ascending within a tensor.
resident_bytes: [U] memory that stays on the unit's device.
streams: [D] ops that a device runs at once.
newest_first: [D] whether the op that became ready last runs first.
join_ns: [D] what a step takes longer when the device runs an op that takes time; the most of them counts.
dispatch_ns: [D] time of the host for each op that takes time there; none starts before it was dispatched.
link_latency_ns: [D, D] source, target; the diagonal is not read.
link_bytes_per_s: [D, D] the diagonal is not read.
channel_of_link: [D, D] in [0, D * D); the diagonal is not read.
link_tensor_ns: [D, D] from the end of a transfer until its tensor is there; the diagonal is not read.
link_send_ns: [D, D] time of the source that a transfer takes; the diagonal is not read.
link_send_ps_per_byte: [D, D] and picoseconds of it per byte.
link_receive_ns: [D, D] time of the target, alike.
link_receive_ps_per_byte: [D, D].
runtime_ns: [B] when everything has ended, and the most of join_ns on top.
peak_bytes: [B, D] most memory in use at a moment.
start_ns: [B, N] with a schedule, else [0, N].
end_ns: [B, N] with a schedule, else [0, N].
leg_start_ns: [B, 3, T, D] with legs, else [0, 3, T, D]: sending, crossing and receiving each tensor to each device;
  -1 for what does not happen. Legs come with a schedule only.
leg_end_ns: [B, 3, T, D] alike.
)doc");

}  // namespace
}  // namespace tf_placer
