// The exception's type decides, the most special one first.
#include "bantam/base/plain_words.h"

#include <cerrno>
#include <cstdlib>
#include <new>
#include <string_view>
#include <system_error>
#include <typeinfo>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

std::string words_of(const std::filesystem::filesystem_error& error) {
  const std::string what = error.code().message();
  if (error.path1().empty()) return fmt::format("a file or folder cannot be used: {}", what);
  const std::string second = error.path2().empty() ? "" : fmt::format(" and {}", error.path2().string());
  return fmt::format("{}{}: cannot be used: {}", error.path1().string(), second, what);
}

/// EAGAIN is what the system says of a thread that it does not start.
std::string words_of(const std::system_error& error) {
  if (error.code().value() == EAGAIN)
    return "the system starts no further thread: the limit of processes is reached (`ulimit -u`, or pids.max of the "
           "container); raise it, or use fewer threads: --threads 1 and data.pipeline.prefetch: {workers: 0}";
  return fmt::format("a call of the system has failed: {}", error.code().message());
}

}  // namespace

std::string plain_words(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return "the host has no memory left, or the process may not have more (`ulimit -v`, or memory.max of the "
           "container)";
  if (const auto* of_files = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) return words_of(*of_files);
  if (const auto* of_system = dynamic_cast<const std::system_error*>(&error)) return words_of(*of_system);
  std::string_view what = error.what();
  // nlohmann's: "[json.exception.type_error.302] type must be string, but is number".
  if (what.starts_with("[json.exception"))
    return fmt::format("JSON is not as it is expected: {}", what.substr(std::min(what.find("] ") + 2, what.size())));
  if (dynamic_cast<const std::logic_error*>(&error) != nullptr)
    return fmt::format("a fault of Bantam itself, please report it with the command: {} ({})", what,
                       typeid(error).name());
  return std::string(what);
}

std::string reason_text(int number) { return std::generic_category().message(number); }

std::filesystem::path temporary_folder() {
  const char* const named = std::getenv("TMPDIR");
  std::filesystem::path folder = named != nullptr && *named != '\0' ? named : "/tmp";
  if (is_folder(folder)) return folder;
  throw DataError(fmt::format("{}: is no folder, and temporary files go there{}", folder.string(),
                              named != nullptr ? " because TMPDIR says so: set TMPDIR to a folder that is there"
                                               : ": make it, or set TMPDIR to a folder that is there"));
}

bool is_folder(const std::filesystem::path& path) noexcept {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

bool is_file(const std::filesystem::path& path) noexcept {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

std::uintmax_t size_of_file(const std::filesystem::path& path) noexcept {
  std::error_code error;
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  return error ? 0 : bytes;
}

}  // namespace bantam
