#include <type_traits>

#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/queue_interface.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/kernels/summary_interface.h"
#include "tensorflow/core/platform/errors.h"

namespace tf_placer {
namespace {

using tensorflow::HandleFromInput;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::ResourceHandle;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <class T>
absl::Status Hold(OpKernelContext* ctx, const ResourceHandle& handle) {
  T* found = nullptr;
  TF_RETURN_IF_ERROR((tensorflow::LookupResource<T, true>(ctx, handle, &found)));
  ResourceHandle held = ResourceHandle::MakeRefCountingHandle<T>(found, ctx->device()->name());
  Tensor* output = nullptr;
  TF_RETURN_IF_ERROR(ctx->allocate_output(0, TensorShape({}), &output));
  output->scalar<ResourceHandle>()() = held;
  return absl::OkStatus();
}

template <class T>
absl::Status List(OpKernelContext* ctx, const ResourceHandle& handle, const ResourceHandle& held) {
  if (!held.IsRefCounting()) return tensorflow::errors::InvalidArgument("held: it holds no resource");
  TF_ASSIGN_OR_RETURN(T * resource, held.GetResource<T>());
  tensorflow::ResourceMgr* list = ctx->resource_manager();
  T* listed = nullptr;
  if (list->Lookup<T, true>(handle.container(), handle.name(), &listed).ok()) {
    const bool is_same = listed == resource;
    listed->Unref();
    return is_same ? absl::OkStatus()
                   : tensorflow::errors::AlreadyExists("handle: there is another resource ", handle.name());
  }
  // As TensorFlow does: a variable lives as long as its handles, the others until they are deleted from the list.
  if (handle.IsRefCounting()) return list->CreateUnowned<T>(handle.container(), handle.name(), resource);
  resource->Ref();
  return list->Create<T>(handle.container(), handle.name(), resource);
}

// Calls `use` with a null pointer of the type of the handle's resource.
template <class T, class... Others, class Use>
absl::Status WithType(const ResourceHandle& handle, const Use& use) {
  if (handle.ValidateType<T>().ok()) return use(static_cast<T*>(nullptr));
  if constexpr (sizeof...(Others) > 0) {
    return WithType<Others...>(handle, use);
  } else {
    return tensorflow::errors::Unimplemented("handle: expected a variable, a table, a queue or a summary writer, got ",
                                             handle.maybe_type_name());
  }
}

template <class Use>
absl::Status WithKnownType(const ResourceHandle& handle, const Use& use) {
  return WithType<tensorflow::Var, tensorflow::lookup::LookupInterface, tensorflow::QueueInterface,
                  tensorflow::SummaryWriterInterface>(handle, use);
}

class HoldResourceOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const ResourceHandle& handle = HandleFromInput(ctx, 0);
    OP_REQUIRES_OK(ctx, WithKnownType(handle, [&](auto* type) {
                     return Hold<std::remove_pointer_t<decltype(type)>>(ctx, handle);
                   }));
  }
};

class ListResourceOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const ResourceHandle& handle = HandleFromInput(ctx, 0);
    const ResourceHandle& held = HandleFromInput(ctx, 1);
    OP_REQUIRES_OK(ctx, WithKnownType(handle, [&](auto* type) {
                     return List<std::remove_pointer_t<decltype(type)>>(ctx, handle, held);
                   }));
  }
};

REGISTER_KERNEL_BUILDER(Name("TfPlacerHoldResource")
                            .Device(tensorflow::DEVICE_DEFAULT)
                            .HostMemory("handle")
                            .HostMemory("held"),
                        HoldResourceOp);
REGISTER_KERNEL_BUILDER(Name("TfPlacerListResource")
                            .Device(tensorflow::DEVICE_DEFAULT)
                            .HostMemory("handle")
                            .HostMemory("held"),
                        ListResourceOp);

}  // namespace
}  // namespace tf_placer
