// GIF files by giflib: the first picture, where it lies on the file's canvas.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <gif_lib.h>

#include "bantam/base/error.h"
#include "bantam/data/images/picture.h"

namespace bantam {
namespace {

[[noreturn]] void fail_gif(int error) {
  const char* text = GifErrorString(error);
  throw DataError(fmt::format("GIF: {}", text != nullptr ? text : "the file is damaged"));
}

using OpenGif = std::unique_ptr<GifFileType, void (*)(GifFileType*)>;

/// `rest`, which outlives it, is what has not been read.
OpenGif open_gif(std::span<const std::byte>& rest) {
  int error = 0;
  const auto read = [](GifFileType* gif, GifByteType* to, int bytes) {
    auto& rest = *static_cast<std::span<const std::byte>*>(gif->UserData);
    const std::size_t count = std::min(rest.size(), static_cast<std::size_t>(std::max(bytes, 0)));
    if (count > 0) std::memcpy(to, rest.data(), count);
    rest = rest.subspan(count);
    return static_cast<int>(count);
  };
  OpenGif gif(DGifOpen(&rest, read, &error), [](GifFileType* open) { DGifCloseFile(open, nullptr); });
  if (gif == nullptr) fail_gif(error);
  check_picture_size("GIF", {gif->SHeight, gif->SWidth});
  return gif;
}

/// Reads up to the first picture's descriptor; returns the number of the transparent colour before it, if any.
std::optional<int> find_picture(GifFileType& gif) {
  std::optional<int> transparent;
  for (;;) {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    if (DGifGetRecordType(&gif, &type) == GIF_ERROR) fail_gif(gif.Error);
    if (type == TERMINATE_RECORD_TYPE) throw DataError("GIF: the file has no picture");
    if (type == IMAGE_DESC_RECORD_TYPE) {
      if (DGifGetImageDesc(&gif) == GIF_ERROR) fail_gif(gif.Error);
      return transparent;
    }
    if (type != EXTENSION_RECORD_TYPE) continue;
    int code = 0;
    GifByteType* block = nullptr;  // its first byte is its length
    if (DGifGetExtension(&gif, &code, &block) == GIF_ERROR) fail_gif(gif.Error);
    GraphicsControlBlock control;
    if (code == GRAPHICS_EXT_FUNC_CODE && block != nullptr &&
        DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
      transparent =
          control.TransparentColor == NO_TRANSPARENT_COLOR ? std::nullopt : std::optional(control.TransparentColor);
    while (block != nullptr)
      if (DGifGetExtensionNext(&gif, &block) == GIF_ERROR) fail_gif(gif.Error);
  }
}

/// Cuts `rest` to what a picture can need: codes that clear the table make no pixel, and cost their time. A code has at
/// most 12 bits, and the shortest table holds a code for each code that clears it.
void limit_picture(const GifImageDesc& place, std::span<const std::byte>& rest) {
  constexpr std::size_t kBytesOfAPixel = 4, kAnyPicture = 65536;
  const std::size_t pixels =
      static_cast<std::size_t>(std::max(place.Width, 0)) * static_cast<std::size_t>(std::max(place.Height, 0));
  rest = rest.first(std::min(rest.size(), kBytesOfAPixel * pixels + kAnyPicture));
}

/// Numbers of colours on the canvas: the transparent one, or 0, where the picture does not reach.
std::vector<std::uint8_t> read_numbers(GifFileType& gif, ImageSize canvas, std::optional<int> transparent) {
  const GifImageDesc& place = gif.Image;
  const auto width = static_cast<std::size_t>(canvas.width);
  std::vector<std::uint8_t> numbers(width * static_cast<std::size_t>(canvas.height),
                                    static_cast<std::uint8_t>(transparent.value_or(0)));
  check_picture_size("GIF", {place.Height, place.Width});
  std::vector<GifPixelType> row(static_cast<std::size_t>(place.Width));
  struct Pass {
    int first, step;
  };
  constexpr Pass kPasses[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  constexpr Pass kWhole[] = {{0, 1}};
  for (const Pass& pass : place.Interlace ? std::span<const Pass>(kPasses) : std::span<const Pass>(kWhole))
    for (int y = pass.first; y < place.Height; y += pass.step) {
      if (DGifGetLine(&gif, row.data(), place.Width) == GIF_ERROR) fail_gif(gif.Error);
      const int top = place.Top + y, seen = std::min<int>(place.Width, static_cast<int>(canvas.width) - place.Left);
      if (top < canvas.height && seen > 0)
        std::memcpy(numbers.data() + static_cast<std::size_t>(top) * width + static_cast<std::size_t>(place.Left),
                    row.data(), static_cast<std::size_t>(seen));
    }
  return numbers;
}

/// A picture that reaches beyond the canvas makes that larger.
ImageSize canvas_of(const GifFileType& gif) {
  const ImageSize size{std::max(gif.SHeight, gif.Image.Top + gif.Image.Height),
                       std::max(gif.SWidth, gif.Image.Left + gif.Image.Width)};
  check_picture_size("GIF", size);
  return size;
}

}  // namespace

ImageHeader gif_header(std::span<const std::byte> file) {
  std::span<const std::byte> rest = file;
  const OpenGif gif = open_gif(rest);
  const bool is_clear = find_picture(*gif).has_value();
  return {.type = ImageFileType::gif, .size = canvas_of(*gif), .channels = is_clear ? 4 : 3};
}

void decode_gif(std::span<const std::byte> file, Picture& out) {
  std::span<const std::byte> rest = file;
  const OpenGif gif = open_gif(rest);
  const std::optional<int> transparent = find_picture(*gif);
  const ImageSize canvas = canvas_of(*gif);
  check_enough_bytes("GIF", canvas, file.size());
  limit_picture(gif->Image, rest);
  const std::vector<std::uint8_t> numbers = read_numbers(*gif, canvas, transparent);
  const ColorMapObject* colours = gif->Image.ColorMap != nullptr ? gif->Image.ColorMap : gif->SColorMap;
  out.reshape(canvas, transparent ? PixelLayout::rgba : PixelLayout::rgb, 8);
  std::uint8_t* to = out.bytes.data();
  const auto step = channels_of(out.layout);
  for (const std::uint8_t number : numbers) {
    GifColorType colour{0, 0, 0};
    if (colours == nullptr)
      colour = {number, number, number};
    else if (number < colours->ColorCount)
      colour = colours->Colors[number];
    to[0] = colour.Red;
    to[1] = colour.Green;
    to[2] = colour.Blue;
    if (step == 4) to[3] = number == *transparent ? 0 : 255;
    to += step;
  }
}

}  // namespace bantam
