// Files of a folder, by their names: what the finders of data sets share.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bantam::run {

std::string lower_case(std::string_view text);

/// "path: data/flowers.csv", quoted where YAML needs it.
std::string path_key(const std::filesystem::path& path);

/// A folder's files, or itself where it is one.
std::vector<std::filesystem::path> files_at(const std::filesystem::path& at);

/// Those of them that end in one of `suffixes` (small letters), in letters of either case.
std::vector<std::filesystem::path> with_suffix(const std::filesystem::path& at,
                                               std::span<const std::string_view> suffixes);

/// The first of `names` (small letters) that is among `known`, in letters of either case; empty: none is.
std::string first_of(const std::vector<std::string>& known, std::span<const std::string_view> names);

/// Whether there are image files anywhere below a folder.
bool has_images(const std::filesystem::path& folder);

}  // namespace bantam::run
