// Text on its way to a terminal.
#include "bantam/cli/print/output.h"

#include <gtest/gtest.h>

namespace bantam::cli::output_test {
namespace {

/// Returns the bytes that `write` writes into a file.
template <class Write>
std::string written(const Write& write) {
  std::FILE* const file = std::tmpfile();
  write(file);
  std::fflush(file);
  std::string text(static_cast<std::size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  const std::size_t read = std::fread(text.data(), 1, text.size(), file);
  std::fclose(file);
  return text.substr(0, read);
}

TEST(Output, TextHasEscapesInPlaceOfWhatATerminalObeys) {
  EXPECT_EQ(written([](std::FILE* file) { write_text("a\x1b[31m\x9b\u202E\n\tgröße\n", file); }),
            "a\\x1b[31m\\x9b\\u202e\n\tgröße\n");
}

TEST(Output, LinesAreCutAfterTheirEscapes) {
  EXPECT_EQ(written([](std::FILE* file) { draw_line("\x1b\x1b\x1b", 10, file); }), "\r\\x1b\\x1b\\x\x1b[K");
  EXPECT_EQ(written([](std::FILE* file) { draw_line("größe", 4, file); }), "\rgröß\x1b[K") << "between characters";
}

TEST(Output, FormattedTextIsTextToo) {
  ::testing::internal::CaptureStdout();
  print_out("{}: {}\n", "a\x1b", 3);
  write_file_text("a\x1b\n");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "a\\x1b: 3\na\x1b\n") << "a file's text into a file, exactly";
  ::testing::internal::CaptureStderr();
  print_error("{}\n", "b\u2066");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "b\\u2066\n");
}

}  // namespace
}  // namespace bantam::cli::output_test
