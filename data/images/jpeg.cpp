#include "bantam/data/images/jpeg.h"

#include <algorithm>
#include <cstdio>

#include <fmt/format.h>
// libjpeg's header uses FILE and size_t without including what declares them.
#include <jpeglib.h>
// After jpeglib.h, which it needs.
#include <jerror.h>

#include "bantam/base/error.h"
#include "bantam/data/images/channels.h"
#include "bantam/data/images/guarded_call.h"
#include "bantam/data/images/orientation.h"

namespace bantam {
namespace {

/// Files of more scans are made to keep decoders busy: cameras and encoders write about ten.
constexpr int kMostScans = 100;
/// Limits libjpeg's own memory: coefficients of a progressive file of 2^28 pixels and three channels.
constexpr long kMostLibraryBytes = 2L << 30;
/// Pixels around a window that its own depend on: upsampled chroma is filtered with its neighbours.
constexpr std::int64_t kChromaMargin = 2;

/// Warnings of damage: bits, codes or restart markers are missing, and libjpeg would guess blocks. After all others
/// (parameters of a scan that cameras leave zero, bytes before a marker, a missing end) every block is there.
bool is_damage(int code) {
  return code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC ||
         code == JWRN_ARITH_BAD_CODE;
}

}  // namespace

struct JpegDecoder::State {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  GuardedCall call;
  int orientation = 1;
  bool has_warned = false;       ///< libjpeg had something to say about the file
  bool ends_early = false;       ///< the file has no end marker
  unsigned components_read = 0;  ///< a bit each, of those in a scan

  [[noreturn]] void fail() {
    if (ends_early) call.fail("the file is cut short");  // libjpeg names what it found in place of the rest
    char message[JMSG_LENGTH_MAX];
    errors.format_message(reinterpret_cast<j_common_ptr>(&info), message);
    call.fail(message);
  }
  static State& of(j_common_ptr info) { return *static_cast<State*>(info->client_data); }

  template <class Work>
  void run(const Work& work) {
    if (!call.run(work)) throw DataError(fmt::format("JPEG: {}", call.message()));
  }
  void report_errors_here();
  void choose_output(int denominator, std::int64_t channels);
  PixelLayout layout() const;
  void refuse_impossible_sizes(std::size_t file_bytes) const;
  void check_all_scans();
  void read_rows(const PixelBox& box, Image& out);
};

void JpegDecoder::State::report_errors_here() {
  info.err = jpeg_std_error(&errors);
  info.client_data = this;
  errors.error_exit = [](j_common_ptr common) { of(common).fail(); };
  errors.emit_message = [](j_common_ptr common, int level) {
    if (level >= 0) return;
    State& state = of(common);  // level -1 are warnings
    const bool lacks_bits = common->err->msg_code == JWRN_JPEG_EOF && state.info.arith_code != FALSE;  // told so alone
    if (lacks_bits || (state.ends_early && is_damage(common->err->msg_code))) state.call.fail("the file is cut short");
    if (is_damage(common->err->msg_code)) state.fail();
    state.has_warned = true;
    state.ends_early = state.ends_early || common->err->msg_code == JWRN_JPEG_EOF;
  };
  errors.output_message = [](j_common_ptr) {};
  progress.progress_monitor = [](j_common_ptr common) {
    State& state = of(common);
    if (state.info.input_scan_number > kMostScans) state.call.fail("more than 100 scans");
    for (int i = 0; i < state.info.comps_in_scan; ++i)
      state.components_read |= 1U << state.info.cur_comp_info[i]->component_index;
  };
}

JpegDecoder::JpegDecoder(std::span<const std::byte> file) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.report_errors_here();
  state.orientation = jpeg_orientation(file);
  try {
    state.run([&] {
      jpeg_create_decompress(&state.info);
      state.info.client_data = &state;
      state.info.progress = &state.progress;
      state.info.mem->max_memory_to_use = kMostLibraryBytes;
      jpeg_mem_src(&state.info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
      jpeg_read_header(&state.info, TRUE);
    });
    state.refuse_impossible_sizes(file.size());
  } catch (...) {
    jpeg_destroy_decompress(&state.info);
    throw;
  }
}

JpegDecoder::~JpegDecoder() { jpeg_destroy_decompress(&state_->info); }

void JpegDecoder::State::refuse_impossible_sizes(std::size_t file_bytes) const {
  const std::uint64_t pixels = std::uint64_t{info.image_width} * info.image_height;
  if (pixels > kMostPixels)
    throw DataError(
        fmt::format("JPEG: {} x {} pixels, at most 2^28 are supported", info.image_width, info.image_height));
  // Each block of 8 x 8 values costs a Huffman code, which has a bit.
  if (!info.arith_code && pixels / 64 > std::uint64_t{file_bytes} * 8)
    throw DataError(
        fmt::format("JPEG: {} bytes are too few for {} x {} pixels", file_bytes, info.image_width, info.image_height));
}

ImageHeader JpegDecoder::stored_header() const {
  return {ImageFileType::jpeg,
          {state_->info.image_height, state_->info.image_width},
          state_->info.num_components == 1 ? 1 : 3,
          state_->info.data_precision,
          state_->orientation};
}

bool JpegDecoder::has_common_form() const {
  const jpeg_decompress_struct& info = state_->info;
  if (info.arith_code || info.data_precision != 8 || state_->has_warned) return false;
  const bool is_usual_scan = info.Ss == 0 && info.Se == DCTSIZE2 - 1 && info.Ah == 0 && info.Al == 0;
  if (!info.progressive_mode && !is_usual_scan) return false;
  const jpeg_component_info* parts = info.comp_info;
  const auto sampled = [](const jpeg_component_info& part, int across, int down) {
    return part.h_samp_factor == across && part.v_samp_factor == down;
  };
  if (info.jpeg_color_space == JCS_GRAYSCALE) return sampled(parts[0], 1, 1);
  return info.jpeg_color_space == JCS_YCbCr && parts[0].h_samp_factor <= 2 && parts[0].v_samp_factor <= 2 &&
         sampled(parts[1], 1, 1) && sampled(parts[2], 1, 1);
}

bool JpegDecoder::has_one_scan() const {
  return !state_->info.progressive_mode && state_->info.comps_in_scan == state_->info.num_components;
}

ImageSize JpegDecoder::reduced_size(int denominator) const {
  const std::int64_t d = denominator;
  return {(state_->info.image_height + d - 1) / d, (state_->info.image_width + d - 1) / d};
}

void JpegDecoder::State::choose_output(int denominator, std::int64_t channels) {
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(denominator);
  if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK)
    info.out_color_space = JCS_CMYK;
  else if (info.jpeg_color_space == JCS_GRAYSCALE && channels == 1)
    info.out_color_space = JCS_GRAYSCALE;
  else
    info.out_color_space = channels == 4 ? JCS_EXT_RGBA : JCS_RGB;
}

