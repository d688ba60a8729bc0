// A stand-in for libnvjpeg whose device is the host: the functions that are used, by libjpeg. It is strict about its
// caller, allocates by the caller's callbacks alone, and fails where a file's comment "fake:N" or the environment asks
// for it. Of files with the comment "soft:" its hardware says that it does not support them, and passes over them;
// those with "skip:" it passes over unasked.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

// libjpeg's header uses FILE and size_t without including what declares them.
#include <jpeglib.h>

#include "bantam/data/images/guarded_call.h"
#include "bantam/data/images/nvjpeg_library.h"

namespace {

using Api = bantam::NvjpegApi;
using Bytes = std::span<const unsigned char>;

constexpr int kInvalid = 2, kArchMismatch = 7;

struct Handle {
  Api::Allocator device, pinned;
  bool hardware = false;
  int objects = 0;  // states and headers that live
};

/// A buffer by the caller's callbacks, which grows.
struct Buffer {
  Api::Allocator by;
  void* address = nullptr;
  std::size_t bytes = 0;

  bool grow(std::size_t wanted) {
    if (wanted <= bytes) return true;
    if (address != nullptr) by.release(by.context, address, bytes, nullptr);
    address = nullptr, bytes = 0;
    if (by.allocate(by.context, &address, wanted, nullptr) != 0) return false;
    bytes = wanted;
    std::memset(address, 0xAB, bytes);
    return true;
  }
  ~Buffer() {
    if (address != nullptr) by.release(by.context, address, bytes, nullptr);
  }
};

struct State {
  Handle& of;
  Buffer device, pinned;
  int files = 0;  // 0: no batch was begun
};

struct Header {
  Handle& of;
  bool supported = false;
};

std::size_t number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : static_cast<std::size_t>(std::atoll(text));
}

/// The status that the file's comment asks for.
int asked_status(Bytes file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  const std::size_t place = text.find("fake:");
  return place == std::string_view::npos ? Api::success : std::atoi(text.substr(place + 5, 2).data());
}

bool says(Bytes file, std::string_view word) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  return text.find(word) != std::string_view::npos;
}

/// libjpeg's pixels, by its own conversion to RGB.
int decode(Bytes file, const Api::Image& image) {
  struct Decoder {
    jpeg_decompress_struct info{};
    jpeg_error_mgr errors{};
    bantam::GuardedCall call;
  } decoder;
  jpeg_decompress_struct& info = decoder.info;
  info.err = jpeg_std_error(&decoder.errors);
  info.client_data = &decoder;
  decoder.errors.error_exit = [](j_common_ptr common) { static_cast<Decoder*>(common->client_data)->call.fail(""); };
  decoder.errors.output_message = [](j_common_ptr) {};
  const bool whole = decoder.call.run([&] {
    jpeg_create_decompress(&info);
    info.client_data = &decoder;
    jpeg_mem_src(&info, file.data(), file.size());
    jpeg_read_header(&info, TRUE);
    info.out_color_space = JCS_RGB;
    jpeg_start_decompress(&info);
    for (JDIMENSION y = 0; y < info.output_height; ++y) {
      JSAMPROW row = image.channel[0] + y * image.pitch[0];
      jpeg_read_scanlines(&info, &row, 1);
    }
  });
  jpeg_destroy_decompress(&info);
  return whole ? Api::success : Api::bad_jpeg;
}

int decode_file(State& state, Bytes file, const Api::Image& image) {
  if (const int status = asked_status(file); status != Api::success) return status;
  if (reinterpret_cast<std::uintptr_t>(image.channel[0]) % 256 != 0) return kInvalid;
  if (state.of.hardware && (says(file, "soft:") || says(file, "skip:"))) return Api::success;
  const std::size_t more = number_of("FAKE_NVJPEG_BYTES");
  if (!state.device.grow(4 * file.size() + more) || !state.pinned.grow(file.size())) return Api::allocator_failure;
  return decode(file, image);
}

}  // namespace

extern "C" {

int nvjpegGetProperty(int which, int* value) {
  *value = which == 0 ? 12 : which == 1 ? 3 : 1;
  return Api::success;
}

int nvjpegCreateExV2(int backend, Api::Allocator* device, Api::Allocator* pinned, unsigned flags, void** handle) {
  if (device == nullptr || pinned == nullptr || flags != (Api::kStrict | Api::kInterpolated)) return kInvalid;
  if (backend == Api::hardware && number_of("FAKE_NVJPEG_HARDWARE") == 0) return kArchMismatch;
  if (number_of("FAKE_NVJPEG_BROKEN") != 0) return kArchMismatch;
  *handle = new Handle{*device, *pinned, backend == Api::hardware};
  return Api::success;
}

int nvjpegDestroy(void* handle) {
  if (static_cast<Handle*>(handle)->objects != 0) std::abort();  // they would outlive it
  delete static_cast<Handle*>(handle);
  return Api::success;
}

int nvjpegJpegStateCreate(void* handle, void** state) {
  Handle& by = *static_cast<Handle*>(handle);
  *state = new State{by, {by.device}, {by.pinned}};
  ++by.objects;
  return Api::success;
}

int nvjpegJpegStateDestroy(void* state) {
  --static_cast<State*>(state)->of.objects;
  delete static_cast<State*>(state);
  return Api::success;
}

int nvjpegJpegStreamCreate(void* handle, void** header) {
  if (number_of("FAKE_NVJPEG_NO_HEADERS") != 0) return kInvalid;
  Handle& by = *static_cast<Handle*>(handle);
  *header = new Header{by};
  ++by.objects;
  return Api::success;
}

int nvjpegJpegStreamDestroy(void* header) {
  --static_cast<Header*>(header)->of.objects;
  delete static_cast<Header*>(header);
  return Api::success;
}

int nvjpegJpegStreamParseHeader(void*, const unsigned char* file, std::size_t bytes, void* header) {
  static_cast<Header*>(header)->supported = !says({file, bytes}, "soft:");
  return Api::success;
}

int nvjpegDecodeBatchedSupported(void* handle, void* header, int* unsupported) {
  if (!static_cast<Handle*>(handle)->hardware) return kInvalid;
  *unsupported = static_cast<Header*>(header)->supported ? 0 : 1;
  return Api::success;
}

int nvjpegDecodeBatchedInitialize(void*, void* state, int files, int cpu_threads, int format) {
  if (files < 1 || cpu_threads < 1 || format != Api::kInterleavedRgb) return kInvalid;
  static_cast<State*>(state)->files = files;
  return Api::success;
}

int nvjpegDecodeBatched(void*, void* state, const unsigned char* const* files, const std::size_t* bytes,
                        Api::Image* images, void*) {
  State& of = *static_cast<State*>(state);
  if (of.files == 0) return kInvalid;
  for (int i = 0; i < of.files; ++i)
    if (const int status = decode_file(of, {files[i], bytes[i]}, images[i]); status != Api::success) {
      of.files = 0;  // it is to be begun anew
      return status;
    }
  return Api::success;
}
}
