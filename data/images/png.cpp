#include "bantam/data/images/png.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <png.h>

#include "bantam/base/error.h"
#include "bantam/data/images/channels.h"
#include "bantam/data/images/guarded_call.h"
#include "bantam/data/images/orientation.h"

namespace bantam {
namespace {

/// Deflate's best ratio is 1032 : 1.
constexpr std::uint64_t kMostRatio = 1032;
/// Limits a chunk that is no pixels; libpng's own default is 8 million bytes as well.
constexpr png_alloc_size_t kMostChunkBytes = 8000000;

/// Room for the end of the image's data, and for what some encoders pad them with.
constexpr std::size_t kMostAfterLastRow = std::size_t{1} << 16;

}  // namespace

struct PngDecoder::State {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> rest;  ///< the part of the file that libpng has not read yet
  bool is_at_last_row = false;
  std::size_t after_last_row = 0;  ///< bytes of the file that may be read while the last row is
  GuardedCall call;
  int orientation = 1;

  ~State() { png_destroy_read_struct(&png, &info, nullptr); }
  template <class Work>
  void run(const Work& work) {
    if (!call.run(work)) throw DataError(fmt::format("PNG: {}", call.message()));
  }
  void open();
  void refuse_impossible_sizes(std::size_t file_bytes);
  std::int64_t width() const { return png_get_image_width(png, info); }
  std::int64_t height() const { return png_get_image_height(png, info); }
  PixelLayout layout() const;
  template <class Use>
  void for_rows(const PixelBox& box, const Use& use);
};

void PngDecoder::State::open() {
  run([this] {
    png = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp of, png_const_charp message) { static_cast<State*>(png_get_error_ptr(of))->call.fail(message); },
        [](png_structp, png_const_charp) {});
    info = png == nullptr ? nullptr : png_create_info_struct(png);
  });
  if (info == nullptr) throw std::bad_alloc();
  run([this] {
    png_set_read_fn(png, this, [](png_structp of, png_bytep to, png_size_t size) {
      State& state = *static_cast<State*>(png_get_io_ptr(of));
      if (size > state.rest.size()) state.call.fail("the file is cut short");
      if (state.is_at_last_row) {
        if (size > state.after_last_row) state.call.fail("its image data go on after its last row");
        state.after_last_row -= size;
      }
      std::memcpy(to, state.rest.data(), size);
      state.rest = state.rest.subspan(size);
    });
    png_set_user_limits(png, static_cast<png_uint_32>(kMostPixels), static_cast<png_uint_32>(kMostPixels));
    png_set_chunk_malloc_max(png, kMostChunkBytes);
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_read_info(png, info);
  });
}

void PngDecoder::State::refuse_impossible_sizes(std::size_t file_bytes) {
  const auto rows = static_cast<std::uint64_t>(height());
  if (static_cast<std::uint64_t>(width()) > kMostPixels / rows)
    throw DataError(fmt::format("PNG: {} x {} pixels, at most 2^28 are supported", width(), height()));
  if (std::max(width(), height()) > kMostSide)
    throw DataError(
        fmt::format("PNG: {} x {} pixels, at most {} of a side are supported", width(), height(), kMostSide));
  if (rows * png_get_rowbytes(png, info) / kMostRatio > file_bytes)
    throw DataError(fmt::format("PNG: {} bytes are too few for {} x {} pixels", file_bytes, width(), height()));
}

PngDecoder::PngDecoder(std::span<const std::byte> file) : state_(std::make_unique<State>()) {
  state_->rest = file;
  state_->orientation = png_orientation(file);
  state_->open();
  state_->refuse_impossible_sizes(file.size());
}

PngDecoder::~PngDecoder() = default;

