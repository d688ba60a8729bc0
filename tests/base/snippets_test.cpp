// Code in the pages of docs/ is code of the tree: each line of a block that begins with "```cpp from=FILE" stands in
// FILE, which the tests build and run. Comments, indentation and where lines are cut do not count.
#include <cctype>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"

namespace bantam::snippets_test {
namespace {

namespace fs = std::filesystem;

/// The text without comments and spaces.
std::string code_of(const std::string& text) {
  std::string code;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find("//"));
    for (const char c : line)
      if (std::isspace(static_cast<unsigned char>(c)) == 0) code += c;
  }
  return code;
}

struct Block {
  int line = 0;  ///< of the page
  std::string from;
  std::vector<std::string> lines;
};

/// The blocks of a page that say which file they are from.
std::vector<Block> blocks_of(const std::string& page) {
  const std::string fence = "```", mark = fence + "cpp from=";
  std::vector<Block> blocks;
  bool inside = false;
  int number = 0;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.starts_with(mark)) {
      blocks.push_back({number, line.substr(mark.size()), {}});
      inside = true;
    } else if (line.starts_with(fence)) {
      inside = false;
    } else if (inside) {
      blocks.back().lines.push_back(line);
    }
  }
  return blocks;
}

/// Lines of the block that are not in `source`.
std::vector<std::string> strangers(const Block& block, const std::string& source) {
  const std::string code = code_of(source);
  std::vector<std::string> found;
  for (const std::string& line : block.lines)
    if (code.find(code_of(line)) == std::string::npos) found.push_back(line);
  return found;
}

TEST(Snippets, OfPagesAreCodeOfTheTree) {
  const fs::path root = BANTAM_SOURCE_DIR;
  int blocks = 0;
  for (const auto& entry : fs::directory_iterator(root / "docs")) {
    if (entry.path().extension() != ".md") continue;
    for (const Block& block : blocks_of(read_file(entry.path()))) {
      ++blocks;
      ASSERT_TRUE(fs::exists(root / block.from)) << entry.path() << ":" << block.line << ": no file " << block.from;
      for (const std::string& line : strangers(block, read_file(root / block.from)))
        ADD_FAILURE() << entry.path().filename().string() << ":" << block.line << ": not in " << block.from << ": "
                      << line;
    }
  }
  EXPECT_GE(blocks, 10) << "where are the snippets?";
}

TEST(SnippetChecker, FindsALineThatIsNotThere) {
  const std::vector<Block> blocks =
      blocks_of("text\n```cpp from=a.cpp\nint a =  1;  // one\nint b;\n```\n```cpp\nint c;\n```\n");
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].line, 2);
  EXPECT_EQ(strangers(blocks[0], "int a =\n    1;\n"), std::vector<std::string>{"int b;"});
}

}  // namespace
}  // namespace bantam::snippets_test
