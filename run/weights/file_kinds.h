// The kind of a file that was brought in the place of weights: a model of another program, an archive, a web page.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace bantam::run {

/// The first bytes of a regular file, at most `most`. Throws DataError.
std::string first_bytes(const std::filesystem::path& path, std::size_t most);

/// How many bytes other_kind() reads.
inline constexpr std::size_t kFileKindBegin = 512;
/// "it is an HDF5 file, as Keras writes models (.h5)", with what to do, for a file that begins with these bytes and is
/// neither safetensors nor PyTorch's; formats without a mark of their own are known by the file's name. Empty where it
/// is not known.
std::string other_kind(const std::filesystem::path& path, std::string_view begin);
/// The same for a zip archive that is not PyTorch's, by the names of its members.
std::string other_archive(std::span<const std::string> members);

/// Throws DataError where a folder stands in the place of a weights file: with the files in it that may be meant.
void refuse_folder(const std::filesystem::path& path);
/// Throws DataError where the file, which is not PyTorch's, is of another kind (other_kind). One that may be a
/// safetensors file is none, whatever the length of its header is.
void refuse_other_kinds(const std::filesystem::path& path, std::string_view begin);

}  // namespace bantam::run
