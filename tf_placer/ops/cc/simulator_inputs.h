// Inputs of the ops that simulate: the arrays of a graph and a cluster, as an op is registered with them.

#ifndef TF_PLACER_OPS_CC_SIMULATOR_INPUTS_H_
#define TF_PLACER_OPS_CC_SIMULATOR_INPUTS_H_

#define TF_PLACER_SIMULATOR_INPUTS \
  .Input("unit_of_op: int32") \
  .Input("compute_ns: int64") \
  .Input("priority: int32") \
  .Input("tensor_producer: int32") \
  .Input("tensor_bytes: int64") \
  .Input("alias_of_tensor: int32") \
  .Input("consumer_offset: int32") \
  .Input("consumer_op: int32") \
  .Input("resident_bytes: int64") \
  .Input("streams: int32") \
  .Input("newest_first: bool") \
  .Input("join_ns: int64") \
  .Input("dispatch_ns: int64") \
  .Input("link_latency_ns: int64") \
  .Input("link_bytes_per_s: int64") \
  .Input("channel_of_link: int32") \
  .Input("link_tensor_ns: int64") \
  .Input("link_send_ns: int64") \
  .Input("link_send_ps_per_byte: int64") \
  .Input("link_receive_ns: int64") \
  .Input("link_receive_ps_per_byte: int64")

#define TF_PLACER_SIMULATOR_INPUTS_DOC \
  "unit_of_op: [N] unit of every op; ops are in topological order.\n" \
  "compute_ns: [N, D] time of every op on every device, 0 for free.\n" \
  "priority: [N] lower runs first among the ready ops of a device, but for an order of the placement's own.\n" \
  "tensor_producer: [T] ascending.\n" \
  "tensor_bytes: [T].\n" \
  "alias_of_tensor: [T] the input of its producer whose memory a tensor has where it is made, the tensor itself for memory\n" \
  "  that is there for the whole step, -1 for memory of its own.\n" \
  "consumer_offset: [T + 1] where the consumers of every tensor begin.\n" \
  "consumer_op: [E] distinct and ascending within a tensor.\n" \
  "resident_bytes: [U] memory that stays on the unit's device.\n" \
  "streams: [D] ops that a device runs at once.\n" \
  "newest_first: [D] whether the op that became ready last runs first.\n" \
  "join_ns: [D] what a step takes longer when the device runs an op that takes time; the most of them counts.\n" \
  "dispatch_ns: [D] time of the host for each op that takes time there; none starts before it was dispatched.\n" \
  "link_latency_ns: [D, D] source, target; the diagonal is not read.\n" \
  "link_bytes_per_s: [D, D] the diagonal is not read.\n" \
  "channel_of_link: [D, D] in [0, D * D); the diagonal is not read.\n" \
  "link_tensor_ns: [D, D] from the end of a transfer until its tensor is there; the diagonal is not read.\n" \
  "link_send_ns: [D, D] time of the source that a transfer takes; the diagonal is not read.\n" \
  "link_send_ps_per_byte: [D, D] and picoseconds of it per byte.\n" \
  "link_receive_ns: [D, D] time of the target, alike.\n" \
  "link_receive_ps_per_byte: [D, D].\n"

#endif  // TF_PLACER_OPS_CC_SIMULATOR_INPUTS_H_
