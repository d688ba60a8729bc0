// The length is found by halving: longer names make no line shorter.
#include "bantam/cli/print/fitted_text.h"

#include <algorithm>

#include "bantam/base/text.h"

namespace bantam::cli {
std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    longest = std::max(longest, display_width(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return longest;
}

std::string fitted_text(std::size_t columns, std::size_t least,
                        const std::function<std::string(std::size_t most)>& text_of) {
  std::string text = text_of(std::max(columns, least));
  if (longest_line(text) <= columns) return text;
  std::size_t fits = least, too_long = std::max(columns, least);
  while (fits + 1 < too_long) {
    const std::size_t middle = (fits + too_long) / 2;
    (longest_line(text_of(middle)) <= columns ? fits : too_long) = middle;
  }
  return text_of(fits);
}

}  // namespace bantam::cli
