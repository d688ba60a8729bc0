// NumPy's arrays in a folder or archive: which are the samples, which the labels, and what the labels say.
#pragma once

#include <filesystem>
#include <optional>

#include "bantam/run/init/found_data.h"

namespace bantam::run {

/// An archive (.npz) of arrays. Nothing where there is none. Throws DataError for one whose arrays cannot be told
/// apart, naming them with their shapes.
std::optional<FoundData> find_npz(const std::filesystem::path& at);
/// Files of an array each (.npy).
std::optional<FoundData> find_npy(const std::filesystem::path& at);

}  // namespace bantam::run
