// The names of libraries and functions.
#include "bantam/data/images/nvjpeg_library.h"

#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/shared_library.h"

namespace bantam {
namespace {

std::vector<std::string> names() {
  const char* own = std::getenv("BANTAM_NVJPEG");
  if (own != nullptr && *own != 0) return {own};
  return {"libnvjpeg.so.13", "libnvjpeg.so.12", "libnvjpeg.so", "/usr/local/cuda/lib64/libnvjpeg.so"};
}

}  // namespace

NvjpegLibrary::NvjpegLibrary() {
  const SharedLibrary library("nvJPEG", names());
  library.bind(property, "nvjpegGetProperty");
  library.bind(create, "nvjpegCreateExV2");
  library.bind(destroy, "nvjpegDestroy");
  library.bind(create_state, "nvjpegJpegStateCreate");
  library.bind(destroy_state, "nvjpegJpegStateDestroy");
  library.bind(begin_batch, "nvjpegDecodeBatchedInitialize");
  library.bind(decode_batch, "nvjpegDecodeBatched");
  library.bind(create_header, "nvjpegJpegStreamCreate");
  library.bind(destroy_header, "nvjpegJpegStreamDestroy");
  library.bind(parse_header, "nvjpegJpegStreamParseHeader");
  library.bind(supports, "nvjpegDecodeBatchedSupported");
  if (property(0, &major_) != success || property(1, &minor_) != success)
    throw DeviceError("nvJPEG does not tell its version");
}

std::string NvjpegLibrary::version() const { return fmt::format("{}.{}", major_, minor_); }

}  // namespace bantam
