#include "bantam/data/images/decode.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/data/formats/mask_values.h"
#include "bantam/data/images/channels.h"
#include "bantam/data/images/jpeg.h"
#include "bantam/data/images/mask.h"
#include "bantam/data/images/orientation.h"
#include "bantam/data/images/picture.h"
#include "bantam/data/images/png.h"
#include "bantam/data/images/resample.h"
#include "bantam/data/images/resample_box.h"

namespace bantam {
namespace {

/// A type whose files are decoded whole, by its library or its reader.
struct WholeType {
  ImageFileType type;
  ImageHeader (*header)(std::span<const std::byte> file);
  void (*decode)(std::span<const std::byte> file, Picture& out);
};

constexpr WholeType kWholeTypes[] = {
#ifdef BANTAM_WITH_WEBP
    {ImageFileType::webp, webp_header, decode_webp},
#endif
#ifdef BANTAM_WITH_GIF
    {ImageFileType::gif, gif_header, decode_gif},
#endif
#ifdef BANTAM_WITH_TIFF
    {ImageFileType::tiff, tiff_header, decode_tiff},
#endif
    {ImageFileType::bmp, bmp_header, decode_bmp},    {ImageFileType::pnm, pnm_header, decode_pnm},
};

/// image_type_of names those that are not built in.
const WholeType& whole_type(ImageFileType type) { return *std::ranges::find(kWholeTypes, type, &WholeType::type); }

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

/// 8-bit values as float32.
void widen(Image& image) {
  const std::size_t count = image.pixels.size();
  image.channels *= static_cast<std::int64_t>(sizeof(float));
  image.pixels.resize(count * sizeof(float));
  for (std::size_t i = count; i > 0; --i) {  // from the end: each is read before it is written over
    const float value = image.pixels[i - 1];
    std::memcpy(&image.pixels[(i - 1) * sizeof(float)], &value, sizeof value);
  }
}

/// A file of which a part is decoded, once.
class ImageFile {
 public:
  explicit ImageFile(std::span<const std::byte> file) : file_(file), type_(image_type_of(file)) {
    if (type_ == ImageFileType::jpeg)
      header_ = jpeg_.emplace(file).stored_header();
    else if (type_ == ImageFileType::png)
      header_ = png_.emplace(file).stored_header();
    else
      header_ = whole_type(type_).header(file);
  }

  /// With the extents as stored.
  const ImageHeader& stored_header() const { return header_; }
  ImageHeader header() const {
    ImageHeader upright = header_;
    upright.size = oriented(header_.size, header_.orientation);
    return upright;
  }
  /// Whether a part can be decoded at 1/2, 1/4 and 1/8.
  bool is_reducible() const {
    // An odd orientation cuts off another end of a block of pixels: the reduced image is turned, and has no exact
    // place.
    return type_ == ImageFileType::jpeg && header_.orientation == 1;
  }
  /// Decodes the part `upright` of the upright image at 1 / denominator.
  void read(const PixelBox& upright, int denominator, const PixelForm& form, Image& out) {
    const ImageSize size = jpeg_ ? jpeg_->reduced_size(denominator) : header_.size;
    const PixelBox box = stored_box(upright, size, header_.orientation);
    if (header_.orientation == 1) return read_stored(box, denominator, form, out);
    Image stored;
    read_stored(box, denominator, form, stored);
    orient(stored, header_.orientation, out);
  }

