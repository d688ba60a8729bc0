// Atoms of a view, cut and merged.
#include "bantam/models/onnx/import/view.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace bantam::onnx {
namespace {

std::size_t index(int atom) { return static_cast<std::size_t>(atom); }

/// Cuts `atom` into one of `first` values and the rest.
void split(View& view, int atom, std::int64_t first) {
  const std::int64_t rest = view.atoms[index(atom)] / first;
  view.atoms[index(atom)] = first;
  view.atoms.insert(view.atoms.begin() + atom + 1, rest);
  for (std::vector<int>& axis : view.axes) {
    for (int& other : axis) other += other > atom ? 1 : 0;
    const auto at = std::ranges::find(axis, atom);
    if (at != axis.end()) axis.insert(at + 1, atom + 1);
  }
}

/// The reverse: `atom` and the one after it become one.
void merge(View& view, int atom) {
  view.atoms[index(atom)] *= view.atoms[index(atom) + 1];
  view.atoms.erase(view.atoms.begin() + atom + 1);
  for (std::vector<int>& axis : view.axes) {
    std::erase(axis, atom + 1);
    for (int& other : axis) other -= other > atom ? 1 : 0;
  }
}

bool merges(const View& view, int atom) {
  return std::ranges::any_of(view.axes, [&](const std::vector<int>& axis) {
    const auto at = std::ranges::find(axis, atom);
    return at != axis.end() && at + 1 != axis.end() && *(at + 1) == atom + 1;
  });
}

/// Cuts the one axis of the view into axes of these extents.
std::optional<View> cut_into(View view, std::span<const std::int64_t> extents) {
  std::vector<std::size_t> counts;
  std::size_t at = 0;
  for (std::int64_t extent : extents) {
    const std::size_t begin = at;
    while (extent > 1) {
      if (at == view.axes[0].size()) return std::nullopt;
      const int atom = view.axes[0][at];
      const std::int64_t values = view.atoms[index(atom)];
      if (extent % values != 0) {
        if (values % extent != 0) return std::nullopt;
        split(view, atom, extent);
      }
      extent /= std::min(values, extent);
      ++at;
    }
    counts.push_back(at - begin);
  }
  if (at != view.axes[0].size()) return std::nullopt;
  std::vector<std::vector<int>> axes;
  auto from = view.axes[0].begin();
  for (const std::size_t count : counts) {
    axes.emplace_back(from, from + static_cast<std::ptrdiff_t>(count));
    from += static_cast<std::ptrdiff_t>(count);
  }
  view.axes = std::move(axes);
  return view;
}

}  // namespace

std::int64_t View::extent(std::size_t axis) const {
  return std::accumulate(axes[axis].begin(), axes[axis].end(), std::int64_t{1},
                         [&](std::int64_t product, int atom) { return product * atoms[index(atom)]; });
}

std::vector<std::int64_t> View::extents() const {
  std::vector<std::int64_t> extents;
  for (std::size_t i = 0; i < axes.size(); ++i) extents.push_back(extent(i));
  return extents;
}

std::int64_t View::elements() const {
  return std::accumulate(atoms.begin(), atoms.end(), std::int64_t{1}, std::multiplies<>());
}

View view_of(int layer, const Shape& shape, std::span<const int> axes) {
  View view{.layer = layer};
  std::vector<int> atom_of;  // by axis of the shape; -1: none
  for (const std::int64_t extent : shape.extents()) {
    atom_of.push_back(extent > 1 ? static_cast<int>(view.atoms.size()) : -1);
    if (extent > 1) view.atoms.push_back(extent);
  }
  for (const int axis : axes) {
    view.axes.emplace_back();
    if (atom_of[index(axis)] >= 0) view.axes.back().push_back(atom_of[index(axis)]);
  }
  return view;
}

View image_view(int layer, const Shape& shape) { return view_of(layer, shape, std::vector<int>{2, 0, 1}); }

View merged(View view) {
  for (int atom = 0; atom + 1 < std::ssize(view.atoms);)
    if (merges(view, atom))
      merge(view, atom);
    else
      ++atom;
  return view;
}

bool same_arrangement(const View& a, const View& b) {
  const View x = merged(a), y = merged(b);
  return x.atoms == y.atoms && x.axes == y.axes;
}

std::optional<View> reshaped(View view, std::span<const std::int64_t> extents) {
  view = merged(std::move(view));
  // All atoms as one axis, which splitting keeps up to date; the new axes are cut off its beginning.
  std::vector<int> all;
  for (const std::vector<int>& axis : view.axes) all.insert(all.end(), axis.begin(), axis.end());
  view.axes = {std::move(all)};
  auto result = cut_into(view, extents);
  return result ? result : cut_into(merged(view), extents);  // extents may end within atoms that follow each other
}

