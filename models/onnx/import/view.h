// View: how an ONNX value lies in a layer's output. Flatten, Reshape and Transpose change a view, and no layer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "bantam/base/shape.h"

namespace bantam::onnx {

/// The network's input in place of a layer.
inline constexpr int kInput = -1;

/// A layer's output has axes, outermost first, each cut into atoms. An axis of the ONNX value (without the batch's) is
/// some of these atoms, outermost first. Images (batch, channels, height, width) of a layer's (h, w, c) have the atoms
/// {h, w, c} and the axes {{2}, {0}, {1}}; flattened, they have the one axis {2, 0, 1}. Atoms have two values or more:
/// an axis of extent 1 has none.
struct View {
  int layer = kInput;
  std::vector<std::int64_t> atoms;
  std::vector<std::vector<int>> axes;

  std::int64_t extent(std::size_t axis) const;
  std::vector<std::int64_t> extents() const;
  std::int64_t elements() const;
};

/// The view of `shape`, a layer's output, whose ONNX axes are these axes of it: {2, 0, 1} for images.
View view_of(int layer, const Shape& shape, std::span<const int> axes);
/// Axes of (batch, channels, height, width).
View image_view(int layer, const Shape& shape);

/// The same with the fewest atoms, so that equal arrangements are equal.
View merged(View view);
bool same_arrangement(const View& a, const View& b);

/// The view with other extents; nothing where an axis would be cut so that no extents fit.
std::optional<View> reshaped(View view, std::span<const std::int64_t> extents);

/// Whether the layer's output has the elements of `axes`, one axis of the view after the other, in this order.
bool is_in_order(const View& view, std::span<const std::size_t> axes);

/// Whether an axis of the view has `extent` values that lie together, in any order: the last ones of the layer's
/// output.
bool is_innermost(const View& view, std::size_t axis, std::int64_t extent);

/// Where the values of an axis lie in the shape of the view's layer: the outermost atom of `axis` of the shape, each of
/// whose values stands for `inner` values of that axis.
struct AxisPlace {
  int atom = 0, axis = 0;
  std::int64_t inner = 1;
};
/// Nothing where the view's axis is another part of the layer's output.
std::optional<AxisPlace> place_of_axis(const View& view, std::size_t axis, const Shape& shape);
/// The view with an atom of `extent` values.
View resized(View view, int atom, std::int64_t extent);

/// By place in the layer's output, flattened, the place in the value, flattened.
std::vector<std::int64_t> value_places(const View& view);

/// Views with the batch have it among their axes: it is the outermost atom of the layer's output, where it has two
/// samples or more.

/// The batch's extent where the model has no number for it: a prime that extents of axes do not reach, so that it is no
/// product of other ones.
inline constexpr std::int64_t kOpenBatch = 2147483647;

/// The view with the batch as its first axis.
View with_batch(View view, std::int64_t batch);
/// The reverse; nothing where the first axis is not the batch alone.
std::optional<View> without_batch(const View& with_batch, std::int64_t batch);

/// The same with the batch as an atom of its own, where an atom has it with other values.
View with_whole_batch(View with_batch, std::int64_t batch);

/// The axis that has the batch, and how many of its values are outside of the batch: those of atoms before it.
struct BatchPlace {
  std::size_t axis = 0;
  std::int64_t outer = 1;
};
/// Nothing where an axis has a part of the samples.
std::optional<BatchPlace> place_of_batch(const View& with_batch, std::int64_t batch);
/// The view with as many axes and without the batch, in whose place an axis of one value stands where it was alone.
View batch_taken(View with_batch, std::int64_t batch);
/// The reverse. Nothing where `place` is within an atom.
std::optional<View> batch_put(View view, BatchPlace place, std::int64_t batch);

}  // namespace bantam::onnx
