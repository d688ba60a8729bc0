// Test support: a sample with an image, a mask and a label, and stages read as a configuration has them.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bantam/data/augment/pixels.h"

namespace bantam::testing {

/// An image, a mask of int32 that moves with it, and a label.
struct TestSample {
  std::vector<SampleField> fields;
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> mask;
  std::int32_t label = 7;
  std::vector<std::span<std::byte>> buffers;

  TestSample(ImageSize size, std::int64_t channels)
      : fields({{"images", {size.height, size.width, channels}, DType::uint8},
                {"labels", {size.height, size.width}, DType::int32},
                {"kind", {}, DType::int32}}),
        pixels(static_cast<std::size_t>(size.height * size.width * channels)),
        mask(static_cast<std::size_t>(size.height * size.width)) {}
  TestSample(const TestSample& other)
      : TestSample({other.fields[0].shape[0], other.fields[0].shape[1]}, other.fields[0].shape[2]) {
    pixels = other.pixels;
    mask = other.mask;
  }
  TestSample& operator=(const TestSample&) = delete;

  AugmentedSample view(std::int64_t index = 0, std::int64_t epoch = 0) {
    buffers = {std::as_writable_bytes(std::span(pixels)), std::as_writable_bytes(std::span(mask)),
               std::as_writable_bytes(std::span(&label, 1))};
    return {.fields = fields, .buffers = buffers, .index = index, .epoch = epoch};
  }
  std::uint8_t at(std::int64_t y, std::int64_t x, std::int64_t c = 0) const {
    return pixels[static_cast<std::size_t>((y * fields[0].shape[1] + x) * fields[0].shape[2] + c)];
  }
};

/// The operands of tests/oracles/augment.py.
inline TestSample oracle_sample(std::int64_t channels) {
  constexpr std::int64_t kHeight = 12, kWidth = 14;
  TestSample sample({kHeight, kWidth}, channels);
  for (std::int64_t i = 0; i < kHeight * kWidth; ++i) {
    const auto y = static_cast<double>(i / kWidth), x = static_cast<double>(i % kWidth);
    for (std::int64_t k = 0; k < channels; ++k) {
      const auto c = static_cast<double>(k);
      const double wave = std::sin(0.55 * y + 0.4 * c) * std::cos(0.43 * x - 0.9 * c);
      sample.pixels[static_cast<std::size_t>(i * channels + k)] =
          static_cast<std::uint8_t>(128 + 100 * wave + 20 * std::sin(1.7 * x + y));
    }
    sample.mask[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((3 * (i / kWidth) + i % kWidth) / 5);
  }
  return sample;
}

/// `stage` in YAML's flow style: "rotation: {degrees: 15}".
inline std::shared_ptr<const Augmentation> read_stage(const std::string& stage) {
  const auto document = ConfigDocument::parse("stage: {" + stage + "}", "stage");
  const ConfigNode::Named named = document.map().node("stage").as_named();
  ConfigMap options = named.options.as_map();
  auto made = augmentations().at(named.name)(options);
  options.finish();
  return made;
}

/// One sample through stages of host form.
inline void apply_on_host(const Augmentations& stages, std::uint64_t seed, AugmentedSample& sample) {
  for (const auto& stage : stages) {
    PhiloxSequence random = stage_random(*stage, seed, sample.epoch, sample.index);
    stage->apply(sample, random);
  }
}

inline PhiloxSequence random_of(std::uint64_t seed) { return PhiloxSequence(philox_key(seed, RandomPurpose::test)); }

}  // namespace bantam::testing
