// Brief and full help of the parser's subcommands.
#include "bantam/cli/print/help.h"

#include <algorithm>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/text.h"

namespace bantam::cli {
namespace {

constexpr std::size_t kWidestName = 24;
constexpr std::string_view kExample = "Example:";

struct Entry {
  std::string name, text;
};

int lines_in(const std::string& text) { return static_cast<int>(std::ranges::count(text, '\n')); }

std::size_t width_of(const std::string& text) {
  std::size_t width = 0, begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    width = std::max(width, display_width(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return width;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::size_t begin = 0;
  while ((begin = text.find_first_not_of(" \n", begin)) != std::string::npos) {
    const std::size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

/// Lines of at most `columns`, where words allow it; each but the first begins with `indent` spaces.
std::string wrapped_text(const std::string& text, std::size_t columns, std::size_t indent = 0) {
  std::string lines;
  std::size_t column = 0;
  for (const std::string& word : words_of(text)) {
    const std::size_t width = display_width(word);
    if (column > 0 && column + 1 + width > columns) {
      lines += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > 0) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += width;
  }
  return lines + "\n";
}

/// One line: whole clauses as far as they fit, else words and an ellipsis.
std::string shortened(const std::string& text, std::size_t columns) {
  std::string line = join(words_of(text), " ", " ");
  if (display_width(line) <= columns) return line;
  std::string kept;
  for (const std::string& word : words_of(line)) {
    if (display_width(kept) + display_width(word) + (kept.empty() ? 0 : 1) + 2 > columns) break;
    kept += (kept.empty() ? "" : " ") + word;
  }
  constexpr std::size_t kLeastClause = 12;
  std::size_t clause = (kept + " ").find_last_of(".;");
  while (clause != std::string::npos && (clause + 1 < kept.size() && kept[clause + 1] != ' ')) {
    clause = clause == 0 ? std::string::npos : kept.find_last_of(".;", clause - 1);
  }
  const bool whole = clause != std::string::npos && clause > kLeastClause && !kept.substr(0, clause).ends_with("e.g");
  return whole ? kept.substr(0, clause) : kept + " …";
}

/// "--seed TEXT", "CONFIG", "-o FILE": the last of several spellings is another program's, or a list's.
std::string name_of(const CLI::Option& option) {
  if (option.get_positional()) return option.get_name(true);
  const std::vector<std::string>& longs = option.get_lnames();
  std::string name = longs.empty() ? "-" + option.get_snames().front() : "--" + longs.front();
  if (!option.get_snames().empty() && !longs.empty()) name = "-" + option.get_snames().front() + "," + name;
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() == 0) return name;
  return name + " " + type.substr(0, type.find_first_of(":= "));
}

std::vector<Entry> entries_of(const CLI::App& command) {
  std::vector<Entry> entries, options;
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr()) continue;
    (option->get_positional() ? entries : options).push_back({name_of(*option), option->get_description()});
  }
  for (const CLI::App* verb : command.get_subcommands([](const CLI::App*) { return true; }))
    entries.push_back({verb->get_name(), verb->get_description()});
  entries.insert(entries.end(), options.begin(), options.end());
  return entries;
}

/// "Also --a, --b: `bantam help train` explains them."
std::string rest_of(const std::vector<Entry>& entries, std::size_t shown, const std::string& name,
                    std::size_t columns) {
  const std::size_t space = name.find(' ');
  const std::string all = "`bantam help" + (space == std::string::npos ? "" : name.substr(space)) + "`";
  if (shown >= entries.size()) return wrapped_text("More: " + all, columns);
  std::vector<std::string> names;
  for (std::size_t i = shown; i < entries.size(); ++i) {
    const std::string& entry = entries[i].name;
    names.push_back(entry.substr(0, entry.find(' ')));
  }
  return wrapped_text(fmt::format("Also {}: {} explains all.", join(names, ", ", ", "), all), columns, 2);
}

std::string listed(const std::vector<Entry>& entries, std::size_t shown, std::size_t columns) {
  std::size_t widest = 0;
  for (std::size_t i = 0; i < shown; ++i) widest = std::max(widest, display_width(entries[i].name));
  widest = std::min({widest, kWidestName, columns / 2});
  std::string lines;
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t used = std::max(display_width(entries[i].name), widest) + 4;
    const std::string padding(used - 2 - display_width(entries[i].name), ' ');
    lines += "  " + entries[i].name + padding + shortened(entries[i].text, std::max(columns, used + 1) - used) + "\n";
  }
  return lines;
}

class BriefFormatter : public CLI::Formatter {
 public:
  explicit BriefFormatter(int columns) : columns_(static_cast<std::size_t>(columns)) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    std::string full = CLI::Formatter::make_help(app, name, mode);
    if (lines_in(full) <= kHelpLines && width_of(full) <= columns_) return full;
    return brief(*app, name);
  }

 private:
  std::string brief(const CLI::App& command, const std::string& name) const {
    std::string usage = make_usage(&command, name);
    usage.resize(usage.find_last_not_of('\n') + 1);
    const std::string head =
        wrapped_text(command.get_description(), columns_) + wrapped_text(usage, columns_, 2) + "\n";
    const std::string example = example_of(command);
    const std::vector<Entry> entries = entries_of(command);
    std::size_t shown = entries.size();
    const auto text = [&] {
      return head + listed(entries, shown, columns_) + rest_of(entries, shown, name, columns_) + "\n" + example;
    };
    while (shown > 0 && lines_in(text()) > kHelpLines) --shown;
    return text();
  }

  std::size_t columns_;
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> brief_formatter(int columns) {
  constexpr int kWidest = 80;  // longer lines are hard to read
  return std::make_shared<BriefFormatter>(std::min(columns, kWidest));
}

std::string full_help(const CLI::App& command, const std::string& name) {
  return CLI::Formatter().make_help(&command, name, CLI::AppFormatMode::Normal);
}

std::string example_of(const CLI::App& command) {
  const std::string footer = command.get_footer();
  std::size_t at = footer.rfind(kExample);
  while (at != std::string::npos && at > 0 && footer[at - 1] != '\n') at = footer.rfind(kExample, at - 1);
  return at == std::string::npos ? "" : footer.substr(at) + (footer.ends_with('\n') ? "" : "\n");
}

}  // namespace bantam::cli