ImageHeader PngDecoder::stored_header() const {
  const png_byte type = png_get_color_type(state_->png, state_->info);
  const bool clear = png_get_valid(state_->png, state_->info, PNG_INFO_tRNS) != 0;
  ImageHeader header{.type = ImageFileType::png, .size = {state_->height(), state_->width()}};
  header.orientation = state_->orientation;
  header.bits = png_get_bit_depth(state_->png, state_->info);
  header.channels =
      ((type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1) + ((type & PNG_COLOR_MASK_ALPHA) != 0 || clear ? 1 : 0);
  return header;
}

PixelLayout PngDecoder::State::layout() const {
  switch (png_get_channels(png, info)) {
    case 1:
      return PixelLayout::grey;
    case 2:
      return PixelLayout::grey_alpha;
    case 3:
      return PixelLayout::rgb;
    default:
      return PixelLayout::rgba;
  }
}

/// Calls `use(row of the box, its first pixel)`. An interlaced file is decoded whole first.
template <class Use>
void PngDecoder::State::for_rows(const PixelBox& box, const Use& use) {
  int passes = 1;
  run([&] {
    passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
  });
  const std::size_t row_bytes = png_get_rowbytes(png, info);
  const std::size_t skipped = static_cast<std::size_t>(box.left) * (row_bytes / static_cast<std::size_t>(width()));
  const std::int64_t last = box.top + box.size.height;
  const bool whole = passes > 1;
  std::vector<png_byte> rows(row_bytes * static_cast<std::size_t>(whole ? height() : 1));
  run([&] {
    for (int pass = 1; pass < passes; ++pass)
      for (std::int64_t y = 0; y < height(); ++y)
        png_read_row(png, rows.data() + static_cast<std::size_t>(y) * row_bytes, nullptr);
    // After the last row libpng decompresses whatever else there is, which may be a thousand times as much.
    after_last_row = 2 * png_get_rowbytes(png, info) + kMostAfterLastRow;
    for (std::int64_t y = 0; y < last; ++y) {
      png_byte* row = rows.data() + (whole ? static_cast<std::size_t>(y) * row_bytes : 0);
      is_at_last_row = y + 1 == height();
      png_read_row(png, row, nullptr);
      if (y >= box.top) use(y - box.top, row + skipped);
    }
  });
}

void PngDecoder::read(const PixelBox& box, std::int64_t channels, Image& out) {
  State& state = *state_;
  out.reshape(box.size, channels);
  state.run([&] {
    png_set_scale_16(state.png);
    png_set_expand(state.png);
  });
  state.for_rows(box, [&](std::int64_t y, const png_byte* row) {
    convert_pixels(state.layout(), row, channels, out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes(),
                   box.size.width);
  });
}

void PngDecoder::read_picture(const PixelBox& box, Picture& out) {
  State& state = *state_;
  const bool wide = png_get_bit_depth(state.png, state.info) == 16;
  state.run([&] {
    png_set_expand(state.png);
    if (wide && std::endian::native == std::endian::little) png_set_swap(state.png);
  });
  bool is_shaped = false;  // once the number of channels is known
  state.for_rows(box, [&](std::int64_t y, const png_byte* row) {
    if (!std::exchange(is_shaped, true)) out.reshape(box.size, state.layout(), wide ? 16 : 8);
    std::memcpy(out.bytes.data() + static_cast<std::size_t>(y) * out.row_bytes(), row, out.row_bytes());
  });
}

void PngDecoder::read_stored(StoredMask& out) {
  State& state = *state_;
  const int bits = png_get_bit_depth(state.png, state.info);
  const bool has_palette = png_get_color_type(state.png, state.info) == PNG_COLOR_TYPE_PALETTE;
  out.size = {state.height(), state.width()};
  out.is_colour = state.layout() == PixelLayout::rgb || state.layout() == PixelLayout::rgba;
  if (has_palette) {
    png_colorp colours = nullptr;
    int count = 0;
    png_get_PLTE(state.png, state.info, &colours, &count);
    for (int i = 0; i < count; ++i) out.palette.push_back({colours[i].red, colours[i].green, colours[i].blue});
  } else if (bits < 8) {
    const int most = (1 << bits) - 1;
    for (int i = 0; i <= most; ++i) {
      const auto grey = static_cast<std::uint8_t>(i * 255 / most);
      out.palette.push_back({grey, grey, grey});
    }
  }
  state.run([&] {
    png_set_packing(state.png);
    if (out.is_colour) png_set_scale_16(state.png);
  });
  const auto channels = static_cast<std::size_t>(channels_of(state.layout()));
  const auto width = static_cast<std::size_t>(state.width());
  if (out.is_colour)
    out.pixels.resize(out.count() * 3);
  else
    out.numbers.resize(out.count());
  const bool wide = bits == 16 && !out.is_colour;
  state.for_rows({0, 0, out.size}, [&](std::int64_t y, const png_byte* row) {
    const std::size_t first = static_cast<std::size_t>(y) * width;
    for (std::size_t x = 0; x < width; ++x) {
      const png_byte* pixel = row + x * channels * (wide ? 2 : 1);
      if (out.is_colour)
        std::copy_n(pixel, 3, &out.pixels[(first + x) * 3]);
      else
        out.numbers[first + x] = static_cast<std::uint16_t>(wide ? pixel[0] << 8 | pixel[1] : pixel[0]);
    }
  });
}

}  // namespace bantam
