// Help of every verb: `--help` fits a screen and ends with an example, `bantam help` has everything.
#include <sstream>

#include "bantam/base/text.h"
#include "tests/cli/program.h"

namespace bantam::cli::help_test {
namespace {

using Words = std::vector<std::string>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class Help : public ProgramTest {
 protected:
  /// Every verb of the program, groups such as `bench` and what is in them included, as `bantam help` lists them.
  std::vector<Words> verbs(const Words& group = {}) const {
    Words words = {"help"};
    words.insert(words.end(), group.begin(), group.end());
    std::vector<Words> found;
    bool listed = false;
    for (const std::string& line : lines_of(run(words).out)) {
      if (listed && (line.size() < 3 || line[2] == ' ')) {
        if (line.empty()) listed = false;
        continue;
      }
      if (listed) {
        Words verb = group;
        verb.push_back(line.substr(2, line.find(' ', 2) - 2));
        found.push_back(verb);
        for (const Words& inner : verbs(verb)) found.push_back(inner);
      }
      if (line == "Subcommands:") listed = true;
    }
    return found;
  }
  Outcome help_of(Words words) const {
    words.push_back("--help");
    return run(words);
  }
};

/// The last line that begins with "Example:", and after it further lines of the example alone.
void expect_ends_with_example(const std::vector<std::string>& lines, const std::string& of) {
  auto line = lines.rbegin();
  while (line != lines.rend() && line->starts_with("   ")) ++line;
  ASSERT_TRUE(line != lines.rend() && line->starts_with("Example: ")) << of << " ends with: " << lines.back();
  EXPECT_NE(line->find("bantam"), std::string::npos) << *line;
}

TEST_F(Help, OfEveryVerbFitsAScreenAndEndsWithAnExample) {
  std::vector<Words> all = verbs();
  ASSERT_GE(all.size(), 24u) << "not all verbs were found";
  EXPECT_NE(std::ranges::find(all, Words{"bench", "step"}), all.end());
  all.emplace_back();  // the program's own
  for (const Words& verb : all) {
    const std::string name = join(verb, " ", " ");
    const Outcome outcome = help_of(verb);
    EXPECT_EQ(outcome.code, 0) << name << outcome.err;
    const std::vector<std::string> lines = lines_of(outcome.out);
    EXPECT_LE(lines.size(), 24u) << outcome.out;
    for (const std::string& line : lines) EXPECT_LE(display_width(line), 80u) << line;
    EXPECT_NE(outcome.out.find("Usage: bantam"), std::string::npos) << outcome.out;
    expect_ends_with_example(lines, name);
  }
}

TEST_F(Help, NamesEveryFlag) {
  for (const Words& verb : verbs()) {
    Words words = {"help"};
    words.insert(words.end(), verb.begin(), verb.end());
    const std::string full = run(words).out, brief = help_of(verb).out;
    for (const std::string& line : lines_of(full)) {
      if (!line.starts_with("  -") || line.starts_with("  -h,--help")) continue;
      const std::size_t at = line.find("--");
      const std::string flag = line.substr(at, line.find_first_of(", ", at) - at);
      EXPECT_NE(brief.find(flag), std::string::npos) << join(verb, " ", " ") << " " << flag << "\n" << brief;
    }
  }
}

TEST_F(Help, RespectsColumns) {
  ASSERT_EQ(setenv("COLUMNS", "48", 1), 0);
  const Outcome outcome = help_of({"train"});
  ASSERT_EQ(setenv("COLUMNS", "many", 1), 0);
  const Outcome usual = help_of({"train"});
  unsetenv("COLUMNS");
  std::vector<std::string> lines = lines_of(outcome.out);
  EXPECT_LE(lines.size(), 24u) << outcome.out;
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("Example:"); });  // to be copied as it is
  for (const std::string& line : lines) EXPECT_LE(display_width(line), 48u) << line;
  EXPECT_EQ(usual.out, help_of({"train"}).out);
}

TEST_F(Help, NothingIsColoured) {
  for (const Words& verb : verbs()) EXPECT_EQ(help_of(verb).out.find('\x1b'), std::string::npos);
}

TEST_F(Help, QuietMeansNoProgress) {
  write_tiny_config();
  const Outcome quiet = run({"train", "tiny.yaml", "--run-dir", "r", "--quiet", "--threads", "1"});
  EXPECT_EQ(quiet.code, 0) << quiet.err;
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(run({"evaluate", "r", "-q", "--threads", "1"}).err, "");
  EXPECT_EQ(run({"train", "tiny.yaml", "--quiet", "--progress", "bar"}).code, 2);
  EXPECT_NE(run({"train", "none.yaml", "--quiet"}).err, "");
}

}  // namespace
}  // namespace bantam::cli::help_test
