// Members of tar archives, also compressed ones, into memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace bantam {

/// Files of a tar archive (plain, .gz, .xz, .bz2 or .zst) by the last part of their names, of those in `wanted`,
/// together of at most `most_bytes`; what is not there is left out. Archives of more than 1 GiB are refused. Nothing is
/// written to disk. Throws DataError that names the archive.
std::map<std::string, std::vector<std::uint8_t>> read_members(const std::filesystem::path& archive,
                                                              const std::set<std::string>& wanted,
                                                              std::int64_t most_bytes);

}  // namespace bantam
