// The kernels' ledgers: each family has one, every source of the family stands in it, and the lines it tells are about
// those that are there.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/atomic_file.h"

namespace bantam::ledgers_test {
namespace {

namespace fs = std::filesystem;

/// "name.{h,cpp}" → "name.h", "name.cpp".
std::vector<std::string> expanded(const std::string& name) {
  const std::size_t open = name.find('{'), close = name.find('}');
  if (open == std::string::npos || close == std::string::npos) return {name};
  std::vector<std::string> names;
  std::istringstream parts(name.substr(open + 1, close - open - 1));
  for (std::string part; std::getline(parts, part, ',');)
    names.push_back(name.substr(0, open) + part + name.substr(close + 1));
  return names;
}

/// What stands between backquotes.
std::vector<std::string> quoted(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at + 1)) {
    const std::size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    found.push_back(text.substr(at + 1, end - at - 1));
    at = end;
  }
  return found;
}

std::vector<std::string> cells_of(const std::string& row) {
  std::vector<std::string> cells;
  std::size_t from = 2;
  for (std::size_t at = row.find(" |", 1); at != std::string::npos; at = row.find(" |", at + 2)) {
    cells.push_back(at < from ? "" : row.substr(from, at - from));  // "| |": nothing in it
    from = at + 3;
  }
  return cells;
}

std::int64_t lines_of(const fs::path& file) {
  const std::string text = read_file(file);
  return std::count(text.begin(), text.end(), '\n');
}

struct Row {
  std::vector<std::string> files;
  std::int64_t lines = 0;
};

/// Rows of a ledger's table: files in the second column, lines in the last.
std::vector<Row> rows_of(const std::string& ledger) {
  std::vector<Row> rows;
  std::istringstream text(ledger);
  for (std::string line; std::getline(text, line);) {
    const std::vector<std::string> cells = cells_of(line);
    if (!line.starts_with("| ") || cells.size() < 6) continue;
    if (cells.back().find_first_not_of("0123456789") != std::string::npos) continue;  // the head
    Row row;
    row.lines = std::strtoll(cells.back().c_str(), nullptr, 10);
    for (const std::string& name : quoted(cells[1]))
      for (const std::string& file : expanded(name)) row.files.push_back(file);
    rows.push_back(row);
  }
  return rows;
}

/// A backend's folders: cpu/ and cuda/ of each family, and what lies in them.
std::vector<fs::path> families() {
  const fs::path kernels = fs::path(BANTAM_SOURCE_DIR) / "kernels";
  std::vector<fs::path> found;
  for (const auto& entry : fs::recursive_directory_iterator(kernels)) {
    const std::string path = "/" + entry.path().lexically_relative(kernels).generic_string() + "/";
    if (entry.is_directory() && (path.find("/cpu/") != std::string::npos || path.find("/cuda/") != std::string::npos))
      found.push_back(entry.path());
  }
  return found;
}

TEST(Ledgers, TellAboutHowManyLinesKernelsAre) {
  ASSERT_GE(families().size(), 20u);
  for (const fs::path& family : families()) {
    ASSERT_TRUE(fs::exists(family / "README.md")) << family;
    const std::vector<Row> rows = rows_of(read_file(family / "README.md"));
    EXPECT_FALSE(rows.empty()) << family;
    for (const Row& row : rows) {
      std::int64_t lines = 0;
      for (const std::string& file : row.files) {
        ASSERT_TRUE(fs::exists(family / file)) << family << " has no " << file;
        lines += lines_of(family / file);
      }
      // A reader weighs gain against size: a tenth more or less changes no mind.
      EXPECT_NEAR(static_cast<double>(row.lines), static_cast<double>(lines), 5.0 + 0.1 * static_cast<double>(lines))
          << family << ", the row of " << (row.files.empty() ? "no file" : row.files.front());
    }
  }
}

TEST(Ledgers, NameEverySourceOfTheirFamily) {
  for (const fs::path& family : families()) {
    std::set<std::string> named;
    for (const Row& row : rows_of(read_file(family / "README.md"))) named.insert(row.files.begin(), row.files.end());
    for (const auto& entry : fs::directory_iterator(family)) {
      if (entry.is_directory()) continue;  // has a ledger of its own
      const std::string file = entry.path().filename().string();
      EXPECT_TRUE(file == "README.md" || named.contains(file))
          << entry.path() << " is in no row of its family's ledger";
    }
  }
}

TEST(LedgerReader, ReadsRows) {
  const auto rows = rows_of(
      "| Kernel | Files | Used by | Applies when | Gain | Lines |\n|---|---|---|---|---|---|\n"
      "| one | `a.{h,cpp}`, `b.cu` | x | | 3 to 2 us | 120 |\n");
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].files, (std::vector<std::string>{"a.h", "a.cpp", "b.cu"}));
  EXPECT_EQ(rows[0].lines, 120);
}

}  // namespace
}  // namespace bantam::ledgers_test
