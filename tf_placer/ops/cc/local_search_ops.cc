#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tf_placer {
namespace {

using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status AdvanceLocalSearchShape(InferenceContext* c) {
  ShapeHandle rounds, state;
  TF_RETURN_IF_ERROR(c->WithRank(c->input(0), 1, &rounds));
  for (int i = 0; i < 4; ++i) {
    TF_RETURN_IF_ERROR(c->WithRank(c->input(1 + i), 2, &state));
    c->set_output(i, state);
  }
  c->set_output(4, c->MakeShape({c->Dim(rounds, 0), c->UnknownDim(), c->UnknownDim()}));
  return absl::OkStatus();
}

REGISTER_OP("TfPlacerAdvanceLocalSearch")
    .Attr("crossing_chance: int")
    .Attr("towards_chance: int")
    .Attr("swap_chance: int")
    .Attr("kind_chance: int")
    .Attr("copies_chance: int = 0")
    .Attr("together_chance: int = 0")
    .Attr("path_chance: int = 0")
    .Attr("draws: int = 1")
    .Attr("uniform_chance: int = 0")
    .Attr("keep_edits: bool = false")
    .Input("rounds: int64")
    .Input("device_of_unit: int32")
    .Input("best_device_of_unit: int32")
    .Input("late_ns: int64")
    .Input("counts: int64")
    .Input("edges: int32")
    .Input("neighbor_offset: int32")
    .Input("neighbors: int32")
    .Input("work_before: int64")
    .Input("piece_sizes: int32")
    .Input("allowed: bool")
    .Input("kind_of_unit: int32")
    .Input("part_of_unit: int32")
    .Input("copies: int32")
    .Input("turned: int32")
    .Input("capacity_bytes: int64")
    .Input("scorer_weights: float")
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
    .Output("device_of_unit_after: int32")
    .Output("best_device_of_unit_after: int32")
    .Output("late_ns_after: int64")
    .Output("counts_after: int64")
    .Output("edits: float")
    .SetShapeFn(AdvanceLocalSearchShape)
    .Doc(R"doc(
Makes some rounds more of chains of local search in the simulator, each chain on a thread.

The search is that of tf_placer/planners/local_search.py, the simulator that of
tf_placer/ops/reference_simulator.py. A chain's state goes in and comes out, and nothing else
is remembered: many short calls give what one long call gives. Steps are timed under O orders;
a time is the sum over them, 2^63 - 1 where the placement does not fit. What is no state is
examined once: a kernel keeps what it prepared while it is given the same tensors again.

crossing_chance: of 2^32, that a piece grows from an end of an edge that crosses.
towards_chance: of 2^32, that such a piece goes to the device of the other end.
swap_chance: of 2^32, that a piece of the target comes back for it.
kind_chance: of 2^32, that the pieces of a move are each of units of one kind.
copies_chance: of 2^32, that the copies of a piece for other parts of the batch go along, and nothing comes back.
together_chance: of 2^32, that such copies go to the piece's device, and not as many places on as their parts.
path_chance: of 2^32, that a piece grows from the critical path of the first order's schedule.
draws: of each round, of which the one is tried that scores highest.
uniform_chance: of 2^32, that a round draws one alone.
keep_edits: whether `edits` is written.
rounds: [C] rounds to make; a chain's first round times where it begins, each later one tries a move.
device_of_unit: [C, U] where each chain is.
best_device_of_unit: [C, U] the fastest it was at.
late_ns: [C, L] where it was in its last L rounds, or better; a ring.
counts: [C, 4] time of where it is, time of the fastest, rounds made, state of its random numbers.
edges: [E, 2] pairs of units; a piece may grow from an end of one that crosses devices.
neighbor_offset: [U + 1] where the neighbors of every unit begin.
neighbors: [K] units that a piece may grow to.
work_before: [U + 1] ascending from 0; a unit is drawn in proportion to the step from its number to the next.
piece_sizes: [S] drawn from, each at least 1.
allowed: [U, D] where a unit may be.
kind_of_unit: [U] any numbers.
part_of_unit: [U] the part of the batch that a unit is a copy for, -1 for none.
copies: [U, P] a unit's copy for each other part, -1 for none; no columns where the batch is whole.
turned: [D, P] the device so many places after each among those of its type, around.
capacity_bytes: [D] memory of every device.
scorer_weights: of the network that scores (tf_placer/ops/cc/edit_scorer.h); none where one is drawn alone.
unit_of_op: [N] unit of every op; ops are in topological order.
compute_ns: [O, N, D] time of every op on every device in each order, 0 for free.
priority: [O, N] lower runs first among the ready ops of a device, in each order.
tensor_producer: [T] ascending.
tensor_bytes: [T].
alias_of_tensor: [T] the input of its producer whose memory a tensor has where it is made, -1 for memory of its own.
consumer_offset: [T + 1] where the consumers of every tensor begin.
consumer_op: [E] distinct and ascending within a tensor.
resident_bytes: [U] memory that stays on the unit's device.
streams: [D] ops that a device runs at once.
newest_first: [O, D] whether the op that became ready last runs first, in each order.
join_ns: [D] what a step takes longer when the device runs an op that takes time; the most of them counts.
dispatch_ns: [O, D] time of the host for each op that takes time there; none starts before it was dispatched.
link_latency_ns: [D, D] source, target; the diagonal is not read.
link_bytes_per_s: [O, D, D] the diagonal is not read.
channel_of_link: [D, D] in [0, D * D); the diagonal is not read.
link_tensor_ns: [O, D, D] from the end of a transfer until its tensor is there; the diagonal is not read.
link_send_ns: [D, D] time of the source that a transfer takes; the diagonal is not read.
link_send_ps_per_byte: [D, D] and picoseconds of it per byte.
link_receive_ns: [D, D] time of the target, alike.
link_receive_ps_per_byte: [D, D].
device_of_unit_after: [C, U].
best_device_of_unit_after: [C, U].
late_ns_after: [C, L].
counts_after: [C, 4].
edits: [C, R, F + 1] features of what each round tried, and the share of the step that it gained; zeros where it tried
  nothing.
)doc");

}  // namespace
}  // namespace tf_placer
