// Two copies a look, and a thread that reads them.
#include "bantam/run/log/weight_watch.h"

#include <chrono>
#include <memory>
#include <system_error>
#include <utility>

#include "bantam/base/error.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam::run {
namespace {

/// Where the slots lie in the copy, in bytes: float32 weights, those that are stored in 16 bits, then gradients.
struct SlotPlaces {
  explicit SlotPlaces(const ParameterArena& parameters)
      : halves(parameters.master().bytes()),
        has_halves(parameters.master().elements() < parameters.slot_elements()),
        gradients(halves + (has_halves ? parameters.compute().bytes() : 0)),
        end(gradients + static_cast<std::size_t>(parameters.trainable_elements()) * sizeof(float)) {}
  std::size_t halves;
  bool has_halves;
  std::size_t gradients, end;
};

Tensor host_memory(Model& model) {
  const std::size_t bytes = SlotPlaces(model.parameters()).end;
  const Shape shape{static_cast<std::int64_t>(bytes / sizeof(float))};  // slots have whole weight blocks
  const AllocationTag tag{Category::other, "histograms"};
  if (model.device().is_cuda())
    return {std::make_shared<Storage>(model.runtime().pinned_allocator(), bytes, Stream{}, tag), shape, DType::float32};
  auto memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
  auto storage = std::make_shared<Storage>(memory.get(), bytes, Device::cpu(),
                                           [](void* data) { delete[] static_cast<std::byte*>(data); });
  memory.release();  // NOLINT: the storage owns it
  return {std::move(storage), shape, DType::float32};
}

/// One parameter's weights in the copy, as floats.
std::vector<float> weights_of(const ParameterArena& parameters, const Parameter& parameter, const std::byte* host) {
  const Tensor weights = parameter.master();
  const auto elements = static_cast<std::size_t>(weights.elements());
  if (weights.dtype() == DType::float32) {
    const auto* const from = reinterpret_cast<const float*>(host) + (parameter.offset() - parameters.first_master());
    return {from, from + elements};
  }
  const auto* const from = reinterpret_cast<const Half*>(host + SlotPlaces(parameters).halves) + parameter.offset();
  return {from, from + elements};
}

/// One parameter's gradient in the copy.
std::span<const float> gradient_of(const Parameter& parameter, const float* slot) {
  return {slot + parameter.offset(), static_cast<std::size_t>(parameter.shape().elements())};
}

WatchedUpdate histograms_of(const ParameterArena& parameters, const std::byte* host, std::int64_t update,
                            double loss_scale) {
  WatchedUpdate watched{.update = update};
  for (const Parameter& parameter : parameters.all())
    watched.histograms.push_back({parameter.name(), false, histogram_of(weights_of(parameters, parameter, host))});
  const auto* const gradients = reinterpret_cast<const float*>(host + SlotPlaces(parameters).gradients);
  for (const Parameter& parameter : parameters.all())
    if (!parameter.frozen())
      watched.histograms.push_back(
          {parameter.name(), true, histogram_of(gradient_of(parameter, gradients), 1.0 / loss_scale)});
  return watched;
}

}  // namespace

WeightWatch::WeightWatch(Model& model) : model_(model), host_(host_memory(model)), copied_(model.device()) {}

WeightWatch::~WeightWatch() {
  try {
    copied_.synchronize();  // the device writes to this memory
  } catch (const Error&) {  // a broken device writes no more
  }
}

void WeightWatch::copy(std::int64_t update) {
  if (computed_.valid()) throw Error("weight watch: the update before was not collected");
  const Stream stream = model_.runtime().stream(model_.device());
  ParameterArena& parameters = model_.parameters();
  const Tensor &weights = parameters.master(), &gradients = parameters.gradient();
  auto* to = host_.as<std::byte>();
  copy_bytes(to, weights.data(), weights.bytes(), stream);
  const SlotPlaces places(parameters);
  if (places.has_halves)
    copy_bytes(to + places.halves, parameters.compute().data(), parameters.compute().bytes(), stream);
  if (gradients.defined() && gradients.bytes() > 0)
    copy_bytes(to + places.gradients, gradients.data(), gradients.bytes(), stream);
  copied_.record(stream);
  update_ = update;
  loss_scale_.reset();
}

void WeightWatch::set_loss_scale(float loss_scale) { loss_scale_ = loss_scale; }

void WeightWatch::begin() {
  const auto compute = [this, update = *update_, scale = static_cast<double>(*loss_scale_)] {
    return histograms_of(model_.parameters(), host_.as<const std::byte>(), update, scale);
  };
  try {
    computed_ = std::async(std::launch::async, compute);
  } catch (const std::system_error&) {  // no thread can be made: here, then
    std::promise<WatchedUpdate> here;
    here.set_value(compute());
    computed_ = here.get_future();
  }
}

std::optional<WatchedUpdate> WeightWatch::collect(bool wait) {
  if (!update_ || !loss_scale_) return std::nullopt;
  if (!computed_.valid()) {
    if (!wait && !copied_.done()) return std::nullopt;
    copied_.synchronize();
    begin();
  }
  if (!wait && computed_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return std::nullopt;
  update_.reset();
  return computed_.get();
}

}  // namespace bantam::run
