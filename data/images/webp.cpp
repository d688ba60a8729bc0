// WebP files by libwebp; of an animation the first picture on its canvas, by libwebpdemux.
#include <memory>

#include <fmt/format.h>
#include <webp/decode.h>
#include <webp/demux.h>

#include "bantam/base/error.h"
#include "bantam/data/images/orientation.h"
#include "bantam/data/images/picture.h"

namespace bantam {
namespace {

const std::uint8_t* data_of(std::span<const std::byte> file) {
  return reinterpret_cast<const std::uint8_t*>(file.data());
}

[[noreturn]] void fail_webp(std::string_view why) { throw DataError(fmt::format("WebP: {}", why)); }

std::string_view text_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_NOT_ENOUGH_DATA:
    case VP8_STATUS_SUSPENDED:
      return "the file is cut short";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "a feature of the format that libwebp does not support";
    case VP8_STATUS_OUT_OF_MEMORY:
      return "too little memory to decode it";
    default:
      return "the file is damaged";
  }
}

WebPBitstreamFeatures features_of(std::span<const std::byte> file) {
  WebPBitstreamFeatures features;
  if (const VP8StatusCode status = WebPGetFeatures(data_of(file), file.size(), &features); status != VP8_STATUS_OK)
    fail_webp(text_of(status));
  check_picture_size("WebP", {features.height, features.width});
  return features;
}

/// Reads the chunks EXIF and XMP. (RIFF: four letters, a size, so many bytes, one more where that is odd.)
int orientation(std::span<const std::byte> file) {
  OrientationMetadata found;
  constexpr std::size_t kHeader = 8;
  for (std::size_t at = 12; at + kHeader <= file.size();) {
    std::size_t bytes = 0;
    for (std::size_t i = 4; i > 0; --i) bytes = bytes << 8 | std::to_integer<std::size_t>(file[at + 3 + i]);
    if (bytes > file.size() - at - kHeader) break;
    const std::string_view type(reinterpret_cast<const char*>(file.data()) + at, 4);
    if (type == "EXIF") found.exif = file.subspan(at + kHeader, bytes);
    if (type == "XMP ") found.xmp = file.subspan(at + kHeader, bytes);
    at += kHeader + bytes + bytes % 2;
  }
  return orientation_of(found);
}

/// The canvas after the first picture, which may be smaller: what it does not cover is transparent.
void decode_animation(std::span<const std::byte> file, Picture& out) {
  WebPAnimDecoderOptions options;
  if (WebPAnimDecoderOptionsInit(&options) == 0) fail_webp("libwebpdemux has another version than it was built for");
  options.color_mode = MODE_RGBA;
  const WebPData data{data_of(file), file.size()};
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(WebPAnimDecoderNew(&data, &options),
                                                                             WebPAnimDecoderDelete);
  std::uint8_t* canvas = nullptr;
  int time = 0;
  if (decoder == nullptr || WebPAnimDecoderGetNext(decoder.get(), &canvas, &time) == 0)
    fail_webp("the animation's first picture is damaged, or the file is cut short");
  std::copy_n(canvas, out.bytes.size(), out.bytes.data());
}

}  // namespace

ImageHeader webp_header(std::span<const std::byte> file) {
  const WebPBitstreamFeatures features = features_of(file);
  return {.type = ImageFileType::webp,
          .size = {features.height, features.width},
          .channels = features.has_alpha != 0 ? 4 : 3,
          .orientation = orientation(file)};
}

void decode_webp(std::span<const std::byte> file, Picture& out) {
  const WebPBitstreamFeatures features = features_of(file);
  const ImageSize size{features.height, features.width};
  const bool is_animation = features.has_animation != 0;
  check_enough_bytes("WebP", size, file.size());
  out.reshape(size, features.has_alpha != 0 || is_animation ? PixelLayout::rgba : PixelLayout::rgb, 8);
  if (is_animation) return decode_animation(file, out);
  WebPDecoderConfig config;
  if (WebPInitDecoderConfig(&config) == 0) fail_webp("libwebp has another version than it was built for");
  config.output.colorspace = out.layout == PixelLayout::rgba ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {out.bytes.data(), static_cast<int>(out.row_bytes()), out.bytes.size()};
  const VP8StatusCode status = WebPDecode(data_of(file), file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status != VP8_STATUS_OK) fail_webp(text_of(status));
}

}  // namespace bantam
