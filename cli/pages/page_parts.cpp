// Unpacks the files of the pages, which CMake joins and compresses (cli/CMakeLists.txt).
#include "bantam/cli/pages/page_parts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include <fmt/format.h>
#include <zlib.h>

#include "bantam/base/error.h"
#include "packed_pages.h"

namespace bantam::cli {
namespace {

constexpr char kBeforeName = '\x1e', kBeforeText = '\x1f';  // ASCII's separators of records and of units
constexpr int kGzip = 16;                                   // zlib's flag: the data has a header of gzip's

std::string unpacked() {
  std::string text(report::kTextBytes, '\0');
  z_stream stream{};
  stream.next_in = const_cast<Bytef*>(report::kPacked);  // zlib declares no const, and only reads
  stream.avail_in = sizeof(report::kPacked);
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = static_cast<uInt>(text.size());
  if (::inflateInit2(&stream, MAX_WBITS + kGzip) != Z_OK) throw Error("the pages could not be unpacked: no memory");
  const int code = ::inflate(&stream, Z_FINISH);
  ::inflateEnd(&stream);
  if (code != Z_STREAM_END || stream.avail_out != 0)
    throw Error(
        fmt::format("the pages could not be unpacked: expected {} bytes, got {}", text.size(), stream.total_out));
  return text;
}

/// Texts by their names.
std::map<std::string, std::string, std::less<>> parts_of(std::string_view text) {
  std::map<std::string, std::string, std::less<>> parts;
  while (!text.empty()) {
    const std::size_t name_end = text.find(kBeforeText), end = std::min(text.find(kBeforeName, 1), text.size());
    parts[std::string(text.substr(1, name_end - 1))] = text.substr(name_end + 1, end - name_end - 1);
    text.remove_prefix(end);
  }
  return parts;
}

}  // namespace

const std::string& page_part(std::string_view name) {
  static const std::map<std::string, std::string, std::less<>> parts = parts_of(unpacked());
  const auto part = parts.find(name);
  if (part == parts.end()) throw Error(fmt::format("the program has no page part {}", name));
  return part->second;
}

}  // namespace bantam::cli
