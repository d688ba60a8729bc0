// Memory of a split.
#include "bantam/data/dataset.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

Tensor host_tensor(Runtime& runtime, Device host, const Shape& shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  const AllocationTag tag{Category::input, "data set"};
  return {std::make_shared<Storage>(runtime.allocator(host), bytes, runtime.stream(host), tag), shape, dtype};
}

}  // namespace

Dataset::Dataset(Runtime& runtime, DatasetFacts facts, Device host) : Dataset(std::move(facts)) {
  const Shape& image = facts_.image_shape;
  images_ = host_tensor(runtime, host, {facts_.size, image[0], image[1], image[2]}, DType::uint8);
  labels_ = host_tensor(runtime, host, {facts_.size}, DType::int32);
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
