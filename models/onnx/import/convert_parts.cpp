// Parts of values along an axis: cropped images and chosen channels; and values repeated along an axis.
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "bantam/models/onnx/import/importer.h"
#include "bantam/models/onnx/import/window.h"

namespace bantam::onnx {
namespace {

constexpr std::size_t kMostRuns = 64;  // of channels that an index names

View part(Importer& importer, const Node& node, View view, const AxisPlace& place, std::int64_t begin, std::int64_t end,
          std::int64_t step) {
  const Shape shape = importer.layers().shape(view.layer);
  ImportedLayer layer{.inputs = {view.layer}};
  if (step == 1 && place.axis == shape.rank() - 1) {
    layer.kind = "channel_slice";
    if (begin > 0) layer.set("begin", fmt::format("{}", begin * place.inner));
    if (end * place.inner < shape[place.axis]) layer.set("end", fmt::format("{}", end * place.inner));
  } else if (step != 1 || shape.rank() != 3) {
    layer.kind = "slice";
    if (place.axis > 0) layer.set("axis", fmt::format("{}", place.axis));
    if (begin > 0) layer.set("start", fmt::format("{}", begin * place.inner));
    if (end * place.inner < shape[place.axis]) layer.set("stop", fmt::format("{}", end * place.inner));
    if (step != 1) layer.set("step", fmt::format("{}", step));
  } else {
    layer.kind = "crop";
    std::array<std::int64_t, 4> amounts{};  // top, left, bottom, right
    amounts[static_cast<std::size_t>(place.axis)] = begin * place.inner;
    amounts[static_cast<std::size_t>(place.axis) + 2] = shape[place.axis] - end * place.inner;
    set_amounts(layer, "cropping", amounts);
  }
  importer.share(view.layer);
  view = resized(std::move(view), place.atom, (end - begin + step - 1) / step);
  view.layer = importer.add(node, std::move(layer));
  return view;
}

/// Part of an axis without the batch's.
struct Cut {
  std::size_t axis = 0;
  std::int64_t begin = 0, end = 0, step = 1;
};

/// Rows and columns of an image (batch, channels, height, width) at once; other parts stay in `cuts`.
View cut_image(Importer& importer, const Node& node, View view, std::vector<Cut>& cuts) {
  std::array<std::int64_t, 4> amounts{};  // top, left, bottom, right
  for (const Cut& one : cuts) {
    if (one.axis == 0 || one.step != 1) continue;
    amounts[one.axis - 1] = one.begin;
    amounts[one.axis + 1] = view.extent(one.axis) - one.end;
  }
  std::erase_if(cuts, [](const Cut& one) { return one.axis != 0 && one.step == 1; });
  if (amounts == std::array<std::int64_t, 4>{}) return view;
  ImportedLayer layer{.kind = "crop", .inputs = {importer.image(node, view)}};
  importer.share(layer.inputs[0]);
  set_amounts(layer, "cropping", amounts);
  const int cropped = importer.add(node, std::move(layer));
  return image_view(cropped, importer.layers().shape(cropped));
}

void convert_slice(Importer& importer, const Node& node) {
  View view = importer.unshuffled(node, importer.value(node, 0));
  std::vector<Cut> cuts;
  std::vector<std::int64_t> extents = view.extents();
  extents.insert(extents.begin(), importer.batch().value_or(std::int64_t{1} << 20));
  for (const SliceRange& given : slice_ranges(node, importer.constants(node), extents.size())) {
    const SliceRange range = resolved(node, given, extents);
    const auto axis = static_cast<std::size_t>(range.axis);
    const bool to_end = range.end == extents[axis] || (axis == 0 && given.end == kBatch);
    const bool from_start = range.start == 0 && given.start != kBatch;
    if (from_start && to_end && range.step == 1) continue;
    if (axis == 0) fail(node, "cuts the batch");
    if (range.start == range.end) fail(node, fmt::format("leaves nothing of axis {}", axis));
    cuts.push_back({axis - 1, range.start, range.end, range.step});
  }
  constexpr std::size_t kOrder[] = {1, 2, 0};
  if (view.axes.size() == 3 && is_in_order(view, kOrder)) view = cut_image(importer, node, std::move(view), cuts);
  for (const Cut& one : cuts) view = cut(importer, node, std::move(view), one.axis, one.begin, one.end, one.step);
  importer.define(node, std::move(view));
}

/// Axis of a value without the batch's.
std::size_t feature_axis(const Node& node, const View& view, std::int64_t given) {
  const std::size_t axis = checked_axis(node, given, view.axes.size() + 1);
  if (axis == 0) fail(node, "works along the batch");
  return axis - 1;
}

void convert_split(Importer& importer, const Node& node) {
  const View& view = importer.value(node, 0);
  const std::size_t axis = feature_axis(node, view, integer(node, "axis", 0));
  const std::vector<std::int64_t> sizes = split_sizes(importer, node, view.extent(axis));
  if (sizes.size() != node.outputs.size())
    fail(node, fmt::format("{} parts for {} outputs", sizes.size(), node.outputs.size()));
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < sizes.size(); begin += sizes[i++])
    if (importer.is_used(node.outputs[i]))
      importer.define_output(node, i, cut(importer, node, importer.value(node, 0), axis, begin, begin + sizes[i]));
}

View without_axis(View view, std::size_t axis) {
  view.axes.erase(view.axes.begin() + static_cast<std::ptrdiff_t>(axis));
  return view;
}

void convert_split_to_sequence(Importer& importer, const Node& node) {
  const View view = importer.value(node, 0);
  const std::size_t axis = feature_axis(node, view, integer(node, "axis", 0));
  const std::vector<std::int64_t> sizes = split_sizes(importer, node, view.extent(axis));
  if (sizes.size() > kMostRuns)
    fail(node, fmt::format("a sequence of {}; expected at most {}", sizes.size(), kMostRuns));
  const bool keep = importer.has(node, 1) || integer(node, "keepdims", 1) != 0;
  std::vector<View> parts;
  std::int64_t begin = 0;
  for (const std::int64_t size : sizes) {
    View one = cut(importer, node, view, axis, begin, begin + size);
    parts.push_back(keep ? std::move(one) : without_axis(std::move(one), axis));
    begin += size;
  }
  importer.define_sequence(node, std::move(parts));
}

void convert_sequence_at(Importer& importer, const Node& node) {
  const std::vector<View>* views = node.inputs.empty() ? nullptr : importer.sequence(node.inputs[0]);
  if (views == nullptr) fail(node, "expected the sequence of a SplitToSequence");
  const std::vector<std::int64_t> at = importer.needed_constant(node, 1, "the place").as_integers();
  const auto count = std::ssize(*views);
  if (at.size() != 1 || at[0] < -count || at[0] >= count) fail(node, fmt::format("a place outside of {}", count));
  importer.define(node, (*views)[static_cast<std::size_t>(at[0] < 0 ? at[0] + count : at[0])]);
}

/// Runs of indices that follow each other.
std::vector<std::pair<std::int64_t, std::int64_t>> runs_of(const std::vector<std::int64_t>& indices) {
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const std::int64_t index : indices) {
    if (!runs.empty() && runs.back().second == index)
      ++runs.back().second;
    else
      runs.emplace_back(index, index + 1);
  }
  return runs;
}

