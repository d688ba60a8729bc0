// Messages of exceptions that are not Bantam's own: the standard library's and other libraries' words become sentences.
#pragma once

#include <exception>
#include <filesystem>
#include <string>

namespace bantam {

/// The message of an `Error` as it is; of others what has happened, and, where there is one, what helps. May throw
/// std::bad_alloc.
std::string plain_words(const std::exception& error);

/// The system's words for an error number, as errno has it: "No space left on device".
std::string reason_text(int number);

/// Where temporary files go: TMPDIR, or /tmp. Throws DataError that says so where that is no folder.
std::filesystem::path temporary_folder();

/// Questions about a path that have an answer where it cannot be asked about (a folder that may not be searched, a name
/// that is too long): no. File and folder are regular ones, links followed; the size is 0 then.
bool is_folder(const std::filesystem::path& path) noexcept;
bool is_file(const std::filesystem::path& path) noexcept;
std::uintmax_t size_of_file(const std::filesystem::path& path) noexcept;

}  // namespace bantam
