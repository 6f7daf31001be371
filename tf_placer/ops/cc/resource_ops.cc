#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

namespace tf_placer {
namespace {

REGISTER_OP("TfPlacerHoldResource")
    .Input("handle: resource")
    .Output("held: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(R"doc(
Keeps a resource alive, whatever becomes of the device's list of resources.

handle: Of a variable, a table, a queue or a summary writer.
held: Another handle, which the resource lives as long as.
)doc");

REGISTER_OP("TfPlacerListResource")
    .Input("handle: resource")
    .Input("held: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(R"doc(
Enters a resource in the device's list of resources, under the name that a handle has for it.

handle: Of the resource, from the time of another list.
held: What TfPlacerHoldResource gave for it then.
)doc");

}  // namespace
}  // namespace tf_placer
