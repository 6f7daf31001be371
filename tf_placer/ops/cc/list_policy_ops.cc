#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_placer {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status PlaceByListShape(InferenceContext* c) {
  ShapeHandle coefficients, legal;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 2, &coefficients));
  TF_RETURN_IF_ERROR(c->WithRank(c->input(1), 2, &legal));
  c->set_output(0, c->Matrix(c->Dim(coefficients, 0), c->Dim(legal, 0)));
  return absl::OkStatus();
}

REGISTER_OP("TfPlacerPlaceByList")
    .Attr("passes: int >= 1")
    .Input("coefficients: double")
    .Input("legal: bool")
    .Input("work: double")
    .Input("slowness: double")
    .Input("memory: double")
    .Input("window: double")
    .Input("context: double")
    .Input("order_features: double")
    .Input("neighbor_offset: int32")
    .Input("neighbor: int32")
    .Input("neighbor_bytes: double")
    .Input("link_fixed: double")
    .Input("link_per_byte: double")
    .Output("device_of_node: int32")
    .SetShapeFn(PlaceByListShape)
    .Doc(R"doc(
Places nodes one after the other by rules of list scheduling, a batch of rules on TensorFlow's threads.

The rule, what it looks at and in which units is in tf_placer/ops/cc/list_policy.h; the same in Python is
tf_placer/ops/reference_list_policy.py.

passes: how often each node is decided.
coefficients: [B, P] of each rule.
legal: [V, D] where a node may be.
work: [V, D].
slowness: [V, D].
memory: [V, D].
window: [V, T].
context: [V, C].
order_features: [V, K].
neighbor_offset: [V + 1] where the neighbors of every node begin.
neighbor: [E] nodes.
neighbor_bytes: [E].
link_fixed: [D, D] source, target.
link_per_byte: [D, D].
device_of_node: [B, V].
)doc");

}  // namespace
}  // namespace tf_placer
