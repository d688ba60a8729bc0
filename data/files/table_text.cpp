// The first bytes say what a file is; then its bytes become UTF-8 in one pass.
#include "bantam/data/files/table_text.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/data/files/file_bytes.h"
#include "bantam/data/files/zip.h"

namespace bantam {
namespace {

namespace fs = std::filesystem;
using namespace std::string_view_literals;

constexpr std::int64_t kMostTableBytes = std::int64_t{16} << 30;
constexpr std::uint32_t kReplacement = 0xFFFD;

/// Code points of the bytes 0x80 to 0x9F in Windows-1252; five of them have none, and stand for themselves.
constexpr std::array<std::uint32_t, 32> kWindows1252 = {0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021,
                                                        0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0x8D,   0x017D, 0x8F,
                                                        0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                                        0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178};

void append_code_point(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

std::string from_windows_1252(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 16);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    append_code_point(text, byte >= 0x80 && byte < 0xA0 ? kWindows1252[byte - 0x80u] : byte);
  }
  return text;
}

std::string from_utf16(std::string_view bytes, bool is_big_endian) {
  const auto unit = [&](std::size_t at) -> std::uint32_t {
    const auto first = static_cast<unsigned char>(bytes[at]), second = static_cast<unsigned char>(bytes[at + 1]);
    return is_big_endian ? first << 8 | second : second << 8 | first;
  };
  std::string text;
  text.reserve(bytes.size() / 2);
  for (std::size_t at = 0; at + 1 < bytes.size(); at += 2) {
    std::uint32_t code = unit(at);
    const bool is_high = code >= 0xD800 && code < 0xDC00, is_low = code >= 0xDC00 && code < 0xE000;
    if (is_high && at + 3 < bytes.size() && unit(at + 2) >= 0xDC00 && unit(at + 2) < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (unit(at + 2) - 0xDC00);
      at += 2;
    } else if (is_high || is_low) {
      code = kReplacement;
    }
    append_code_point(text, code);
  }
  return text;
}

/// Text of letters in UTF-16 without a byte order mark has a zero in every second byte.
std::optional<bool> big_endian_without_mark(std::string_view bytes) {
  const std::size_t pairs = std::min<std::size_t>(bytes.size() / 2, 32);
  std::array<std::size_t, 2> zeros = {};
  for (std::size_t i = 0; i < 2 * pairs; ++i) zeros[i % 2] += bytes[i] == '\0' ? 1 : 0;
  if (pairs < 2) return std::nullopt;
  if (zeros[0] * 4 > pairs * 3 && zeros[1] == 0) return true;
  if (zeros[1] * 4 > pairs * 3 && zeros[0] == 0) return false;
  return std::nullopt;
}

[[noreturn]] void refuse(const std::string& name, std::string_view what) {
  throw DataError(fmt::format(
      "{}: is {}, which is not read: open it in the program that it comes from (a spreadsheet program opens "
      "workbooks) and save it as CSV, \"CSV UTF-8\" where that is offered; numbers may also be .npy arrays (format: "
      "npy)",
      name, what));
}

/// Refuses files that hold tables, but no text.
void refuse_other_kinds(const std::string& name, std::string_view bytes) {
  const auto fail = [&](std::string_view what) { refuse(name, what); };
  if (bytes.starts_with("PAR1"sv)) fail("a Parquet file");
  if (bytes.starts_with("ORC"sv)) fail("an ORC file");
  if (bytes.starts_with("ARROW1"sv) || bytes.starts_with("FEA1"sv)) fail("an Arrow or Feather file");
  if (bytes.starts_with("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv)) fail("an Excel workbook (.xls)");
  if (bytes.starts_with("SQLite format 3"sv)) fail("an SQLite database");
  if (bytes.starts_with("\x89HDF\r\n"sv)) fail("an HDF5 file");
  if (bytes.starts_with("\x93NUMPY"sv))
    throw DataError(fmt::format("{}: is a NumPy array, no CSV text: use format: npy", name));
}

bool is_table_name(std::string_view name) {
  const std::string lower = [&] {
    std::string text(name);
    std::ranges::transform(text, text.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; });
    return text;
  }();
  return lower.ends_with(".csv") || lower.ends_with(".tsv") || lower.ends_with(".txt") || lower.ends_with(".data");
}

/// The one table in a zip archive.
std::unique_ptr<FileBytes> table_in_zip(const fs::path& path) {
  const ZipFile archive(path);
  std::vector<std::string> tables;
  for (const auto& [name, member] : archive.members()) {
    if (name == "xl/workbook.xml") refuse(path.string(), "an Excel workbook (.xlsx)");
    if (name == "content.xml") refuse(path.string(), "an OpenDocument spreadsheet (.ods)");
    if (is_table_name(name) && !name.starts_with("__MACOSX/")) tables.push_back(name);
  }
  if (tables.size() == 1) return archive.open(tables[0]);
  throw DataError(fmt::format(
      "{}: is a zip archive of {}: unpack it, and name one file", path.string(),
      tables.empty() ? "no .csv, .tsv or .txt file"
                     : fmt::format("{} tables ({})", tables.size(), shown(join(tables, ", ", " and "), 200))));
}

std::string bytes_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return read_file(path);  // a pipe, or an error that is told
  std::unique_ptr<FileBytes> file = open_file_bytes(path);
  file->fetch(8);
  std::array<std::uint8_t, 4> begin = {};
  const auto count = static_cast<std::size_t>(std::min<std::int64_t>(file->size(), std::ssize(begin)));
  file->read(0, std::span(begin).first(count));
  if (begin == std::array<std::uint8_t, 4>{'P', 'K', 3, 4}) file = table_in_zip(path);
  file->fetch(kMostTableBytes + 1);
  if (file->size() > kMostTableBytes)
    throw DataError(
        fmt::format("{}: has more than {} bytes of text: split it into several files, or write its numbers "
                    "as .npy arrays, which are read in place",
                    file->name(), format_count(kMostTableBytes)));
  std::string bytes(static_cast<std::size_t>(file->size()), '\0');
  file->read(0, std::span(reinterpret_cast<std::uint8_t*>(bytes.data()), bytes.size()));
  return bytes;
}

}  // namespace

