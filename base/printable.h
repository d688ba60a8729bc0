// Names of any bytes as text that can be shown: what `printable` and `shown` (text.h) write, on one line and in JSON.
#pragma once

#include <string>
#include <string_view>

namespace bantam {

/// `printable` of a name, on one line: newlines and tabs are \n and \t.
///
/// All of them write as escapes what a terminal or a page would obey, or nobody would see: control characters and bytes
/// that are no UTF-8 as \x1b; C1, marks of the writing direction, spaces of no width and Unicode's ends of lines as
/// \u202e. The joiners U+200C and U+200D stay between characters beyond ASCII, where emoji and Persian are spelt with
/// them.
std::string printable_line(std::string_view text);

/// JSON's own text with the same characters as JSON's escapes: it says the same, and a terminal can show it.
std::string printable_json(std::string_view json);

/// Whether all of `text` is well-formed UTF-8.
bool is_utf8(std::string_view text);

/// Base64 of RFC 4648, with padding.
std::string base64(std::string_view bytes);

}  // namespace bantam
