// Paths are compared as a tree: its branches are the dotted paths' parts.
#include "bantam/run/report/run_differences.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/text.h"

namespace bantam::run {
namespace {

/// Returns the rest of a path that is `branch` or lies below it, "" or ".rest"; nothing for other paths.
std::optional<std::string_view> below(std::string_view path, std::string_view branch) {
  if (!path.starts_with(branch)) return std::nullopt;
  path.remove_prefix(branch.size());
  if (!path.empty() && path.front() != '.' && !branch.empty()) return std::nullopt;
  return path;
}

bool has(const RunReport& report, std::string_view branch) {
  return std::ranges::any_of(report.config, [&](const auto& one) { return below(one.first, branch).has_value(); });
}

std::string parent_of(std::string_view branch) {
  const std::size_t dot = branch.rfind('.');
  return std::string(branch.substr(0, dot == std::string_view::npos ? 0 : dot));
}

/// The shortest beginning of the path that some run has not; empty where all have all of it.
std::string missing_branch(std::span<const RunReport> reports, std::string_view path) {
  for (std::size_t end = path.find('.');; end = path.find('.', end + 1)) {
    const std::string_view branch = path.substr(0, end);
    if (std::ranges::any_of(reports, [&](const RunReport& report) { return !has(report, branch); }))
      return std::string(branch);
    if (end == std::string_view::npos) return "";
  }
}

/// Whether the branch is a value of some run: an empty map, where other runs have entries.
bool is_value(std::span<const RunReport> reports, const std::string& branch) {
  return std::ranges::any_of(reports, [&](const RunReport& report) {
    return std::ranges::any_of(report.config, [&](const auto& one) { return one.first == branch; });
  });
}

/// Names of the entries right below a branch.
std::set<std::string, std::less<>> entries_of(const RunReport& report, const std::string& branch) {
  std::set<std::string, std::less<>> names;
  for (const auto& [path, value] : report.config)
    if (const auto rest = below(path, branch); rest && rest->starts_with('.'))
      names.emplace(rest->substr(1, rest->find('.', 1) - 1));
  return names;
}

/// Whether each run has entries of its own there, and none that another run has.
bool is_choice(std::span<const RunReport> reports, const std::string& branch) {
  std::set<std::string, std::less<>> all;
  for (const RunReport& report : reports) {
    const auto entries = entries_of(report, branch);
    if (entries.empty()) return false;
    all.insert(entries.begin(), entries.end());
  }
  return !branch.empty() && std::ranges::all_of(all, [&](const std::string& name) {
    return std::ranges::any_of(reports, [&](const RunReport& report) { return !has(report, branch + "." + name); });
  });
}

/// A value, or all keys below the branch: "{learning_rate: 0.1, momentum: 0.9}"; empty where there are none.
std::string text_of(const RunReport& report, const std::string& branch) {
  std::vector<std::string> keys;
  for (const auto& [path, value] : report.config) {
    const auto rest = below(path, branch);
    if (!rest) continue;
    if (rest->empty()) return value;
    keys.push_back(fmt::format("{}: {}", rest->substr(1), value));
  }
  return keys.empty() ? "" : "{" + join(keys, ", ", ", ") + "}";
}

/// "sgd: {learning_rate: 0.1}".
std::string entries_text(const RunReport& report, const std::string& branch) {
  std::vector<std::string> entries;
  for (const std::string& name : entries_of(report, branch))
    entries.push_back(fmt::format("{}: {}", name, text_of(report, branch + "." + name)));
  return join(entries, ", ", ", ");
}

}  // namespace

std::vector<RunDifference> config_differences(std::span<const RunReport> reports) {
  std::vector<RunDifference> all;
  std::set<std::string, std::less<>> paths, seen;
  for (const RunReport& of : reports)
    for (const auto& [path, value] : of.config) {
      if (!paths.insert(path).second) continue;
      std::string name = missing_branch(reports, path);
      const std::string parent = parent_of(name);
      const bool chosen = !name.empty() && is_choice(reports, parent);
      if (name.empty())
        name = path;
      else if (chosen || is_value(reports, parent))
        name = parent;
      if (!seen.insert(name).second) continue;
      RunDifference one{.name = name, .values = {}};
      for (const RunReport& report : reports)
        one.values.push_back(chosen ? entries_text(report, name) : text_of(report, name));
      const auto is_first = [&](const std::string& text) { return text == one.values.front(); };
      if (!std::ranges::all_of(one.values, is_first)) all.push_back(std::move(one));
    }
  return all;
}

}  // namespace bantam::run
