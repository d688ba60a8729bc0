// Ops that move no values between layers: they change how a value is seen, or nothing.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "bantam/models/onnx/import/importer.h"

namespace bantam::onnx {
namespace {

constexpr std::size_t kMostLayerAxes = 8;  // of a value, the batch's with them

void convert_nothing(Importer& importer, const Node& node) {
  importer.define_moved(node, 0, importer.with_batch(node, 0));
}

void convert_cast(Importer& importer, const Node& node) {
  const std::int64_t to = integer(node, "to", 0);
  if (to != 1 && to != 10 && to != 11 && to != 16) fail(node, fmt::format("to element type {}; expected a float", to));
  convert_nothing(importer, node);
}

void define_reshaped(Importer& importer, const Node& node, const std::vector<std::int64_t>& extents) {
  auto view = reshaped(importer.value(node, 0), extents);
  if (!view)
    fail(node, fmt::format("the {} values of a sample do not fit the new extents", importer.value(node, 0).elements()));
  importer.define(node, std::move(*view));
}

void convert_flatten(Importer& importer, const Node& node) {
  const View& view = importer.value(node, 0);
  const std::size_t axes = view.axes.size() + 1;
  const std::int64_t axis = integer(node, "axis", 1);
  if (axis != 1 && axis != 1 - static_cast<std::int64_t>(axes)) fail(node, fmt::format("axis {}; expected 1", axis));
  define_reshaped(importer, node, {view.elements()});
}

/// The extents that `given` has for the values of a view with the batch. Nothing where they do not fit.
std::optional<std::vector<std::int64_t>> new_extents(const Importer& importer, const View& view,
                                                     std::vector<std::int64_t> given, bool zero) {
  const std::vector<std::int64_t> own = view.extents();
  std::int64_t rest = view.elements();
  std::int64_t* open = nullptr;
  for (std::size_t i = 0; i < given.size(); ++i) {
    std::int64_t& extent = given[i];
    if (const std::int64_t multiple = batch_multiple(extent); multiple > 0) {
      if (multiple > rest / importer.samples()) return std::nullopt;
      extent = multiple * importer.samples();
    }
    if (extent == 0 && i < own.size() && !zero) extent = own[i];
    if (extent == -1 && open == nullptr) {
      open = &extent;
      continue;
    }
    if (extent < 1 || rest % extent != 0) return std::nullopt;
    rest /= extent;
  }
  if (open != nullptr)
    *open = rest;
  else if (rest != 1)
    return std::nullopt;
  return given;
}

void convert_reshape(Importer& importer, const Node& node) {
  const View view = importer.with_batch(node, 0);
  std::vector<std::int64_t> given = integers(node, "shape");
  if (const Tensor* shape = importer.constant(node, 1)) given = shape->as_integers();
  const bool zero = integer(node, "allowzero", 0) != 0;
  if (given.size() > kMostLayerAxes)
    fail(node, fmt::format("a shape of {} axes; expected at most {}", given.size(), kMostLayerAxes));
  const auto extents = new_extents(importer, view, given, zero);
  auto result = extents ? reshaped(view, *extents) : std::nullopt;
  if (result) return importer.define_moved(node, 0, std::move(*result));
  const bool begins_with_batch = !given.empty() && (given[0] == kBatch || given[0] == -1 || (given[0] == 0 && !zero) ||
                                                    given[0] == importer.batch());
  if (!begins_with_batch) fail(node, "expected a shape whose first extent is the batch's");
  fail(node, fmt::format("the {} values of a sample do not fit the new extents", view.elements() / importer.samples()));
}

void convert_transpose(Importer& importer, const Node& node) {
  const View view = importer.with_batch(node, 0);
  const std::vector<std::int64_t> perm = integers(node, "perm");
  std::vector<std::int64_t> sorted = perm, all(view.axes.size());
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), std::int64_t{0});
  if (sorted != all) fail(node, "perm does not name each axis once");
  View result = view;
  for (std::size_t i = 0; i < perm.size(); ++i) result.axes[i] = view.axes[static_cast<std::size_t>(perm[i])];
  importer.define_moved(node, 0, std::move(result));
}

std::vector<std::int64_t> axes_of(Importer& importer, const Node& node) {
  if (const Tensor* tensor = importer.constant(node, 1)) return tensor->as_integers();
  return integers(node, "axes");
}

void convert_squeeze(Importer& importer, const Node& node) {
  View view = importer.with_batch(node, 0);
  const std::size_t rank = view.axes.size();
  std::vector<bool> removed(rank);
  const std::vector<std::int64_t> axes = axes_of(importer, node);
  for (const std::int64_t axis : axes) removed[checked_axis(node, axis, rank)] = true;
  for (std::size_t i = 0; axes.empty() && i < rank; ++i) removed[i] = view.extent(i) == 1;
  if (importer.moved(node, 0) == nullptr && (removed[0] || (axes.empty() && importer.samples() == 1)))
    fail(node, "removes the batch");
  std::vector<std::vector<int>> left;
  for (std::size_t i = 0; i < rank; ++i) {
    if (removed[i] && view.extent(i) != 1)
      fail(node, fmt::format("axis {} has {} values; expected 1", i, view.extent(i)));
    if (!removed[i]) left.push_back(view.axes[i]);
  }
  view.axes = std::move(left);
  importer.define_moved(node, 0, std::move(view));
}

void convert_unsqueeze(Importer& importer, const Node& node) {
  View view = importer.with_batch(node, 0);
  const std::vector<std::int64_t> axes = axes_of(importer, node);
  const std::size_t rank = view.axes.size() + axes.size();
  if (rank > kMostLayerAxes)
    fail(node, fmt::format("makes a value of {} axes; expected at most {}", rank, kMostLayerAxes));
  std::vector<bool> added(rank);
  for (const std::int64_t axis : axes) added[checked_axis(node, axis, rank)] = true;
  const bool before_batch = added[0] && importer.moved(node, 0) == nullptr;
  if (before_batch || std::ranges::count(added, true) != std::ssize(axes))
    fail(node, "adds an axis before the batch, or twice");
  std::vector<std::vector<int>> all;
  for (std::size_t i = 0, next = 0; i < rank; ++i) all.push_back(added[i] ? std::vector<int>{} : view.axes[next++]);
  view.axes = std::move(all);
  importer.define_moved(node, 0, std::move(view));
}

void convert_shape(Importer& importer, const Node& node) {
  const View view = importer.with_batch(node, 0);
  std::vector<std::int64_t> extents = view.extents();
  const bool first = importer.moved(node, 0) == nullptr;
  const auto place = place_of_batch(view, importer.samples());
  if (!place) fail(node, "of a value whose samples were taken apart");
  if (first || importer.samples() > 1) {
    std::int64_t& extent = extents[place->axis];
    extent = of_batch(extent / importer.samples());
  }
  const std::vector<std::int64_t> named = named_extents(node, extents);
  importer.define_constant(node, Tensor::of("", {std::ssize(named)}, named));
}

constexpr std::pair<std::string_view, Converter> kViewConverters[] = {
    {"Identity", convert_nothing},    {"Cast", convert_cast},           {"Flatten", convert_flatten},
    {"Reshape", convert_reshape},     {"Transpose", convert_transpose}, {"Squeeze", convert_squeeze},
    {"Unsqueeze", convert_unsqueeze}, {"Shape", convert_shape}};

}  // namespace

Converters view_converters() { return kViewConverters; }

}  // namespace bantam::onnx
