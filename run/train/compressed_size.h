// How small a file becomes when it is compressed: what pruning is worth where a model is stored or sent.
#pragma once

#include <cstdint>
#include <filesystem>

namespace bantam::run {

struct CompressedSize {
  std::uint64_t bytes = 0;       ///< of the file
  std::uint64_t gzip_bytes = 0;  ///< after gzip at its usual level, 6
};

/// Reads the file in parts and keeps nothing of it. Throws DataError.
CompressedSize compressed_size_of(const std::filesystem::path& path);

}  // namespace bantam::run
