#include "simulator_tensors.h"

#include <tuple>

#include "tensorflow/core/platform/errors.h"

namespace tf_placer {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status CheckShape(OpKernelContext* ctx, int input, const char* name, const TensorShape& expected) {
  if (ctx->input(input).shape() == expected) return absl::OkStatus();
  return tensorflow::errors::InvalidArgument(name, ": expected shape ", expected.DebugString(), ", got ",
                                             ctx->input(input).shape().DebugString());
}

absl::Status CheckSimulatorShapes(OpKernelContext* ctx, int first, int64_t units, int64_t orders) {
  const int64_t ops = ctx->input(first + kUnitOfOp).NumElements();
  const int64_t tensors = ctx->input(first + kTensorProducer).NumElements();
  const int64_t consumers = ctx->input(first + kConsumerOp).NumElements();
  const int64_t devices = ctx->input(first + kStreams).NumElements();
  for (const int64_t size : {units, ops, tensors, consumers}) {
    if (size >= INT32_MAX) {
      return tensorflow::errors::InvalidArgument("expected fewer than 2^31 - 1 units, ops, tensors and ",
                                                 "consumers, got ", size);
    }
  }
  const auto of_orders = [orders](TensorShape shape) {
    if (orders > 0) shape.InsertDim(0, orders);
    return shape;
  };
  const std::vector<std::tuple<int, const char*, TensorShape>> expected = {
      {kUnitOfOp, "unit_of_op", TensorShape({ops})},
      {kComputeNs, "compute_ns", of_orders(TensorShape({ops, devices}))},
      {kPriority, "priority", of_orders(TensorShape({ops}))},
      {kTensorProducer, "tensor_producer", TensorShape({tensors})},
      {kTensorBytes, "tensor_bytes", TensorShape({tensors})},
      {kAliasOfTensor, "alias_of_tensor", TensorShape({tensors})},
      {kConsumerOffset, "consumer_offset", TensorShape({tensors + 1})},
      {kConsumerOp, "consumer_op", TensorShape({consumers})},
      {kResidentBytes, "resident_bytes", TensorShape({units})},
      {kStreams, "streams", TensorShape({devices})},
      {kNewestFirst, "newest_first", of_orders(TensorShape({devices}))},
      {kJoinNs, "join_ns", TensorShape({devices})},
      {kDispatchNs, "dispatch_ns", of_orders(TensorShape({devices}))},
      {kLinkLatencyNs, "link_latency_ns", TensorShape({devices, devices})},
      {kLinkBytesPerS, "link_bytes_per_s", of_orders(TensorShape({devices, devices}))},
      {kChannelOfLink, "channel_of_link", TensorShape({devices, devices})},
      {kLinkTensorNs, "link_tensor_ns", of_orders(TensorShape({devices, devices}))},
      {kLinkSendNs, "link_send_ns", TensorShape({devices, devices})},
      {kLinkSendPsPerByte, "link_send_ps_per_byte", TensorShape({devices, devices})},
      {kLinkReceiveNs, "link_receive_ns", TensorShape({devices, devices})},
      {kLinkReceivePsPerByte, "link_receive_ps_per_byte", TensorShape({devices, devices})},
  };
  for (const auto& [input, name, shape] : expected) {
    TF_RETURN_IF_ERROR(CheckShape(ctx, first + input, name, shape));
  }
  return absl::OkStatus();
}

SimulatorArrays ArraysOf(OpKernelContext* ctx, int first, int64_t order) {
  const auto int32s = [&](int input) { return ctx->input(first + input).flat<int32_t>().data(); };
  const auto int64s = [&](int input) { return ctx->input(first + input).flat<int64_t>().data(); };
  SimulatorArrays arrays;
  arrays.num_ops = ctx->input(first + kUnitOfOp).NumElements();
  arrays.num_units = ctx->input(first + kResidentBytes).NumElements();
  arrays.num_tensors = ctx->input(first + kTensorProducer).NumElements();
  arrays.num_consumers = ctx->input(first + kConsumerOp).NumElements();
  arrays.num_devices = ctx->input(first + kStreams).NumElements();
  arrays.unit_of_op = int32s(kUnitOfOp);
  const int64_t devices = arrays.num_devices;
  arrays.compute_ns = int64s(kComputeNs) + order * arrays.num_ops * devices;
  arrays.priority = int32s(kPriority) + order * arrays.num_ops;
  arrays.tensor_producer = int32s(kTensorProducer);
  arrays.tensor_bytes = int64s(kTensorBytes);
  arrays.alias_of_tensor = int32s(kAliasOfTensor);
  arrays.consumer_offset = int32s(kConsumerOffset);
  arrays.consumer_op = int32s(kConsumerOp);
  arrays.resident_bytes = int64s(kResidentBytes);
  arrays.streams = int32s(kStreams);
  arrays.newest_first = ctx->input(first + kNewestFirst).flat<bool>().data() + order * devices;
  arrays.join_ns = int64s(kJoinNs);
  arrays.dispatch_ns = int64s(kDispatchNs) + order * devices;
  arrays.link_latency_ns = int64s(kLinkLatencyNs);
  arrays.link_bytes_per_s = int64s(kLinkBytesPerS) + order * devices * devices;
  arrays.channel_of_link = int32s(kChannelOfLink);
  arrays.link_tensor_ns = int64s(kLinkTensorNs) + order * devices * devices;
  arrays.link_send_ns = int64s(kLinkSendNs);
  arrays.link_send_ps_per_byte = int64s(kLinkSendPsPerByte);
  arrays.link_receive_ns = int64s(kLinkReceiveNs);
  arrays.link_receive_ps_per_byte = int64s(kLinkReceivePsPerByte);
  return arrays;
}

absl::Status CheckDevices(const char* name, const Tensor& device_of_unit, int64_t num_devices) {
  const auto devices = device_of_unit.flat<int32_t>();
  const int64_t units = device_of_unit.dim_size(1);
  for (int64_t i = 0; i < devices.size(); ++i) {
    if (devices(i) >= 0 && devices(i) < num_devices) continue;
    return tensorflow::errors::InvalidArgument(name, "[", i / units, ",", i % units, "]: expected a device in [0, ",
                                               num_devices, "), got ", devices(i));
  }
  return absl::OkStatus();
}

}  // namespace tf_placer
