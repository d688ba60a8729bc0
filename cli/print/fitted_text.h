// Tables whose names are as long as a line has room for.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace bantam::cli {

/// `text_of(most)` writes at most so many characters of each name. Returns its text with the longest names with which
/// no line is longer than `columns`; where lines are longer in any case, with names of `least` characters.
std::string fitted_text(std::size_t columns, std::size_t least,
                        const std::function<std::string(std::size_t most)>& text_of);

/// Columns of the text's longest line.
std::size_t longest_line(const std::string& text);

}  // namespace bantam::cli
