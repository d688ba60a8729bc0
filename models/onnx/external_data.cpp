// Locations, offsets and lengths are a file's own claims: each is checked before anything is opened or allocated.
#include "bantam/models/onnx/external_data.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"

namespace bantam::onnx {
namespace {

namespace fs = std::filesystem;

/// Tensors may share a range, but not so often that a small file fills the memory.
constexpr std::uint64_t kMostReads = 4;

std::uint64_t number_of(const std::string& text, std::string_view key, std::uint64_t otherwise) {
  if (text.empty()) return otherwise;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    throw DataError(fmt::format("external data: {} '{}'; expected a number of bytes", key, shown(text, 40)));
  return number;
}

fs::path folder_of(const fs::path& file) { return file.has_parent_path() ? file.parent_path() : fs::path("."); }

bool is_within(const fs::path& file, const fs::path& folder) {
  const auto [rest, _] = std::mismatch(folder.begin(), folder.end(), file.begin(), file.end());
  return rest == folder.end();
}

/// Files of the folder that hold external data by their names, for a message.
std::string candidates(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& [name, is_folder] : list_entries(folder, error))
    if (name.ends_with(".data") || name.ends_with(".onnx_data")) names.push_back("'" + shown(name) + "'");
  std::ranges::sort(names);
  if (names.size() > 4) names.resize(4);
  return names.empty() ? "" : fmt::format(" (there is {})", join(names, ", ", " and "));
}

/// The file with links resolved. Throws DataError where it is not within the folder of `model`, as named or with the
/// model's own links resolved: caches keep both as links into one folder.
fs::path resolved(const fs::path& model, const std::string& location) {
  const fs::path relative(location);
  if (location.empty() || location.find('\0') != std::string::npos)
    throw DataError("external data: its location is not the name of a file");
  if (relative.is_absolute())
    throw DataError(
        fmt::format("its values lie in '{}'; expected a file in the folder of the ONNX file", shown(location)));
  const fs::path folder = folder_of(model);
  std::error_code error;
  const fs::path file = fs::weakly_canonical(folder / relative, error);
  const auto holds = [&](const fs::path& at) {
    std::error_code unresolved;
    const fs::path resolved_folder = fs::canonical(at, unresolved);
    return !unresolved && is_within(file, resolved_folder);
  };
  const fs::path real_model = fs::canonical(model, error);
  if (!holds(folder) && (error || !holds(folder_of(real_model)))) {
    if (!is_folder(folder)) throw DataError(fmt::format("the folder {} does not exist", folder.string()));
    throw DataError(fmt::format(
        "its values lie in '{}', which is outside the folder of the ONNX file{}; copy that file into the folder",
        shown(location), relative.has_parent_path() ? "" : " (a link leads there)"));
  }
  return file;
}

}  // namespace

ExternalData::File& ExternalData::open(const std::string& location) {
  if (const auto found = files_.find(location); found != files_.end()) return found->second;
  const fs::path path = resolved(model_, location);
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw DataError(fmt::format(
        "its values lie in '{}', which is not beside the ONNX file{}: copy both files together, under these names",
        shown(location), candidates(folder_of(model_))));
  if (!fs::is_regular_file(status))
    throw DataError(fmt::format("its values lie in '{}', which is not a regular file", shown(location)));
  File file{.stream = std::ifstream(path, std::ios::binary), .size = fs::file_size(path, error)};
  if (!file.stream || error) throw DataError(fmt::format("cannot open '{}'", shown(location)));
  return files_.emplace(location, std::move(file)).first->second;
}

std::string ExternalData::read(const ExternalRange& range, std::uint64_t bytes) {
  File& file = open(range.location);
  const std::uint64_t offset = number_of(range.offset, "offset", 0), length = number_of(range.length, "length", bytes);
  if (length != bytes)
    throw DataError(
        fmt::format("{} bytes of values in '{}'; its extents and type need {}", length, shown(range.location), bytes));
  if (offset > file.size || bytes > file.size - offset)
    throw DataError(
        fmt::format("its values are {} bytes from byte {} on of '{}', which has {}: the file is cut short, "
                    "or of another export",
                    bytes, offset, shown(range.location), file.size));
  file.read += bytes;
  if (file.read > kMostReads * file.size)
    throw DataError(
        fmt::format("tensors share the bytes of '{}' more than {} times", shown(range.location), kMostReads));
  std::string data(bytes, '\0');
  file.stream.seekg(static_cast<std::streamoff>(offset));
  if (!file.stream.read(data.data(), static_cast<std::streamsize>(bytes)))
    throw DataError(fmt::format("'{}' ends while it is read", shown(range.location)));
  return data;
}

}  // namespace bantam::onnx
