// Image files, from bytes to pixels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bantam/data/files/image_types.h"
#include "bantam/data/images/image.h"

namespace bantam {

/// Larger images are refused.
inline constexpr std::uint64_t kMostPixels = std::uint64_t{1} << 28;
/// So are longer ones, as a JPEG cannot be: resampling needs memory in proportion to the sides' quotient.
inline constexpr std::int64_t kMostSide = 65535;

/// The facts that a file states before its pixels are decoded. Sizes are those of the upright image: the orientation
/// that EXIF, XMP or a TIFF's tag says is applied, here and by all functions below.
struct ImageHeader {
  ImageFileType type = ImageFileType::jpeg;
  ImageSize size;
  std::int64_t channels = 0;  ///< as stored: 1 to 4; of a JPEG with four inks 3
  int bits = 8;               ///< of a channel as stored: 1 to 16; 32: float
  int orientation = 1;        ///< EXIF's, 1 to 8

  bool has_alpha() const { return channels == 2 || channels == 4; }
};

/// The pixels that are wanted of a file.
struct PixelForm {
  std::int64_t channels = 3;                  ///< 1 (grey), 3 (RGB) or 4 (RGBA), whatever the file has
  std::optional<Background> background = {};  ///< shows through transparent pixels where no alpha is asked for
  bool as_stored = false;                     ///< float32 values as stored, in an Image of four bytes a channel

  PixelForm(std::int64_t channels) : channels(channels) {}
  /// Asks for pixels as a data set's encoded images have them.
  explicit PixelForm(const DatasetFacts& facts)
      : channels(facts.image_shape[2]), background(facts.background), as_stored(facts.image_dtype == DType::float32) {}
};

/// Reads the header in a whole file's bytes. Throws DataError that says what is wrong; the caller adds the file's name.
ImageHeader read_image_header(std::span<const std::byte> file);

/// All pixels: grey of colour is (19595·R + 38470·G + 7471·B + 2^15) >> 16; without an alpha channel alpha is 255; an
/// alpha channel that is not asked for is dropped, so that transparent pixels have the colour that they are stored
/// with, unless the form has a background; 16 bits become 8 by rounding v / 257, unless values are wanted as stored.
/// Throws DataError, also for files cut short and for images of more than kMostPixels.
void decode_image(std::span<const std::byte> file, const PixelForm& form, Image& out);

/// The pixels of a whole JPEG that another decoder has decoded (GpuDecoder): rows of RGB, not yet turned upright.
struct StoredRgb {
  ImageSize size;  ///< as stored
  int orientation = 1;
  const std::uint8_t* pixels = nullptr;  ///< null: that decoder has not decoded it

  ImageSize upright_size() const;
};
void decode_image(const StoredRgb& decoded, const PixelForm& form, Image& out);

/// The class numbers of a mask file, as the data's masks are read (DatasetFacts::masks; without it the file's numbers
/// are the classes, if those have names). Throws DataError, which names `field` and the first pixel that is no class.
void decode_mask(std::span<const std::byte> file, const DatasetFacts& facts, const std::string& field, Image& out);

/// Resizes a mask to its image's size where `facts.masks` says `resize` (each pixel the nearest one's class). Throws
/// DataError where it says no such thing and the sizes differ.
void fit_mask(Image& mask, ImageSize size, const DatasetFacts& facts, const std::string& field);

/// `sampling` of the file's image, bilinear. Decodes no more than it needs: rows and columns around the window, and an
/// upright JPEG at 1/2, 1/4 or 1/8 where that still has twice as many rows and columns as are wanted (values are then
/// within 1/255 of those of the whole image's resampling, in the mean; else equal). A pure function of its arguments.
/// `scratch` holds what is decoded. Rows after the window are not read: damage in them is not noticed.
void decode_sampled(std::span<const std::byte> file, const PixelForm& form, const Sampling& sampling, Image& scratch,
                    Image& out);
/// The same of pixels that are decoded already.
void decode_sampled(const StoredRgb& decoded, const PixelForm& form, const Sampling& sampling, Image& scratch,
                    Image& out);

}  // namespace bantam
