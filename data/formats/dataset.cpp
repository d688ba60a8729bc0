// Memory of a split.
#include "bantam/data/formats/dataset.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

/// On the CPU or its stand-in.
Tensor host_tensor(Runtime& runtime, Device cpu, const Shape& shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  const AllocationTag tag{Category::input, "data set"};
  return {std::make_shared<Storage>(runtime.allocator(cpu), bytes, runtime.stream(cpu), tag), shape, dtype};
}

}  // namespace

Dataset::Dataset(Runtime& runtime, DatasetFacts facts) : Dataset(std::move(facts)) {
  images_ = host_tensor(runtime, Device::cpu(), facts_.image_shape.prepend(facts_.size), DType::uint8);
  labels_ = host_tensor(runtime, Device::cpu(), {facts_.size}, DType::int32);
}

std::shared_ptr<const Dataset> Dataset::stand_in(Runtime& runtime, DatasetFacts facts, Device device) {
  auto set = std::make_shared<Dataset>(std::move(facts));
  if (device.kind != DeviceKind::cpu) return set;
  const DatasetFacts& known = set->facts_;
  const Device cpu = device.whole();  // also where a share of it is trained on
  set->reserved_ = {host_tensor(runtime, cpu, known.image_shape.prepend(known.size), DType::uint8),
                    host_tensor(runtime, cpu, {known.size}, DType::int32)};
  return set;
}

Dataset::Dataset(DatasetFacts facts) : facts_(std::move(facts)) {
  if (facts_.image_shape.rank() != 3)
    throw ShapeError(fmt::format("images must be (height, width, channels), got {}", to_string(facts_.image_shape)));
  // Batches name images by 32-bit numbers.
  if (facts_.size < 0 || facts_.size > std::numeric_limits<std::int32_t>::max())
    throw DataError(fmt::format("a data set holds at most 2,147,483,647 images, not {}", facts_.size));
}

std::span<const std::uint8_t> Dataset::images() const {
  if (!has_data()) return {};
  return {images_.as<std::uint8_t>(), images_.bytes()};
}

std::span<const std::int32_t> Dataset::labels() const {
  if (!has_data()) return {};
  return {labels_.as<std::int32_t>(), static_cast<std::size_t>(size())};
}

}  // namespace bantam
