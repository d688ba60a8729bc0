#include "bantam/data/images/decode.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/formats/mask_values.h"
#include "bantam/data/images/channels.h"
#include "bantam/data/images/jpeg.h"
#include "bantam/data/images/mask.h"
#include "bantam/data/images/orientation.h"
#include "bantam/data/images/png.h"
#include "bantam/data/images/resample.h"
#include "bantam/data/images/resample_box.h"

namespace bantam {
namespace {

constexpr std::array kJpegStart{std::byte{0xFF}, std::byte{0xD8}, std::byte{0xFF}};
constexpr std::array kPngStart{std::byte{0x89}, std::byte{'P'}, std::byte{'N'}, std::byte{'G'}};

template <std::size_t size>
bool starts_with(std::span<const std::byte> file, const std::array<std::byte, size>& start) {
  return file.size() >= size && std::ranges::equal(file.first(size), start);
}

ImageFileType type_of(std::span<const std::byte> file) {
  if (starts_with(file, kJpegStart)) return ImageFileType::jpeg;
  if (starts_with(file, kPngStart)) return ImageFileType::png;
  std::string first;
  for (const std::byte value : file.first(std::min<std::size_t>(file.size(), 4)))
    first += fmt::format(" {:02x}", std::to_integer<int>(value));
  throw DataError(file.empty() ? std::string("an empty file, expected a JPEG or PNG")
                               : fmt::format("neither a JPEG nor a PNG file: it starts with{}", first));
}

void check_channels(std::int64_t channels) {
  if (channels != 1 && channels != 3 && channels != 4)
    throw ShapeError(fmt::format("images are decoded to 1, 3 or 4 channels, not {}", channels));
}

/// At which a JPEG still has this many times the pixels that are wanted, in both directions: values are then within
/// 1/255 of the whole image's in the mean. (With as many pixels as are wanted they are within 4/255.)
constexpr std::int64_t kReducedPixels = 2;

int denominator_of(const Sampling& sampling) {
  int denominator = 8;
  const auto is_too_small = [&](std::int64_t window, std::int64_t size) {
    return window < kReducedPixels * denominator * size;
  };
  while (denominator > 1 && (is_too_small(sampling.window.height, sampling.size.height) ||
                             is_too_small(sampling.window.width, sampling.size.width)))
    denominator /= 2;
  return denominator;
}

/// The pixels of an image at 1 / denominator that a window touches.
PixelBox reduced(const PixelBox& box, std::int64_t denominator) {
  const std::int64_t top = box.top / denominator, left = box.left / denominator;
  return {top,
          left,
          {(box.top + box.size.height + denominator - 1) / denominator - top,
           (box.left + box.size.width + denominator - 1) / denominator - left}};
}

void check_within(const Sampling& sampling, ImageSize size) {
  if (sampling.top < 0 || sampling.left < 0 || sampling.window.height < 1 || sampling.window.width < 1 ||
      sampling.top + sampling.window.height > size.height || sampling.left + sampling.window.width > size.width)
    throw ShapeError(fmt::format("a window of {} x {} at ({}, {}) is not within an image of {} x {}",
                                 sampling.window.height, sampling.window.width, sampling.top, sampling.left,
                                 size.height, size.width));
}

/// Decodes the part of a JPEG that `upright` shows of the image at 1 / denominator, and turns it upright.
void read_jpeg(JpegDecoder& jpeg, const PixelBox& upright, int denominator, std::int64_t channels, Image& out) {
  const int orientation = jpeg.stored_header().orientation;
  const PixelBox box = stored_box(upright, jpeg.reduced_size(denominator), orientation);
  if (orientation == 1) return jpeg.read(box, denominator, channels, out);
  Image stored;
  jpeg.read(box, denominator, channels, stored);
  orient(stored, orientation, out);
}

/// The part of a decoded picture that `box` shows, as stored.
void copy_rows(const StoredRgb& decoded, const PixelBox& box, std::int64_t channels, Image& out) {
  constexpr std::int64_t kRgb = 3;
  out.reshape(box.size, channels);
  for (std::int64_t y = 0; y < box.size.height; ++y)
    convert_pixels(PixelLayout::rgb, decoded.pixels + ((box.top + y) * decoded.size.width + box.left) * kRgb, channels,
                   out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes(), box.size.width);
}

void read_rgb(const StoredRgb& decoded, const PixelBox& upright, std::int64_t channels, Image& out) {
  const PixelBox box = stored_box(upright, decoded.size, decoded.orientation);
  if (decoded.orientation == 1) return copy_rows(decoded, box, channels, out);
  Image stored;
  copy_rows(decoded, box, channels, stored);
  orient(stored, decoded.orientation, out);
}

}  // namespace

ImageHeader read_image_header(std::span<const std::byte> file) {
  if (type_of(file) == ImageFileType::png) return PngDecoder(file).header();
  ImageHeader header = JpegDecoder(file).stored_header();
  header.size = oriented(header.size, header.orientation);
  return header;
}

void decode_image(std::span<const std::byte> file, std::int64_t channels, Image& out) {
  check_channels(channels);
  if (type_of(file) == ImageFileType::png) {
    PngDecoder png(file);
    return png.read({0, 0, png.header().size}, channels, out);
  }
  JpegDecoder jpeg(file);
  const ImageHeader header = jpeg.stored_header();
  read_jpeg(jpeg, {0, 0, oriented(header.size, header.orientation)}, 1, channels, out);
}

ImageSize StoredRgb::upright_size() const { return oriented(size, orientation); }

void decode_image(const StoredRgb& decoded, std::int64_t channels, Image& out) {
  check_channels(channels);
  read_rgb(decoded, {0, 0, decoded.upright_size()}, channels, out);
}

void decode_mask(std::span<const std::byte> file, const DatasetFacts& facts, const std::string& field, Image& out) {
  thread_local StoredMask stored;
  decode_stored_mask(file, stored);
  if (facts.masks != nullptr) return read_classes(stored, *facts.masks, field, out);
  read_classes(stored, {.classes = facts.class_names, .ignored = facts.ignored_label}, field, out);
}

void fit_mask(Image& mask, ImageSize size, const DatasetFacts& facts, const std::string& field) {
  if (mask.size == size) return;
  if (facts.masks == nullptr || !facts.masks->resize)
    throw DataError(fmt::format(
        "'{}' has {} x {} pixels, its image {} x {}; where it shows the same, data.masks: {{resize: true}} fits it",
        field, mask.size.width, mask.size.height, size.width, size.height));
  Image fitted;
  resample(mask, {.window = mask.size, .size = size}, Interpolation::nearest, fitted);
  std::swap(mask, fitted);
}

void decode_sampled(std::span<const std::byte> file, std::int64_t channels, const Sampling& sampling, Image& scratch,
                    Image& out) {
  check_channels(channels);
  const PixelBox window{sampling.top, sampling.left, sampling.window};
  if (type_of(file) == ImageFileType::png) {
    PngDecoder png(file);
    check_within(sampling, png.header().size);
    png.read(window, channels, scratch);
    return resample_reduced(scratch, {0, 0, 1}, sampling, out);
  }
  JpegDecoder jpeg(file);
  const ImageHeader header = jpeg.stored_header();
  check_within(sampling, oriented(header.size, header.orientation));
  // An odd orientation cuts off another end of a block of pixels: the reduced image is turned, and has no exact place.
  const int denominator = header.orientation == 1 ? denominator_of(sampling) : 1;
  const PixelBox box = reduced(window, denominator);
  read_jpeg(jpeg, box, denominator, channels, scratch);
  resample_reduced(scratch, {window.top - box.top * denominator, window.left - box.left * denominator, denominator},
                   sampling, out);
}

void decode_sampled(const StoredRgb& decoded, std::int64_t channels, const Sampling& sampling, Image& scratch,
                    Image& out) {
  check_channels(channels);
  check_within(sampling, decoded.upright_size());
  read_rgb(decoded, {sampling.top, sampling.left, sampling.window}, channels, scratch);
  resample_reduced(scratch, {0, 0, 1}, sampling, out);
}

}  // namespace bantam