std::string as_utf8(std::string_view text) { return is_utf8(text) ? std::string(text) : from_windows_1252(text); }

TableText read_table_text(const fs::path& path, TextEncoding encoding) {
  TableText table{.text = bytes_of(path), .notes = {}};
  const std::string_view bytes = table.text;
  refuse_other_kinds(path.string(), bytes);
  const bool decides = encoding == TextEncoding::automatic;
  const bool is_little = bytes.starts_with("\xff\xfe"sv), is_big = bytes.starts_with("\xfe\xff"sv);
  const bool is_marked_utf8 = bytes.starts_with("\xef\xbb\xbf"sv);
  const auto guessed = decides && !is_marked_utf8 ? big_endian_without_mark(bytes) : std::nullopt;
  if (encoding == TextEncoding::utf16 || (decides && (is_little || is_big))) {
    table.text = from_utf16(bytes.substr(is_little || is_big ? 2 : 0), is_big);
  } else if (encoding == TextEncoding::latin1) {
    table.text = from_windows_1252(bytes);
  } else if (guessed) {
    table.text = from_utf16(bytes, *guessed);
    table.notes.push_back(fmt::format("{}: is read as UTF-16, as its zero bytes suggest", path.string()));
  } else if (const std::string_view text = bytes.substr(is_marked_utf8 ? 3 : 0); !is_utf8(text)) {
    if (!decides)
      throw DataError(
          fmt::format("{}: is no UTF-8, as data.encoding says it is: use `encoding: latin-1` for files of "
                      "older Windows programs, or `auto`",
                      path.string()));
    table.text = from_windows_1252(text);
    table.notes.push_back(fmt::format(
        "{}: is no UTF-8, and is read as Latin-1 (Windows-1252); `data.encoding: latin-1` says so without this warning",
        path.string()));
  } else if (is_marked_utf8) {
    table.text.erase(0, 3);
  }
  // Files of old Macs end their rows with CR alone.
  if (table.text.find('\n') == std::string::npos) std::ranges::replace(table.text, '\r', '\n');
  return table;
}

}  // namespace bantam
