// A batch source of the pipeline without order and prefetch, and from its tensors to pixels and words.
#include "bantam/data/survey/sample_views.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "bantam/data/delivery/loader.h"

namespace bantam {
namespace {

/// One tensor of a batch, copied to host memory, with the facts that views of its samples need.
struct Seen {
  const DatasetFacts& facts;
  const NormalizeOptions& normalize;
  std::string name;
  Shape shape;                       // of one row
  std::vector<float> values;         // float32 tensors
  std::vector<std::int32_t> labels;  // int32 tensors

  std::size_t row() const { return static_cast<std::size_t>(shape.elements()); }
};

double of_channel(const std::vector<double>& values, std::int64_t channel) {
  return values[values.size() == 1 ? 0 : static_cast<std::size_t>(channel)];
}

/// From the values of one channel to 0 … 255: v·factor + offset.
struct ToByte {
  double factor = 1, offset = 0;
  std::uint8_t operator()(float value) const {
    return static_cast<std::uint8_t>(std::clamp(std::lround(value * factor + offset), 0L, 255L));
  }
};

ToByte to_byte(const Seen& images, std::int64_t channel) {
  if (images.facts.image_dtype == DType::uint8) {
    const double scale = images.normalize.scale == 0 ? 1 : images.normalize.scale;
    return {of_channel(images.normalize.std, channel) / scale, of_channel(images.normalize.mean, channel) / scale};
  }
  const auto [least, most] = std::ranges::minmax(images.values);
  const double range = std::max<double>(most - least, 1e-12);
  return {255 / range, -least * 255 / range};
}

Image image_of(const Seen& images, std::size_t sample) {
  Image image;
  if (images.shape.rank() != 3) return image;
  const std::int64_t channels = images.shape[2];
  const std::int64_t shown = channels == 3 || channels == 4 ? channels : 1;
  image.reshape({images.shape[0], images.shape[1]}, shown);
  for (std::int64_t c = 0; c < shown; ++c) {
    const ToByte byte = to_byte(images, c);
    const float* from = images.values.data() + sample * images.row() + c;
    for (std::int64_t p = 0; p < image.size.height * image.size.width; ++p)
      image.pixels[static_cast<std::size_t>(p * shown + c)] = byte(from[p * channels]);
  }
  return image;
}

/// Colours that differ for neighbours: the bits of the class number, interleaved over red, green and blue, as Pascal
/// VOC's; 255, often "no class", is white.
std::array<std::uint8_t, 3> colour_of(std::int32_t label) {
  if (label < 0 || label == 255) return {255, 255, 255};
  std::array<std::uint8_t, 3> colour{};
  for (int bit = 7; label != 0 && bit >= 0; --bit, label >>= 3)
    for (int c = 0; c < 3; ++c)
      colour[static_cast<std::size_t>(c)] |= static_cast<std::uint8_t>((label >> c & 1) << bit);
  return colour;
}

std::string class_text(const DatasetFacts& facts, std::int64_t label) {
  if (label < 0 || static_cast<std::size_t>(label) >= facts.class_names.size()) return fmt::format("{}", label);
  return facts.class_names[static_cast<std::size_t>(label)];
}

/// Describes values, one a class: the three largest with their classes; those below 0.005 are omitted.
std::string soft_text(const DatasetFacts& facts, std::span<const float> values) {
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (values[i] >= 0.005f) order.push_back(static_cast<std::int64_t>(i));
  std::ranges::stable_sort(
      order, [&](auto a, auto b) { return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)]; });
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 3); ++i)
    text += fmt::format("{}{:.2g} {}", text.empty() ? "" : ", ", values[static_cast<std::size_t>(order[i])],
                        class_text(facts, order[i]));
  return order.size() > 3 ? text + ", …" : text;
}

std::string numbers_text(std::span<const float> values) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(values.size(), 4); ++i)
    text += fmt::format("{}{:.3g}", text.empty() ? "" : ", ", values[i]);
  return values.size() > 4 ? text + ", …" : text;
}

void add_target(const Seen& target, std::size_t sample, SampleView& view) {
  std::string text;
  if (!target.labels.empty() && target.shape.rank() == 2) {
    const auto labels = std::span(target.labels).subspan(sample * target.row(), target.row());
    view.mask = class_picture({target.shape[0], target.shape[1]}, labels);
    return;
  }
  if (!target.labels.empty()) {
    text = class_text(target.facts, target.labels[sample * target.row()]);
  } else {
    const auto values = std::span(target.values).subspan(sample * target.row(), target.row());
    const bool of_classes = !target.facts.class_names.empty() && values.size() == target.facts.class_names.size();
    text = of_classes ? soft_text(target.facts, values) : numbers_text(values);
  }
  view.target += (view.target.empty() ? "" : "; ") + text;
}

Seen seen(const Batch& batch, const TensorFacts& tensor, const DatasetFacts& facts, const PipelineOptions& pipeline,
          Stream stream) {
  const Tensor& values = batch.at(tensor.name);
  Seen seen{.facts = facts, .normalize = pipeline.normalize, .name = tensor.name, .shape = tensor.shape};
  if (values.dtype() == DType::int32)
    seen.labels = to_host<std::int32_t>(values, stream);
  else
    seen.values = to_host_floats(values, stream);
  return seen;
}

}  // namespace

Image class_picture(ImageSize size, std::span<const std::int32_t> labels) {
  Image picture;
  picture.reshape(size, 3);
  for (std::size_t p = 0; p < labels.size(); ++p) {
    const auto colour = colour_of(labels[p]);
    std::ranges::copy(colour, picture.pixels.begin() + static_cast<std::ptrdiff_t>(3 * p));
  }
  return picture;
}

std::vector<std::vector<SampleView>> sample_views(Runtime& runtime, std::shared_ptr<const SampleReader> reader,
                                                  PipelineOptions pipeline, std::uint64_t seed, std::int64_t epochs) {
  const DatasetFacts facts = reader->facts();
  pipeline.shuffle.reset();
  pipeline.sampling = {};
  pipeline.cache = CacheKind::off;
  pipeline.batch_size = facts.size;
  pipeline.batch_size_is_auto = pipeline.drop_last = false;
  pipeline.prefetch = {.depth = 0, .workers = 0};
  ImageBatchSource source(runtime, std::move(reader), {.pipeline = pipeline, .device = Device::cpu(), .seed = seed});
  const Context context = Context::make(runtime, Device::cpu(), Precision{PrecisionKind::float32});
  std::vector<std::vector<SampleView>> views(static_cast<std::size_t>(epochs));
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch) {
    std::vector<SampleView>& row = views[static_cast<std::size_t>(epoch)];
    row.resize(static_cast<std::size_t>(facts.size));
    Batch batch;
    source.start(epoch);
    if (!source.next(context, batch)) continue;
    for (const TensorFacts& tensor : source.tensors()) {
      const Seen values = seen(batch, tensor, facts, pipeline, context.stream);
      for (std::size_t s = 0; s < row.size(); ++s)
        if (tensor.name == kImages)
          row[s].image = image_of(values, s);
        else
          add_target(values, s, row[s]);
    }
  }
  return views;
}

}  // namespace bantam