/// Values of a whole batch, flattened, by their places (PyTorch's as_strided): the same for each sample, in an order
/// that axes of the value have.
void gather_flat(Importer& importer, const Node& node, const View& moved) {
  const auto given = moved.axes.size() == 1 ? place_of_batch(moved, importer.samples()) : std::nullopt;
  if (!given || given->outer != 1) (void)importer.value(node, 0);  // which fails
  const View view = batch_taken(moved, importer.samples());
  const Tensor& tensor = importer.needed_constant(node, 1, "the indices");
  const std::vector<std::int64_t> places = tensor.as_integers();
  const std::int64_t count = view.elements(), samples = tensor.dims.empty() ? 0 : tensor.dims[0];
  const auto refuse = [&] { fail(node, "its indices are no order of a sample's axes"); };
  if (integer(node, "axis", 0) != 0 || samples < 1 || tensor.elements() != samples * count) refuse();
  // The stride of each axis, of which axes with one value have none.
  const std::size_t rank = tensor.dims.size();
  std::vector<std::int64_t> strides(rank), steps(rank, 1);
  for (std::size_t i = rank; i-- > 1;) steps[i - 1] = steps[i] * tensor.dims[i];
  for (std::size_t i = 0; i < rank; ++i)
    if (tensor.dims[i] > 1) strides[i] = places[static_cast<std::size_t>(steps[i])] - places[0];
  for (std::size_t at = 0; at < places.size(); ++at) {
    std::int64_t expected = 0, rest = static_cast<std::int64_t>(at);
    for (std::size_t i = 0; i < rank; ++i) {
      expected += rest / steps[i] * strides[i];
      rest %= steps[i];
    }
    if (places[at] != expected) refuse();
  }
  if (samples > 1 && strides[0] != count) refuse();
  std::vector<std::size_t> order;  // axes from the largest stride to the smallest
  for (std::size_t i = 1; i < rank; ++i) order.push_back(i);
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    return std::pair(strides[a], tensor.dims[a]) > std::pair(strides[b], tensor.dims[b]);
  });
  std::int64_t stride = 1;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    if (tensor.dims[*axis] > 1 && strides[*axis] != stride) refuse();
    stride *= tensor.dims[*axis];
  }
  std::vector<std::int64_t> extents;
  for (const std::size_t axis : order) extents.push_back(tensor.dims[axis]);
  auto sorted = reshaped(view, extents);
  if (!sorted) refuse();
  View result = *sorted;
  for (std::size_t i = 0; i < order.size(); ++i) result.axes[order[i] - 1] = sorted->axes[i];
  importer.define(node, std::move(result));
}

