// Checked extents.
#include "bantam/base/shape.h"

#include <algorithm>
#include <limits>

#include "bantam/base/error.h"

namespace bantam {

Shape::Shape(std::initializer_list<std::int64_t> extents) : Shape(std::span(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) {
  if (extents.size() > kMaxRank) throw ShapeError("a shape has at most 8 axes, got " + std::to_string(extents.size()));
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) {
    if (extent < 0) throw ShapeError("a shape's extents are not negative, got " + std::to_string(extent));
    if (__builtin_mul_overflow(product, std::max<std::int64_t>(extent, 1), &product) ||
        product > std::numeric_limits<std::int64_t>::max() / 16)
      throw ShapeError("a shape's element count overflows");
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }
}

std::int64_t Shape::operator[](int axis) const {
  const int index = axis < 0 ? axis + rank_ : axis;
  if (index < 0 || index >= rank_)
    throw ShapeError("axis " + std::to_string(axis) + " is outside shape " + to_string(*this));
  return extents_[static_cast<std::size_t>(index)];
}

std::int64_t Shape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents()) product *= extent;
  return product;
}

Shape Shape::with(int axis, std::int64_t extent) const {
  (void)(*this)[axis];
  Shape copy = *this;
  copy.extents_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)] = extent;
  return Shape(copy.extents());
}

Shape Shape::prepend(std::int64_t extent) const {
  std::array<std::int64_t, kMaxRank + 1> all{extent};
  std::copy_n(extents_.begin(), rank_, all.begin() + 1);
  return Shape(std::span<const std::int64_t>(all.data(), static_cast<std::size_t>(rank_) + 1));
}

Shape Shape::without_first() const {
  if (rank_ == 0) throw ShapeError("a scalar has no first axis");
  return Shape(extents().subspan(1));
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(extents(), other.extents()); }

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (const std::int64_t extent : shape.extents()) text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + ")";
}

}  // namespace bantam
