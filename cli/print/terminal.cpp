// The environment first, then the terminal itself.
#include "bantam/cli/print/terminal.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include <sys/ioctl.h>
#include <unistd.h>

namespace bantam::cli {
namespace {

int columns_or(std::FILE* out, int otherwise) {
  constexpr int kLeast = 20, kMost = 10'000;
  if (const char* text = std::getenv("COLUMNS")) {
    const std::string_view digits = text;
    int columns = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), columns);
    if (error == std::errc() && end == digits.data() + digits.size() && columns >= kLeast && columns <= kMost)
      return columns;
  }
  winsize size{};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return otherwise;
}

}  // namespace

int terminal_columns(std::FILE* out) { return columns_or(out, 80); }
int table_columns(std::FILE* out) { return columns_or(out, 120); }

}  // namespace bantam::cli
