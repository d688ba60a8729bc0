// Copies of a registry's tensors in one block of host memory, and files written from it.
#include "bantam/engine/train/state_snapshot.h"

#include <memory>
#include <span>

#include "bantam/base/error.h"
#include "bantam/engine/train/tensor_files.h"

namespace bantam {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Tensor bytes_from(std::shared_ptr<Storage> storage) {
  const Shape shape{static_cast<std::int64_t>(storage->bytes())};
  return {std::move(storage), shape, DType::uint8};
}

/// No part of a run's memory: the plan checks that the host has room for it.
Tensor plain_memory(std::size_t bytes) {
  auto memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
  Tensor tensor = bytes_from(std::make_shared<Storage>(memory.get(), bytes, Device::cpu(),
                                                       [](void* data) { delete[] static_cast<std::byte*>(data); }));
  memory.release();  // NOLINT: the storage owns it
  return tensor;
}

/// The entry's name in a file of weights; empty for entries that are not the model's below `prefix`.
std::string_view weight_name(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  for (const std::string_view kind : {"weights/", "buffers/"})
    if (name.starts_with(kind)) return name.substr(kind.size());
  return {};
}

}  // namespace

std::uint64_t StateSnapshot::bytes_of(const StateRegistry& registry) {
  std::uint64_t bytes = kAlignment;  // never nothing
  for (const StateEntry& entry : registry.tensors()) bytes += aligned(entry.tensor.bytes());
  return bytes;
}

StateSnapshot::StateSnapshot(const StateRegistry& registry, Stream stream)
    : registry_(registry), stream_(stream), host_(plain_memory(bytes_of(registry))), copied_(stream.device) {
  place_tensors();
}

StateSnapshot::StateSnapshot(const StateRegistry& registry, Runtime& runtime, Device device)
    : registry_(registry), stream_(runtime.stream(device)), copied_(device) {
  const std::size_t bytes = bytes_of(registry);
  host_ = device.is_cuda() ? bytes_from(std::make_shared<Storage>(runtime.pinned_allocator(), bytes, Stream{},
                                                                  AllocationTag{Category::other, "checkpoint"}))
                           : plain_memory(bytes);
  place_tensors();
}

StateSnapshot::~StateSnapshot() {
  wait();  // the device writes to this memory
}

void StateSnapshot::place_tensors() {
  std::size_t offset = 0;
  for (const StateEntry& entry : registry_.tensors()) {
    if (entry.tensor.device().meta) throw DeviceError("a tensor on a meta device has no values to save");
    places_.push_back({entry.name, entry.tensor, offset});
    offset += aligned(entry.tensor.bytes());
  }
}

void StateSnapshot::copy() {
  for (const Place& place : places_)
    if (place.tensor.bytes() > 0)
      copy_bytes(host_.as<std::byte>() + place.offset, place.tensor.data(), place.tensor.bytes(), stream_);
  copied_.record(stream_);
}

void StateSnapshot::read_host() {
  counters_.clear();
  numbers_.clear();
  for (const auto& counter : registry_.counters()) counters_.emplace_back(counter.name, counter.get());
  for (const auto& numbers : registry_.numbers()) numbers_.emplace_back(numbers.name, numbers.get());
}

NamedTensor StateSnapshot::view(const Place& place, std::string_view name) const {
  return {std::string(name), place.tensor.dtype(), place.tensor.shape(),
          std::span(host_.as<const std::byte>() + place.offset, place.tensor.bytes())};
}

void StateSnapshot::write(AtomicFile& file) const {
  std::vector<NamedTensor> tensors;
  for (const Place& place : places_) tensors.push_back(view(place, place.name));
  for (const auto& [name, value] : counters_)
    tensors.push_back({name, DType::int64, Shape{}, std::as_bytes(std::span(&value, 1))});
  for (const auto& [name, values] : numbers_)
    tensors.push_back(
        {name, DType::float64, Shape{static_cast<std::int64_t>(values.size())}, std::as_bytes(std::span(values))});
  write_safetensors(file, std::move(tensors), metadata_);
}

std::vector<NamedTensor> StateSnapshot::model_below(std::string_view prefix) const {
  std::vector<NamedTensor> tensors;
  for (const Place& place : places_)
    if (const std::string_view name = weight_name(place.name, prefix); !name.empty())
      tensors.push_back(view(place, name));
  return tensors;
}

void StateSnapshot::set_metadata(std::map<std::string, std::string> of_all,
                                 std::map<std::string, std::string> of_weights) {
  metadata_ = std::move(of_all);
  metadata_["format"] = "bantam";
  weights_metadata_ = std::move(of_weights);
}

std::map<std::string, std::string> StateSnapshot::metadata_with(std::map<std::string, std::string> more) const {
  more.insert(metadata_.begin(), metadata_.end());
  more.insert(weights_metadata_.begin(), weights_metadata_.end());
  return more;
}

void StateSnapshot::write_weights(AtomicFile& file, const std::map<std::string, std::string>& more) const {
  write_safetensors(file, model_below(""), metadata_with(more));
}

void StateSnapshot::write_average(AtomicFile& file, const std::map<std::string, std::string>& more) const {
  std::vector<NamedTensor> tensors = model_below("ema/");
  if (tensors.empty()) throw Error("the state has no averages of weights");
  write_safetensors(file, std::move(tensors), metadata_with(more));
}

}  // namespace bantam
