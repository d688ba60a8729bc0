// Text of tables as UTF-8, whatever encoding and compression their files have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace bantam {

enum class TextEncoding : std::uint8_t {
  automatic,  ///< by the byte order mark; else UTF-8, or Windows-1252 where the bytes are no UTF-8
  utf8,
  utf16,  ///< little-endian where no byte order mark says otherwise
  latin1  ///< Windows-1252, which has all characters of ISO 8859-1
};

/// The text itself where it is UTF-8; else its bytes read as Windows-1252. Names of files and folders need not be text,
/// but names of classes are written into YAML and JSON.
std::string as_utf8(std::string_view text);

struct TableText {
  std::string text;                ///< UTF-8 without byte order mark; rows end with LF or CRLF
  std::vector<std::string> notes;  ///< sentences for the user: how the text was read, where that was a guess
};

/// Reads a file: plain, compressed (.gz, .xz, .bz2, .zst), or the one table of a .zip archive; at most 16 GiB of text.
/// Throws DataError for other files, by what they are: .xlsx, .xls and .parquet with what to do about it.
TableText read_table_text(const std::filesystem::path& path, TextEncoding encoding = TextEncoding::automatic);

}  // namespace bantam
