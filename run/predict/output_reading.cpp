// Softmax, sigmoid, and the largest class of each position.
#include "bantam/run/predict/output_reading.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

namespace bantam::run {
namespace {

void make_softmax(std::span<float> values) {
  const float largest = *std::ranges::max_element(values);
  double sum = 0;
  for (const float value : values) sum += std::exp(static_cast<double>(value - largest));
  for (float& value : values) value = static_cast<float>(std::exp(static_cast<double>(value - largest)) / sum);
}

double sigmoid(float value) { return 1 / (1 + std::exp(-static_cast<double>(value))); }

}  // namespace

OutputReading::OutputReading(const RunConfig& config, double threshold)
    : task_(task_of(config)),
      kind_(config.train.loss.loss->output_kind()),
      output_(config.model.graph.output_shape()),
      cut_(std::log(threshold / (1 - threshold))) {}

void OutputReading::read(std::span<const float> output, Prediction& prediction) const {
  if (task_ == Task::segmentation) return read_segmentation(output, prediction);
  if (task_ == Task::masks) return read_masks(output, prediction);
  prediction.values.assign(output.begin(), output.end());
  if (kind_ == OutputKind::softmax) make_softmax(prediction.values);
  if (kind_ == OutputKind::sigmoid)
    for (float& value : prediction.values) value = static_cast<float>(sigmoid(value));
}

/// One channel of the output's places: (height, width), or a row of them.
Image OutputReading::blank() const {
  Image image;
  const ImageSize size = output_.rank() == 3
                             ? ImageSize{output_[0], output_[1]}
                             : ImageSize{1, output_.elements() / std::max<std::int64_t>(output_[-1], 1)};
  image.reshape(size, 1);
  return image;
}

void OutputReading::read_segmentation(std::span<const float> output, Prediction& prediction) const {
  constexpr std::size_t kMostOfAByte = 256;
  Image mask = blank();
  prediction.counts.assign(classes(), 0);
  for (std::size_t place = 0; place < mask.pixels.size(); ++place) {
    const std::span<const float> row = output.subspan(place * classes(), classes());
    const auto largest = static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
    ++prediction.counts[largest];
    mask.pixels[place] = static_cast<std::uint8_t>(largest);
  }
  if (classes() <= kMostOfAByte) prediction.masks.push_back(std::move(mask));
}

void OutputReading::read_masks(std::span<const float> output, Prediction& prediction) const {
  prediction.masks.assign(classes(), blank());
  prediction.counts.assign(classes(), 0);
  for (std::size_t i = 0; i < output.size(); ++i) {
    const bool there = output[i] >= cut_;
    prediction.masks[i % classes()].pixels[i / classes()] = there ? 1 : 0;
    prediction.counts[i % classes()] += there ? 1 : 0;
  }
}

}  // namespace bantam::run