 private:
  void read_stored(const PixelBox& box, int denominator, const PixelForm& form, Image& out) {
    if (form.as_stored) return read_values(box, denominator, form, out);
    if (!form.background || form.channels == 4 || !header_.has_alpha())
      return read_bytes(box, denominator, form.channels, out);
    Image rgba;
    read_bytes(box, denominator, 4, rgba);
    flatten(rgba, *form.background, form.channels, out);
  }
  void read_bytes(const PixelBox& box, int denominator, std::int64_t channels, Image& out) {
    if (jpeg_) return jpeg_->read(box, denominator, channels, out);
    if (png_) return png_->read(box, channels, out);
    Picture whole;
    whole_type(type_).decode(file_, whole);
    convert_picture(whole, box, channels, out);
  }
  void read_values(const PixelBox& box, int denominator, const PixelForm& form, Image& out) {
    if (jpeg_) {
      jpeg_->read(box, denominator, form.channels, out);
      return widen(out);
    }
    Picture picture;
    if (!png_) {
      whole_type(type_).decode(file_, picture);
      return convert_values(picture, box, form, out);
    }
    png_->read_picture(box, picture);
    convert_values(picture, {0, 0, box.size}, form, out);
  }

  std::span<const std::byte> file_;
  ImageFileType type_;
  std::optional<JpegDecoder> jpeg_;
  std::optional<PngDecoder> png_;
  ImageHeader header_;
};

/// The part of a decoded picture that `box` shows, as stored.
void copy_rows(const StoredRgb& decoded, const PixelBox& box, std::int64_t channels, Image& out) {
  constexpr std::int64_t kRgb = 3;
  out.reshape(box.size, channels);
  for (std::int64_t y = 0; y < box.size.height; ++y)
    convert_pixels(PixelLayout::rgb, decoded.pixels + ((box.top + y) * decoded.size.width + box.left) * kRgb, channels,
                   out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes(), box.size.width);
}

void read_rgb(const StoredRgb& decoded, const PixelBox& upright, const PixelForm& form, Image& out) {
  const PixelBox box = stored_box(upright, decoded.size, decoded.orientation);
  if (decoded.orientation == 1) {
    copy_rows(decoded, box, form.channels, out);
  } else {
    Image stored;
    copy_rows(decoded, box, form.channels, stored);
    orient(stored, decoded.orientation, out);
  }
  if (form.as_stored) widen(out);
}

void resample_window(const Image& in, const Sampling& sampling, const PixelForm& form, Image& out) {
  if (form.as_stored)
    resample_values(in, {.window = sampling.window, .size = sampling.size, .mirrored = sampling.mirrored}, out);
  else
    resample_reduced(in, {0, 0, 1}, sampling, out);
}

}  // namespace

ImageHeader read_image_header(std::span<const std::byte> file) { return ImageFile(file).header(); }

void decode_image(std::span<const std::byte> file, const PixelForm& form, Image& out) {
  check_channels(form.channels);
  ImageFile image(file);
  image.read({0, 0, image.header().size}, 1, form, out);
}

ImageSize StoredRgb::upright_size() const { return oriented(size, orientation); }

void decode_image(const StoredRgb& decoded, const PixelForm& form, Image& out) {
  check_channels(form.channels);
  read_rgb(decoded, {0, 0, decoded.upright_size()}, form, out);
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

void decode_sampled(std::span<const std::byte> file, const PixelForm& form, const Sampling& sampling, Image& scratch,
                    Image& out) {
  check_channels(form.channels);
  const PixelBox window{sampling.top, sampling.left, sampling.window};
  ImageFile image(file);
  check_within(sampling, image.header().size);
  if (!image.is_reducible() || form.as_stored) {
    image.read(window, 1, form, scratch);
    return resample_window(scratch, sampling, form, out);
  }
  const int denominator = denominator_of(sampling);
  const PixelBox box = reduced(window, denominator);
  image.read(box, denominator, form, scratch);
  resample_reduced(scratch, {window.top - box.top * denominator, window.left - box.left * denominator, denominator},
                   sampling, out);
}

void decode_sampled(const StoredRgb& decoded, const PixelForm& form, const Sampling& sampling, Image& scratch,
                    Image& out) {
  check_channels(form.channels);
  check_within(sampling, decoded.upright_size());
  read_rgb(decoded, {sampling.top, sampling.left, sampling.window}, form, scratch);
  resample_window(scratch, sampling, form, out);
}

}  // namespace bantam
