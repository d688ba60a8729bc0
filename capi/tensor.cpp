// Tensors on devices: made of arrays, handed to and accepted from other libraries, and used by models.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/capi/arrays.h"
#include "bantam/capi/batches.h"
#include "bantam/capi/handles.h"
#include "bantam/capi/status.h"
#include "bantam/engine/interop/dlpack.h"
#include "bantam/engine/interop/dlpack_abi.h"

using namespace bantam;
using namespace bantam::capi;

namespace {

bantam_tensor* handle(std::shared_ptr<Runtime> runtime, Tensor tensor, Stream stream,
                      std::shared_ptr<void> owner = nullptr) {
  return new bantam_tensor{std::move(runtime), std::move(owner), std::move(tensor), stream, false, {}};
}

bantam_tensor* created(bantam_engine& engine, Device device, const HostArray& values) {
  const Context context = Context::make(*engine.runtime, device);
  Tensor tensor = context.upload_bytes(values.shape, values.dtype, values.data, Category::input);
  synchronize(context.stream);  // the caller may change its memory when we return, page-locked memory too
  return handle(engine.runtime, std::move(tensor), context.stream);
}

bantam_tensor_info info_of(const Tensor& tensor) {
  bantam_tensor_info info = BANTAM_INIT(bantam_tensor_info);
  info.dtype = static_cast<std::int32_t>(tensor.dtype());
  info.rank = tensor.shape().rank();
  for (int axis = 0; axis < info.rank; ++axis) info.shape[axis] = tensor.shape()[axis];
  info.data = tensor.data();
  info.bytes = tensor.bytes();
  const DlpackDevice device = dlpack_device(tensor.device());
  info.dlpack_device_type = device.type;
  info.dlpack_device_id = device.id;
  copy_text(info.device, sizeof info.device, to_string(tensor.device()));
  return info;
}

void* exported(const bantam_tensor& tensor, const std::int64_t* stream, bool versioned) {
  // The struct keeps what the handle kept: the memory's owner before the runtime.
  auto kept =
      std::make_shared<std::pair<std::shared_ptr<Runtime>, std::shared_ptr<void>>>(tensor.runtime, tensor.owner);
  DlpackExport options{.producer = tensor.stream, .read_only = tensor.read_only, .keep_alive = std::move(kept)};
  if (stream != nullptr) options.consumer = *stream;
  if (versioned) return to_dlpack(tensor.tensor, options);
  return to_dlpack_unversioned(tensor.tensor, options);
}

Tensor imported(void* managed, bool versioned, Stream consumer) {
  const DlpackImport options{.consumer = consumer};
  if (versioned) return from_dlpack(static_cast<DLManagedTensorVersioned*>(managed), options);
  return from_dlpack(static_cast<DLManagedTensor*>(managed), options);
}

/// A tensor of another engine lies in memory that is ordered by another stream.
void check_engine(const bantam_tensor& tensor, const bantam_model& model, const std::string& name) {
  if (tensor.runtime != model.runtime)
    throw BadArgument(fmt::format("tensor '{}' is of another engine than the model: make it with the model's", name));
}

/// The tensors as the step of a model that trains reads them, images in the type that it computes in. Throws as the
/// step's check.
Batch batch_of(const bantam_model& model, const std::vector<std::string>& names, const bantam_tensor* const* tensors) {
  TrainingSession& session = *model.session;
  const Context context = session.model().context(Pass::evaluate).at(session.model().runtime().intern("input"));
  std::vector<TensorFacts> facts;
  Batch batch;
  for (std::size_t i = 0; i < names.size(); ++i) {
    check_engine(required(tensors[i], "tensors[i]"), model, names[i]);
    const Tensor& tensor = tensors[i]->tensor;
    context.check_device("bantam_model_step_tensors", {&tensor});
    if (tensor.shape().rank() == 0) throw BadArgument(fmt::format("tensor '{}' has no axis of samples", names[i]));
    if (i == 0) batch.size = tensor.shape()[0];
    if (tensor.shape()[0] != batch.size || batch.size < 1)
      throw BadArgument(
          fmt::format("tensor '{}' has {} samples, and '{}' {}", names[i], tensor.shape()[0], names[0], batch.size));
    const bool images = names[i] == kImages;
    if (images && tensor.dtype() != DType::float32)
      throw DTypeError(fmt::format("images are {}; expected float32", bantam::to_string(tensor.dtype())));
    facts.push_back({.name = names[i],
                     .shape = tensor.shape().without_first(),
                     .dtype = images ? std::nullopt : std::optional(tensor.dtype())});
    batch.tensors.set(names[i], images ? ops::cast(context, tensor, context.precision.compute()) : tensor);
  }
  for (const TensorFacts& target : targets_of(session.step().loss(), session.model().graph().output_shape()))
    for (TensorFacts& known : facts)
      if (known.name == target.name) known.classes = target.classes;
  session.step().check_fits(facts, "batch's");
  for (const std::string& name : names)
    require_read(name, session.step().loss(), session.model().graph().output_shape(), "batch's");
  return batch;
}

Tensor forward(Model& model, const Tensor& input) {
  const Context context = model.context(Pass::evaluate);
  context.check_device("bantam_model_forward", {&input});
  if (input.shape().rank() == 0 || input.shape().without_first() != model.graph().input_shape())
    throw ShapeError(fmt::format("the input is {}, the network reads (samples, …) of {}", to_string(input.shape()),
                                 to_string(model.graph().input_shape())));
  const Tensor output = model.forward(context, ops::cast(context, input, context.precision.compute()));
  return ops::cast(context, output, DType::float32);
}

}  // namespace

