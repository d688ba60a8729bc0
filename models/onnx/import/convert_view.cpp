// Ops that move no values between layers: they change how a value is seen, or nothing.
#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "bantam/models/onnx/import/importer.h"

namespace bantam::onnx {
namespace {

constexpr std::size_t kMostLayerAxes = 8;  // of a value, the batch's with them

void convert_nothing(Importer& importer, const Node& node) { importer.define(node, importer.value(node, 0)); }

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

/// Whether a new first extent is the batch's, where all others are numbers.
bool is_batch(const Importer& importer, std::int64_t extent) {
  return extent == kBatch || extent == 0 || extent == -1 || extent == importer.batch();
}

void convert_reshape(Importer& importer, const Node& node) {
  const View& view = importer.value(node, 0);
  std::vector<std::int64_t> extents = integers(node, "shape");
  if (const Tensor* shape = importer.constant(node, 1)) extents = shape->as_integers();
  const bool zero = integer(node, "allowzero", 0) != 0;
  if (extents == std::vector<std::int64_t>{-1} && view.elements() > 1) return importer.define_flat(node, view);
  if (extents.empty() || !is_batch(importer, extents[0]) || (zero && extents[0] == 0))
    fail(node, "expected a shape whose first extent is the batch's");
  if (extents.size() > kMostLayerAxes)
    fail(node, fmt::format("a shape of {} axes; expected at most {}", extents.size(), kMostLayerAxes));
  const bool open = extents[0] == -1;
  extents.erase(extents.begin());
  std::int64_t rest = view.elements();
  std::int64_t* inferred = nullptr;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    std::int64_t& extent = extents[i];
    if (extent == 0 && i < view.axes.size() && !zero) extent = view.extent(i);
    if (extent == -1 && inferred == nullptr && !open) {
      inferred = &extent;
      continue;
    }
    if (extent < 1 || rest % extent != 0)
      fail(node, fmt::format("the {} values of a sample do not fit the new extents", view.elements()));
    rest /= extent;
  }
  if (inferred != nullptr)
    *inferred = rest;
  else if (rest != 1)
    fail(node, fmt::format("the {} values of a sample do not fit the new extents", view.elements()));
  define_reshaped(importer, node, extents);
}

void convert_transpose(Importer& importer, const Node& node) {
  const View& view = importer.value(node, 0);
  const std::vector<std::int64_t> perm = integers(node, "perm");
  std::vector<std::int64_t> sorted = perm, all(view.axes.size() + 1);
  std::ranges::sort(sorted);
  std::iota(all.begin(), all.end(), std::int64_t{0});
  if (sorted != all) fail(node, "perm does not name each axis once");
  if (perm[0] != 0) fail(node, "moves the batch, which is the first axis");
  View result = view;
  for (std::size_t i = 1; i < perm.size(); ++i) result.axes[i - 1] = view.axes[static_cast<std::size_t>(perm[i]) - 1];
  importer.define(node, std::move(result));
}

std::vector<std::int64_t> axes_of(Importer& importer, const Node& node) {
  if (const Tensor* tensor = importer.constant(node, 1)) return tensor->as_integers();
  return integers(node, "axes");
}

void convert_squeeze(Importer& importer, const Node& node) {
  View view = importer.value(node, 0);
  const std::size_t rank = view.axes.size() + 1;
  std::vector<bool> removed(rank);
  const std::vector<std::int64_t> axes = axes_of(importer, node);
  for (const std::int64_t axis : axes) removed[checked_axis(node, axis, rank)] = true;
  for (std::size_t i = 1; axes.empty() && i < rank; ++i) removed[i] = view.extent(i - 1) == 1;
  if (removed[0] || (axes.empty() && importer.batch() == 1)) fail(node, "removes the batch");
  std::vector<std::vector<int>> left;
  for (std::size_t i = 1; i < rank; ++i) {
    if (removed[i] && view.extent(i - 1) != 1)
      fail(node, fmt::format("axis {} has {} values; expected 1", i, view.extent(i - 1)));
    if (!removed[i]) left.push_back(view.axes[i - 1]);
  }
  view.axes = std::move(left);
  importer.define(node, std::move(view));
}

void convert_unsqueeze(Importer& importer, const Node& node) {
  View view = importer.value(node, 0);
  const std::vector<std::int64_t> axes = axes_of(importer, node);
  const std::size_t rank = view.axes.size() + 1 + axes.size();
  if (rank > kMostLayerAxes)
    fail(node, fmt::format("makes a value of {} axes; expected at most {}", rank, kMostLayerAxes));
  std::vector<bool> added(rank);
  for (const std::int64_t axis : axes) added[checked_axis(node, axis, rank)] = true;
  if (added[0] || std::ranges::count(added, true) != std::ssize(axes))
    fail(node, "adds an axis before the batch, or twice");
  std::vector<std::vector<int>> all;
  for (std::size_t i = 1, next = 0; i < rank; ++i) all.push_back(added[i] ? std::vector<int>{} : view.axes[next++]);
  view.axes = std::move(all);
  importer.define(node, std::move(view));
}

void convert_shape(Importer& importer, const Node& node) {
  std::vector<std::int64_t> extents = importer.value(node, 0).extents();
  extents.insert(extents.begin(), kBatch);
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