/// Chosen channels, rows or columns: one part for each run of indices.
void convert_gather(Importer& importer, const Node& node) {
  if (const View* moved = importer.moved(node, 0)) return gather_flat(importer, node, *moved);
  const View view = importer.unshuffled(node, importer.value(node, 0));
  const std::size_t axis = feature_axis(node, view, integer(node, "axis", 0));
  Tensor tensor = importer.needed_constant(node, 1, "the indices");
  if (node.op == "GatherND") tensor.dims = {tensor.elements()};  // each is an index of one axis
  if (tensor.dims.size() > 1) fail(node, fmt::format("indices of {} axes; expected one", tensor.dims.size()));
  const std::int64_t extent = view.extent(axis);
  std::vector<std::int64_t> indices = tensor.as_integers();
  for (std::int64_t& index : indices) {
    if (index < -extent || index >= extent) fail(node, fmt::format("index {} of {}", index, extent));
    if (index < 0) index += extent;
  }
  const auto runs = runs_of(indices);
  if (runs.empty() || runs.size() > kMostRuns)
    fail(node, fmt::format("indices of {} parts; expected 1 to {}", runs.size(), kMostRuns));
  View result = cut(importer, node, view, axis, runs[0].first, runs[0].second);
  if (runs.size() > 1) {
    const auto place = place_of_axis(view, axis, importer.layers().shape(view.layer));
    if (!place || place->axis != importer.layers().shape(view.layer).rank() - 1 || place->inner != 1)
      fail(node, "indices that do not follow each other; expected those of channels or features");
    std::vector<int> parts{result.layer};
    for (std::size_t i = 1; i < runs.size(); ++i)
      parts.push_back(cut(importer, node, view, axis, runs[i].first, runs[i].second).layer);
    result = resized(view, place->atom, std::ssize(indices));
    result.layer = importer.add(node, {.kind = "concat", .inputs = parts});
  }
  if (tensor.dims.empty()) result = without_axis(std::move(result), axis);
  importer.define(node, std::move(result));
}

void convert_gather_nd(Importer& importer, const Node& node) {
  if (!has_attribute(node, "axis")) fail(node, "expected chosen channels, between two Transposes");
  convert_gather(importer, node);
}

void convert_expand(Importer& importer, const Node& node) {
  const View& view = importer.value(node, 0);
  std::vector<std::int64_t> extents = importer.needed_constant(node, 1, "the shape").as_integers();
  const std::size_t rank = view.axes.size() + 1;
  if (extents.size() > rank) fail(node, fmt::format("to {} axes, of {}", extents.size(), rank));
  extents.insert(extents.begin(), rank - extents.size(), 1);
  if (extents[0] != kBatch && extents[0] != 1 && extents[0] != importer.batch()) fail(node, "repeats samples");
  extents.erase(extents.begin());
  for (std::size_t i = 0; i < extents.size(); ++i)
    if (extents[i] == 1) extents[i] = view.extent(i);
  importer.define(node, broadcast(importer, node, view, extents));
}

constexpr std::pair<std::string_view, Converter> kPartsConverters[] = {{"Slice", convert_slice},
                                                                       {"Split", convert_split},
                                                                       {"SplitToSequence", convert_split_to_sequence},
                                                                       {"SequenceAt", convert_sequence_at},
                                                                       {"Gather", convert_gather},
                                                                       {"GatherND", convert_gather_nd},
                                                                       {"Expand", convert_expand}};

}  // namespace

