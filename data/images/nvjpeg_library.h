// nvJPEG's C interface as far as it is used here, and the library that has it, loaded at run time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace bantam {

/// Types and functions by NVIDIA's documentation (https://docs.nvidia.com/cuda/nvjpeg/, sections 2.2 to 2.4: names in
/// comments), which promises them for all of nvJPEG 12 and 13. Enumerations are ints, streams and handles pointers.
struct NvjpegApi {
  /// nvjpegStatus_t
  enum Status : int {
    success = 0,
    bad_jpeg = 3,
    jpeg_not_supported = 4,
    allocator_failure = 5,
    execution_failed = 6,
    internal_error = 8,
    implementation_not_supported = 9,
    incomplete_bitstream = 10
  };
  /// nvjpegBackend_t: who decodes Huffman codes.
  enum Backend : int { gpu_hybrid = 2, hardware = 3 };
  /// NVJPEG_OUTPUT_RGBI of nvjpegOutputFormat_t
  static constexpr int kInterleavedRgb = 5;
  /// NVJPEG_FLAGS_BITSTREAM_STRICT: files that break the standard are an error.
  static constexpr unsigned kStrict = 4;
  /// NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION, from 12.1 on: chroma between its samples, as libjpeg-turbo has it.
  static constexpr unsigned kInterpolated = 32;

  /// nvjpegImage_t
  struct Image {
    unsigned char* channel[4] = {};
    std::size_t pitch[4] = {};
  };
  /// nvjpegDevAllocatorV2_t, nvjpegPinnedAllocatorV2_t
  struct Allocator {
    int (*allocate)(void* context, void** address, std::size_t bytes, void* stream) = nullptr;
    int (*release)(void* context, void* address, std::size_t bytes, void* stream) = nullptr;
    void* context = nullptr;
  };

  int (*property)(int which, int* value) = nullptr;  ///< nvjpegGetProperty; 0, 1, 2: major, minor, patch version
  /// nvjpegCreateExV2
  int (*create)(int backend, Allocator* device, Allocator* pinned, unsigned flags, void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;                     ///< nvjpegDestroy
  int (*create_state)(void* handle, void** state) = nullptr;  ///< nvjpegJpegStateCreate
  int (*destroy_state)(void* state) = nullptr;                ///< nvjpegJpegStateDestroy
  /// nvjpegDecodeBatchedInitialize
  int (*begin_batch)(void* handle, void* state, int files, int cpu_threads, int format) = nullptr;
  /// nvjpegDecodeBatched
  int (*decode_batch)(void* handle, void* state, const unsigned char* const* files, const std::size_t* bytes,
                      Image* images, void* stream) = nullptr;
  int (*create_header)(void* handle, void** header) = nullptr;  ///< nvjpegJpegStreamCreate
  int (*destroy_header)(void* header) = nullptr;                ///< nvjpegJpegStreamDestroy
  /// nvjpegJpegStreamParseHeader
  int (*parse_header)(void* handle, const unsigned char* file, std::size_t bytes, void* header) = nullptr;
  /// nvjpegDecodeBatchedSupported: sets 0 for a file that decode_batch can decode.
  int (*supports)(void* handle, void* header, int* unsupported) = nullptr;
};

/// The library: the one that the environment variable BANTAM_NVJPEG names, else libnvjpeg.so.13, .12 or without number.
class NvjpegLibrary : public NvjpegApi {
 public:
  /// Throws DeviceError that names what was tried, and where the library lacks a function.
  NvjpegLibrary();

  /// "12.3"
  std::string version() const;
  /// Whether it knows `kInterpolated`.
  bool interpolates_chroma() const { return major_ > 12 || (major_ == 12 && minor_ >= 1); }

 private:
  int major_ = 0, minor_ = 0;
};

}  // namespace bantam