PixelLayout JpegDecoder::State::layout() const {
  switch (info.out_color_space) {
    case JCS_CMYK:
      return PixelLayout::cmyk;
    case JCS_GRAYSCALE:
      return PixelLayout::grey;
    case JCS_EXT_RGBA:
      return PixelLayout::rgba;
    default:
      return PixelLayout::rgb;
  }
}

void JpegDecoder::State::read_rows(const PixelBox& box, Image& out) {
  const PixelLayout stored = layout();
  JDIMENSION left = static_cast<JDIMENSION>(std::max<std::int64_t>(box.left - kChromaMargin, 0));
  JDIMENSION width =
      static_cast<JDIMENSION>(std::min<std::int64_t>(box.left + box.size.width + kChromaMargin, info.output_width)) -
      left;
  if (width < info.output_width) jpeg_crop_scanline(&info, &left, &width);
  // libjpeg starts at a multiple of its blocks, before the wanted column.
  const std::size_t skipped = (static_cast<std::size_t>(box.left) - left) * channels_of(stored);
  const auto top = static_cast<JDIMENSION>(box.top);
  if (top > 0 && jpeg_skip_scanlines(&info, top) != top) call.fail("rows are missing");

  // One byte off the alignment of its memory: libjpeg-turbo writes aligned rows past the cache, from which they would
  // then be fetched back.
  JSAMPROW row = info.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&info), JPOOL_IMAGE,
                                        width * static_cast<JDIMENSION>(info.output_components) + 1, 1)[0] +
                 1;
  for (std::int64_t y = 0; y < box.size.height; ++y) {
    if (jpeg_read_scanlines(&info, &row, 1) != 1) call.fail("rows are missing");
    convert_pixels(stored, row + skipped, out.channels,
                   out.pixels.data() + static_cast<std::size_t>(y) * out.row_bytes(), box.size.width);
  }
}

/// A file of several scans that ends without an end marker may lack some of them, which libjpeg does not tell.
void JpegDecoder::State::check_all_scans() {
  if (!ends_early || jpeg_has_multiple_scans(&info) == FALSE) return;
  if (components_read != (1U << info.num_components) - 1) call.fail("the file is cut short: scans are missing");
  if (info.coef_bits == nullptr) return;
  for (int component = 0; component < info.num_components; ++component)
    for (int i = 0; i < DCTSIZE2; ++i)
      if (info.coef_bits[component][i] != 0) call.fail("the file is cut short: scans are missing");
}

void JpegDecoder::read(const PixelBox& box, int denominator, std::int64_t channels, Image& out) {
  State& state = *state_;
  out.reshape(box.size, channels);
  state.run([&] {
    state.choose_output(denominator, channels);
    jpeg_start_decompress(&state.info);
    state.check_all_scans();
    state.read_rows(box, out);
  });
}

}  // namespace bantam
