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

Tensor host_memory(Model& model) {
  const ParameterArena& parameters = model.parameters();
  const Shape shape{parameters.slot_elements() + parameters.trainable_elements()};
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * sizeof(float);
  const AllocationTag tag{Category::other, "histograms"};
  if (model.device().is_cuda())
    return {std::make_shared<Storage>(model.runtime().pinned_allocator(), bytes, Stream{}, tag), shape, DType::float32};
  auto memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
  auto storage = std::make_shared<Storage>(memory.get(), bytes, Device::cpu(),
                                           [](void* data) { delete[] static_cast<std::byte*>(data); });
  memory.release();  // NOLINT: the storage owns it
  return {std::move(storage), shape, DType::float32};
}

/// One parameter's place in the copy.
std::span<const float> values_of(const Parameter& parameter, const float* slot) {
  return {slot + parameter.offset(), static_cast<std::size_t>(parameter.shape().elements())};
}

WatchedUpdate histograms_of(const ParameterArena& parameters, const float* host, std::int64_t update,
                            double loss_scale) {
  WatchedUpdate watched{.update = update};
  for (const Parameter& parameter : parameters.all())
    watched.histograms.push_back({parameter.name(), false, histogram_of(values_of(parameter, host))});
  const float* gradients = host + parameters.slot_elements();
  for (const Parameter& parameter : parameters.all())
    if (!parameter.frozen())
      watched.histograms.push_back(
          {parameter.name(), true, histogram_of(values_of(parameter, gradients), 1.0 / loss_scale)});
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
  if (gradients.defined() && gradients.bytes() > 0)
    copy_bytes(to + weights.bytes(), gradients.data(), gradients.bytes(), stream);
  copied_.record(stream);
  update_ = update;
  loss_scale_.reset();
}

void WeightWatch::set_loss_scale(float loss_scale) { loss_scale_ = loss_scale; }

void WeightWatch::begin() {
  const auto compute = [this, update = *update_, scale = static_cast<double>(*loss_scale_)] {
    return histograms_of(model_.parameters(), host_.as<const float>(), update, scale);
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