bool is_in_order(const View& view, std::span<const std::size_t> axes) {
  int next = 0;
  for (const std::size_t axis : axes)
    for (const int atom : view.axes[axis])
      if (atom != next++) return false;
  return next == std::ssize(view.atoms);
}

bool is_innermost(const View& view, std::size_t axis, std::int64_t extent) {
  const int first = static_cast<int>(view.atoms.size() - view.axes[axis].size());
  return view.extent(axis) == extent && std::ranges::all_of(view.axes[axis], [&](int atom) { return atom >= first; });
}

std::optional<AxisPlace> place_of_axis(const View& view, std::size_t axis, const Shape& shape) {
  if (view.axes[axis].size() != 1) return std::nullopt;
  const int wanted = view.axes[axis][0];
  int atom = 0;
  for (int i = 0; i < shape.rank(); ++i) {
    std::int64_t inner = 1;
    const int first = atom;
    while (inner < shape[i] && atom < std::ssize(view.atoms)) inner *= view.atoms[index(atom++)];
    if (inner != shape[i]) return std::nullopt;
    if (wanted == first && atom > first) return AxisPlace{first, i, inner / view.atoms[index(first)]};
  }
  return std::nullopt;
}

View resized(View view, int atom, std::int64_t extent) {
  view.atoms[index(atom)] = extent;
  if (extent != 1) return view;
  view.atoms.erase(view.atoms.begin() + atom);
  for (std::vector<int>& axis : view.axes) {
    std::erase(axis, atom);
    for (int& other : axis) other -= other > atom ? 1 : 0;
  }
  return view;
}

std::vector<std::int64_t> value_places(const View& view) {
  std::vector<std::int64_t> strides(view.atoms.size());  // in the value
  std::int64_t stride = 1;
  for (auto axis = view.axes.rbegin(); axis != view.axes.rend(); ++axis)
    for (auto atom = axis->rbegin(); atom != axis->rend(); ++atom) {
      strides[index(*atom)] = stride;
      stride *= view.atoms[index(*atom)];
    }
  std::vector<std::int64_t> places{0};
  for (std::size_t atom = 0; atom < view.atoms.size(); ++atom) {
    std::vector<std::int64_t> finer;
    finer.reserve(places.size() * static_cast<std::size_t>(view.atoms[atom]));
    for (const std::int64_t place : places)
      for (std::int64_t i = 0; i < view.atoms[atom]; ++i) finer.push_back(place + i * strides[atom]);
    places = std::move(finer);
  }
  return places;
}

View with_batch(View view, std::int64_t batch) {
  view.axes.insert(view.axes.begin(), std::vector<int>{});
  return *batch_put(std::move(view), {}, batch);
}

std::optional<View> without_batch(const View& with_batch, std::int64_t batch) {
  const std::vector<int> expected = batch == 1 ? std::vector<int>{} : std::vector<int>{0};
  if (with_batch.axes.empty() || with_batch.axes[0] != expected || !place_of_batch(with_batch, batch))
    return std::nullopt;
  View view = batch_taken(with_batch, batch);
  view.axes.erase(view.axes.begin());
  return view;
}

std::optional<BatchPlace> place_of_batch(const View& with_batch, std::int64_t batch) {
  if (batch == 1) return BatchPlace{};
  if (with_batch.atoms.empty() || with_batch.atoms[0] != batch) return std::nullopt;
  for (std::size_t axis = 0; axis < with_batch.axes.size(); ++axis) {
    BatchPlace place{.axis = axis};
    for (const int atom : with_batch.axes[axis]) {
      if (atom == 0) return place;
      place.outer *= with_batch.atoms[index(atom)];
    }
  }
  return std::nullopt;
}

View batch_taken(View with_batch, std::int64_t batch) {
  return batch == 1 ? with_batch : resized(std::move(with_batch), 0, 1);
}

std::optional<View> batch_put(View view, BatchPlace place, std::int64_t batch) {
  if (batch == 1) return view;
  view.atoms.insert(view.atoms.begin(), batch);
  for (std::vector<int>& axis : view.axes)
    for (int& atom : axis) ++atom;
  std::vector<int>& axis = view.axes[place.axis];
  auto at = axis.begin();
  for (std::int64_t outer = 1; outer < place.outer; ++at) {
    if (at == axis.end()) return std::nullopt;
    outer *= view.atoms[index(*at)];
    if (outer > place.outer) return std::nullopt;
  }
  axis.insert(at, 0);
  return view;
}

View with_whole_batch(View with_batch, std::int64_t batch) {
  if (batch > 1 && !with_batch.atoms.empty() && with_batch.atoms[0] > batch && with_batch.atoms[0] % batch == 0)
    split(with_batch, 0, batch);
  return with_batch;
}

}  // namespace bantam::onnx
