// How small a file becomes when it is compressed: what pruning is worth where a model is stored or sent.
#pragma once

#include <filesystem>

#include "bantam/run/run.h"

namespace bantam::run {

/// Reads the file in parts and keeps nothing of it. Throws DataError.
CompressedSize compressed_size_of(const std::filesystem::path& path);

}  // namespace bantam::run
