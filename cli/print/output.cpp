// The only calls that write to the program's standard streams, but for a signal's handler.
#include "bantam/cli/print/output.h"

#include <unistd.h>

#include "bantam/base/text.h"

namespace bantam::cli {
namespace {

void write_bytes(std::string_view bytes, std::FILE* to) { (void)std::fwrite(bytes.data(), 1, bytes.size(), to); }

}  // namespace

void write_text(std::string_view text, std::FILE* to) { write_bytes(printable(text), to); }

void write_file_text(std::string_view text) {
  if (isatty(STDOUT_FILENO) != 0) return write_text(text);
  write_bytes(text, stdout);
}

void draw_line(std::string_view line, std::size_t columns, std::FILE* to) {
  std::string drawn = printable(line);
  while (display_width(drawn) > columns) drawn.pop_back();
  write_bytes("\r" + drawn + "\x1b[K", to);
  std::fflush(to);
}

}  // namespace bantam::cli
