// The entry point of every test program, which holds the tests of a folder. `--source=NAME[,NAME…]` runs those of
// NAME.cpp alone: CTest has an entry a file. Such of them as --gtest_filter or GTEST_FILTER leaves.
#include <algorithm>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fnmatch.h>
#include <gtest/gtest.h>

namespace bantam::testing {
namespace {

constexpr std::string_view kOption = "--source=";

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Whether GoogleTest's filter has the test: patterns joined by ":", and after a "-" those that are left out.
bool is_selected(const std::string& filter, const std::string& test) {
  const auto matches = [&](const std::string& pattern) { return fnmatch(pattern.c_str(), test.c_str(), 0) == 0; };
  const std::size_t dash = filter.find('-');
  const std::string chosen = filter.substr(0, dash);
  return (chosen.empty() || std::ranges::any_of(split(chosen, ':'), matches)) &&
         (dash == std::string::npos || std::ranges::none_of(split(filter.substr(dash + 1), ':'), matches));
}

bool is_of(const char* file, const std::string& source) {
  const std::string_view path = file;
  const std::string name = source + ".cpp";
  return path.ends_with(name) && (path.size() == name.size() || path[path.size() - name.size() - 1] == '/');
}

/// Leaves the tests of these sources, and says whether there are any, selected or not.
bool select(const std::vector<std::string>& sources) {
  std::string selected;
  bool found = false;
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  for (int s = 0; s < all.total_test_suite_count(); ++s) {
    const ::testing::TestSuite& suite = *all.GetTestSuite(s);
    for (int t = 0; t < suite.total_test_count(); ++t) {
      const ::testing::TestInfo& test = *suite.GetTestInfo(t);
      if (std::ranges::none_of(sources, [&](const std::string& each) { return is_of(test.file(), each); })) continue;
      found = true;
      const std::string name = std::string(suite.name()) + "." + test.name();
      if (is_selected(::testing::GTEST_FLAG(filter), name)) selected += name + ":";
    }
  }
  ::testing::GTEST_FLAG(filter) = selected.empty() ? "-*" : selected;
  return found;
}

}  // namespace
}  // namespace bantam::testing

int main(int count, char** arguments) {
  ::testing::InitGoogleTest(&count, arguments);
  for (int i = 1; i < count; ++i) {
    std::string_view argument = arguments[i];
    if (!argument.starts_with(bantam::testing::kOption)) continue;
    argument.remove_prefix(bantam::testing::kOption.size());
    if (!bantam::testing::select(bantam::testing::split(argument, ','))) {
      std::fprintf(stderr, "no tests of %s here\n", std::string(argument).c_str());
      return 1;
    }
  }
  return RUN_ALL_TESTS();
}