bantam_status bantam_tensor_create(bantam_engine* engine, const char* device, const bantam_array* values,
                                   bantam_tensor** tensor) {
  return guarded([&] {
    required(tensor, "tensor") = nullptr;
    *tensor = created(required(engine, "engine"), device_named(device), read_array(required(values, "values")));
  });
}

void bantam_tensor_destroy(bantam_tensor* tensor) {
  destroy(tensor, "bantam_tensor_destroy: this is no handle of the program's");
}

bantam_status bantam_tensor_get_info(const bantam_tensor* tensor, bantam_tensor_info* info) {
  return guarded([&] { write_struct(&required(info, "info"), info_of(required(tensor, "tensor").tensor), "info"); });
}

bantam_status bantam_tensor_read(const bantam_tensor* tensor, void* to, size_t bytes) {
  return guarded([&] {
    const bantam_tensor& read = required(tensor, "tensor");
    if (bytes != read.tensor.bytes())
      throw BadArgument(fmt::format("bytes is {}; expected {}: those of {} {}", bytes, read.tensor.bytes(),
                                    to_string(read.tensor.shape()), bantam::to_string(read.tensor.dtype())));
    copy_bytes(&required(static_cast<char*>(to), "to"), read.tensor.data(), bytes, read.stream);
    synchronize(read.stream);
  });
}

bantam_status bantam_tensor_to_dlpack(const bantam_tensor* tensor, const int64_t* stream, int32_t versioned,
                                      void** managed) {
  return guarded([&] {
    required(managed, "managed") = nullptr;
    *managed = exported(required(tensor, "tensor"), stream, versioned != 0);
  });
}

bantam_status bantam_tensor_from_dlpack(bantam_engine* engine, const char* device, void* managed, int32_t versioned,
                                        bantam_tensor** tensor) {
  return guarded([&] {
    required(tensor, "tensor") = nullptr;
    required(static_cast<char*>(managed), "managed");
    const std::shared_ptr<Runtime>& runtime = required(engine, "engine").runtime;
    const Stream consumer = runtime->stream(device_named(device));
    auto made = std::unique_ptr<bantam_tensor>(handle(runtime, {}, consumer));
    made->read_only =
        versioned != 0 && (static_cast<DLManagedTensorVersioned*>(managed)->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    made->tensor = imported(managed, versioned != 0, consumer);
    *tensor = made.release();
  });
}

bantam_status bantam_engine_dlpack_stream(bantam_engine* engine, const char* device, int64_t* stream) {
  return guarded([&] {
    required(stream, "stream") =
        dlpack_stream(required(engine, "engine").runtime->stream(device_named(device))).value_or(0);
  });
}

bantam_status bantam_model_step_tensors(bantam_model* model, const char* const* names,
                                        const bantam_tensor* const* tensors, size_t count, bantam_metrics* metrics) {
  return guarded([&] {
    bantam_model& trained = required(model, "model");
    (void)training(trained, "bantam_model_step_tensors");
    require_no_micro_batch(trained, "bantam_model_step_tensors");
    if (count == 0) throw BadArgument("expected at least one tensor, got none");
    required(tensors, "tensors");
    run_step(trained, batch_of(trained, texts(names, count, "names"), tensors), metrics);
  });
}

bantam_status bantam_model_forward(bantam_model* model, const bantam_tensor* input, bantam_tensor** output) {
  return guarded([&] {
    bantam_model& asked = required(model, "model");
    required(output, "output") = nullptr;
    Model& network = training(asked, "bantam_model_forward").model();
    check_engine(required(input, "input"), asked, "input");
    *output = handle(asked.runtime, forward(network, input->tensor), network.context(Pass::evaluate).stream);
  });
}

bantam_status bantam_model_parameter_names(bantam_model* model, char** json) {
  return guarded([&] {
    std::vector<std::string> names;
    for (const Parameter& parameter :
         training(required(model, "model"), "bantam_model_parameter_names").model().parameters().all())
      names.push_back(parameter.name());
    return_text(json, "json", json_text(nlohmann::ordered_json(names)));
  });
}

bantam_status bantam_model_parameter(bantam_model* model, const char* name, bantam_tensor** tensor) {
  return guarded([&] {
    bantam_model& asked = required(model, "model");
    required(tensor, "tensor") = nullptr;
    Model& network = training(asked, "bantam_model_parameter").model();
    const Parameter* parameter = network.parameters().find(&required(name, "name"));
    if (parameter == nullptr) throw BadArgument(fmt::format("the network has no parameter '{}'", name));
    *tensor = handle(asked.runtime, parameter->master(), network.context(Pass::evaluate).stream, asked.session);
  });
}
