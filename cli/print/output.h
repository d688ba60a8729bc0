// Everything that the program writes on standard output and standard error passes here; nothing else in cli/ calls
// the library's functions for that (include_rules_test): no name of a file, a class or a tensor reaches a terminal that
// would obey it.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace bantam::cli {

/// Writes `printable(text)`. What cannot be written is reported by main().
void write_text(std::string_view text, std::FILE* to = stdout);

/// Writes a file's text, byte by byte where a program or a file receives it; on a terminal as `write_text`.
void write_file_text(std::string_view text);

/// Draws a line, at most `columns` of it, over the one that the cursor is in: the cursor stays there.
void draw_line(std::string_view line, std::size_t columns, std::FILE* to);

template <class... Values>
void print_out(fmt::format_string<Values...> format, Values&&... values) {
  write_text(fmt::format(format, std::forward<Values>(values)...));
}

template <class... Values>
void print_error(fmt::format_string<Values...> format, Values&&... values) {
  write_text(fmt::format(format, std::forward<Values>(values)...), stderr);
}

}  // namespace bantam::cli
