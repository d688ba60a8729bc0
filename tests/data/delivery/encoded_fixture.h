// Samples that are PNG files in memory, of sizes of their own, and stages of region form over them.
#pragma once

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <png.h>

#include "bantam/base/error.h"
#include "bantam/data/augment/augmentation.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam::testing {

inline std::vector<std::byte> png_of(ImageSize size, int channels, const std::vector<std::uint8_t>& pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(size.width);
  image.height = static_cast<png_uint_32>(size.height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::byte> file(bytes);
  if (png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data(), 0, nullptr) == 0)
    throw std::runtime_error("no PNG file");
  file.resize(bytes);
  return file;
}

/// Sample i: an RGB image of (20 + i mod 5, 30 - i mod 7) pixels and its label; with masks also a class a pixel, which
/// is the image's red value.
class PngSamples : public SampleReader {
 public:
  explicit PngSamples(std::int64_t size, bool masks = false, std::vector<std::int64_t> broken = {})
      : size_(size), masks_(masks), broken_(std::move(broken)) {}

  static ImageSize size_of_image(std::int64_t index) { return {20 + index % 5, 30 - index % 7}; }
  static std::vector<std::uint8_t> pixels(std::int64_t index) {
    const ImageSize size = size_of_image(index);
    std::vector<std::uint8_t> pixels;
    for (std::int64_t p = 0; p < size.height * size.width; ++p)
      for (const std::int64_t value : {(p * 7 + index) % 4, p + index * 31, p * 3})
        pixels.push_back(static_cast<std::uint8_t>(value));
    return pixels;
  }

  DatasetFacts facts() const override {
    DatasetFacts facts{.size = size_, .image_shape = {0, 0, 3}, .class_names = {"a", "b", "c", "d"}};
    if (masks_) facts.targets = {{"labels", {0, 0}, DType::int32, FieldEncoding::mask}};
    return facts;
  }
  void read(std::int64_t, std::span<const std::span<std::byte>>) const override { throw DataError("not to be read"); }
  void fetch(std::int64_t index, std::span<std::vector<std::byte>> fields) const override {
    ++fetched;
    fields[0] = image_file(index);
    if (masks_) {
      fields[1] = mask_file(index);
    } else {
      const auto label = static_cast<std::int32_t>(index % 4);
      const auto* bytes = reinterpret_cast<const std::byte*>(&label);
      fields[1].assign(bytes, bytes + sizeof label);
    }
  }
  std::uint64_t encoded_bytes(std::int64_t index) const override {
    return image_file(index).size() + (masks_ ? mask_file(index).size() : 0);
  }
  std::string name_of(std::int64_t index) const override { return fmt::format("{}.png", index); }

  mutable std::atomic<std::int64_t> fetched = 0;

 private:
  std::vector<std::byte> image_file(std::int64_t index) const {
    std::vector<std::byte> file = png_of(size_of_image(index), 3, pixels(index));
    if (std::ranges::count(broken_, index) > 0) file.resize(file.size() / 2);
    return file;
  }
  static std::vector<std::byte> mask_file(std::int64_t index) {
    std::vector<std::uint8_t> classes;
    const std::vector<std::uint8_t> image = pixels(index);
    for (std::size_t p = 0; p < image.size(); p += 3) classes.push_back(image[p]);
    return png_of(size_of_image(index), 1, classes);
  }

  std::int64_t size_;
  bool masks_;
  std::vector<std::int64_t> broken_;
};

/// The whole image, resampled to a size.
class WholeTo : public Augmentation {
 public:
  explicit WholeTo(ImageSize size) : size_(size) {}
  std::string_view name() const override { return "whole_to"; }
  bool has_region_form() const override { return true; }
  bool has_chance() const override { return false; }
  std::vector<std::shared_ptr<const Augmentation>> for_evaluation() const override {
    return {std::make_shared<WholeTo>(size_)};
  }
  ImageSize size_after(ImageSize) const override { return size_; }
  Sampling region(ImageSize size, PhiloxSequence&) const override { return {.window = size, .size = size_}; }

 private:
  ImageSize size_;
};

/// A window of a size at a random place, mirrored in half of the cases; not resampled.
class SomewhereIn : public Augmentation {
 public:
  explicit SomewhereIn(ImageSize size) : size_(size) {}
  std::string_view name() const override { return "somewhere_in"; }
  bool has_region_form() const override { return true; }
  std::vector<std::shared_ptr<const Augmentation>> for_evaluation() const override {
    return {std::make_shared<WholeTo>(size_)};
  }
  ImageSize size_after(ImageSize) const override { return size_; }
  Sampling region(ImageSize size, PhiloxSequence& random) const override {
    const auto below = [&](std::int64_t bound) {
      return static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(bound)));
    };
    Sampling sampling{.window = size_, .size = size_};
    sampling.top = below(size.height - size_.height + 1);
    sampling.left = below(size.width - size_.width + 1);
    sampling.mirrored = below(2) == 1;
    return sampling;
  }

 private:
  ImageSize size_;
};

/// Host form: turns each pixel's channels around, where a random number is odd.
class SwapChannels : public Augmentation {
 public:
  std::string_view name() const override { return "swap_channels"; }
  void apply(AugmentedSample& sample, PhiloxSequence& random) const override {
    if (random.below(2) == 0) return;
    const Shape& shape = sample.fields[0].shape;
    for (std::int64_t p = 0; p < shape[0] * shape[1]; ++p)
      std::swap(sample.buffers[0][static_cast<std::size_t>(p * 3)],
                sample.buffers[0][static_cast<std::size_t>(p * 3 + 2)]);
  }
};

}  // namespace bantam::testing