std::vector<std::int64_t> split_sizes(Importer& importer, const Node& node, std::int64_t extent) {
  std::vector<std::int64_t> sizes = integers(node, "split");
  if (const Tensor* tensor = importer.constant(node, 1)) {
    sizes = tensor->as_integers();
    if (node.op == "SplitToSequence" && tensor->dims.empty() && sizes[0] > 0) {
      const std::int64_t size = std::min(sizes[0], extent), count = (extent + size - 1) / size;
      sizes.assign(static_cast<std::size_t>(count), size);
      sizes.back() = extent - size * (count - 1);
    }
  } else if (sizes.empty()) {
    const bool ones = node.op == "SplitToSequence";
    const std::int64_t count = ones ? extent : integer(node, "num_outputs", std::ssize(node.outputs));
    if (count < 1 || count > extent) fail(node, fmt::format("{} parts of an axis of {}", count, extent));
    const std::int64_t size = (extent + count - 1) / count;
    sizes.assign(static_cast<std::size_t>(count), size);
    sizes.back() = extent - size * (count - 1);
  }
  std::int64_t rest = extent;
  for (const std::int64_t size : sizes) {
    if (size < 1 || size > rest)
      fail(node, fmt::format("its parts do not add up to the {} values of its axis", extent));
    rest -= size;
  }
  if (rest != 0) fail(node, fmt::format("its parts do not add up to the {} values of its axis", extent));
  return sizes;
}

View cut(Importer& importer, const Node& node, View view, std::size_t axis, std::int64_t begin, std::int64_t end,
         std::int64_t step) {
  if (begin == 0 && end == view.extent(axis) && step == 1) {
    importer.share(view.layer);
    return view;
  }
  view = importer.unshuffled(node, view);
  for (const View& arranged : {view, merged(view)}) {
    const Shape shape = importer.layers().shape(arranged.layer);
    const auto place = place_of_axis(arranged, axis, shape);
    if (place && (step == 1 || place->inner == 1)) return part(importer, node, arranged, *place, begin, end, step);
  }
  std::vector<std::size_t> order(view.axes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  view = importer.in_order(node, view, order);
  return part(importer, node, view, *place_of_axis(view, axis, importer.layers().shape(view.layer)), begin, end, step);
}

View broadcast(Importer& importer, const Node& node, const View& view, std::span<const std::int64_t> extents) {
  const std::vector<std::int64_t> own = view.extents();
  if (std::ranges::equal(own, extents)) return view;
  const auto refuse = [&] {
    fail(node, fmt::format("repeats values ({}) to ({}); expected factors of an image's channels, or of its pixels",
                           fmt::join(own, ", "), fmt::join(extents, ", ")));
  };
  if (own.size() != 3 || extents.size() != 3) refuse();
  constexpr std::size_t kOrder[] = {1, 2, 0};
  const std::int64_t c = extents[0], h = extents[1], w = extents[2];
  const bool channels = own[0] == c && own[1] == 1 && own[2] == 1, pixels = own[0] == 1 && own[1] == h && own[2] == w;
  if ((!channels && !pixels) || !is_in_order(view, kOrder)) refuse();
  const auto reshape = [&](int layer, std::array<std::int64_t, 3> shape) {
    return importer.add(node, {.kind = "reshape",
                               .options = {{"shape", fmt::format("[{}]", fmt::join(shape, ", "))}},
                               .inputs = {layer},
                               .name = "reshape"});
  };
  const auto repeat = [&](int layer, std::int64_t rows, std::int64_t columns) {
    return importer.add(node,
                        {.kind = "upsample", .options = {{"scale", pair_text(rows, columns)}}, .inputs = {layer}});
  };
  if (channels) {
    const int pixel = importer.ordered(node, view, {1, 1, c}).layer;
    importer.share(pixel);
    const int layer = repeat(pixel, h, w);
    return image_view(layer, importer.layers().shape(layer));
  }
  importer.share(view.layer);
  const int layer = reshape(repeat(reshape(view.layer, {h * w, 1, 1}), 1, c), {h, w, c});
  return image_view(layer, importer.layers().shape(layer));
}

Converters part_converters() { return kPartsConverters; }

}  // namespace bantam::onnx
