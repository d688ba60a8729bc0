// Expansion as shells do it, and the search.
#include "bantam/base/config/config_path.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "bantam/base/config/config_recording.h"
#include "bantam/base/config/config_tree.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMostShownBytes = 400;  // of a path in a message

/// Returns the home folder of user `name`; of the one who runs the program where `name` is empty. Empty: there is none.
std::string home_of(const std::string& name) {
  if (name.empty())
    if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return home;
  constexpr std::size_t kMostOfEntry = std::size_t{1} << 20;
  passwd entry{};
  passwd* found = nullptr;
  for (std::vector<char> buffer(4096); buffer.size() <= kMostOfEntry; buffer.resize(buffer.size() * 2)) {
    const int error = name.empty() ? ::getpwuid_r(::getuid(), &entry, buffer.data(), buffer.size(), &found)
                                   : ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (error == ERANGE) continue;
    return found != nullptr && found->pw_dir != nullptr ? found->pw_dir : "";
  }
  return "";
}

/// `~` or `~user` at the beginning, which is taken off `rest`.
std::string home_at(std::string_view& rest) {
  if (!rest.starts_with('~')) return "";
  const std::size_t end = std::min(rest.find('/'), rest.size());
  const std::string name(rest.substr(1, end - 1));
  std::string home = home_of(name);
  if (home.empty())
    throw ConfigError(name.empty() ? "'~': there is no home folder: HOME is not set"
                                   : fmt::format("'~{}': there is no user of that name", shown(name)));
  rest.remove_prefix(end);
  while (home.size() > 1 && home.back() == '/') home.pop_back();
  return home == "/" && !rest.empty() ? "" : home;
}

/// The variable after the `$` at the beginning of `rest`, `NAME` or `{NAME}`; empty: none follows. `bytes` becomes the
/// length of all.
std::string variable_at(std::string_view rest, std::size_t& bytes) {
  const bool braces = rest.size() > 1 && rest[1] == '{';
  const std::size_t begin = braces ? 2 : 1;
  std::size_t end = begin;
  if (end < rest.size() && begins_name(rest[end]))
    while (end < rest.size() && continues_name(rest[end])) ++end;
  if (end == begin || (braces && (end == rest.size() || rest[end] != '}'))) return "";
  bytes = end + (braces ? 1 : 0);
  return std::string(rest.substr(begin, end - begin));
}

bool is_there_at(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

fs::path whole_path(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path.empty() ? "." : path, error).lexically_normal();
  return whole.has_filename() || whole == whole.root_path() ? whole : whole.parent_path();
}

fs::path folder_of(const ConfigDocument::Impl& document) { return fs::path(document.name).parent_path(); }

void note_folder(ConfigDocument::Impl& document, const fs::path& folder) {
  if (std::ranges::find(document.found_in, folder) == document.found_in.end()) document.found_in.push_back(folder);
}

}  // namespace

std::string expanded_path(std::string_view text) {
  std::string path = home_at(text);
  while (!text.empty()) {
    const std::size_t plain = std::min(text.find('$'), text.size());
    path += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    std::size_t bytes = 1;
    const std::string name = variable_at(text, bytes);
    if (name.empty()) {
      path += '$';
    } else if (const char* value = std::getenv(name.c_str())) {
      path += value;
    } else {
      throw ConfigError(fmt::format("'{}': the environment variable {} is not set", text.substr(0, bytes), name));
    }
    text.remove_prefix(bytes);
  }
  return path;
}

std::string expanded_path(const ConfigNode& node) {
  std::string text = node.as_text();
  if (node.is_described() || text.find_first_of("~$") == std::string::npos || is_there_at(text)) return text;
  try {
    return expanded_path(text);
  } catch (const ConfigError& error) {
    node.fail(error.what());
  }
}

std::string FoundPath::places() const {
  if (is_there || folders.empty()) return "";
  std::vector<std::string> others;
  for (std::size_t i = 1; i < folders.size(); ++i) others.push_back(shown(folders[i].string(), kMostShownBytes));
  if (others.empty()) return fmt::format(" in the current folder ({})", shown(folders[0].string(), kMostShownBytes));
  return fmt::format(": neither in the current folder ({}) nor in {}", shown(folders[0].string(), kMostShownBytes),
                     join(others, ", ", " or "));
}

FoundPath find_path(const ConfigNode& at, std::string_view text) {
  FoundPath found;
  const std::string given(text);
  try {
    found.path = is_there_at(given) ? given : expanded_path(given);
  } catch (const ConfigError& error) {
    at.fail(error.what());
  }
  if (at.is_described() || found.path.empty()) return found;
  if (found.path.is_absolute()) {
    found.is_there = is_there_at(found.path);
    return found;
  }
  ConfigDocument::Impl& document = ConfigDescription::of(at);
  std::vector<fs::path> folders = {fs::path(), folder_of(document)};
  folders.insert(folders.end(), document.search_folders.begin(), document.search_folders.end());
  for (const fs::path& folder : folders) {
    const fs::path whole = whole_path(folder);
    if (std::ranges::find(found.folders, whole) != found.folders.end()) continue;
    found.folders.push_back(whole);
    if (!is_there_at(folder / found.path)) continue;
    note_folder(document, whole);
    found.path = folder / found.path;
    found.is_there = true;
    break;
  }
  return found;
}

FoundPath find_path(const ConfigNode& node) { return find_path(node, node.as_text()); }

fs::path as_path(const ConfigNode& node) { return find_path(node).path; }

fs::path as_file(const ConfigNode& node) {
  const FoundPath found = find_path(node);
  if (!node.is_described() && !found.is_there)
    node.fail(fmt::format("there is no file {}{}", shown(found.path.string(), kMostShownBytes), found.places()));
  return found.path;
}

fs::path as_folder(const ConfigNode& node) {
  const FoundPath found = find_path(node);
  if (node.is_described()) return found.path;
  if (!found.is_there)
    node.fail(fmt::format("there is no folder {}{}", shown(found.path.string(), kMostShownBytes), found.places()));
  std::error_code error;
  if (!fs::is_directory(found.path, error))
    node.fail(fmt::format("{} is no folder", shown(found.path.string(), kMostShownBytes)));
  return found.path;
}

void add_search_folders(const ConfigDocument& document, const std::vector<std::string>& folders) {
  ConfigDocument::Impl& impl = ConfigDescription::of(document.root());
  for (const std::string& folder : folders) impl.search_folders.push_back(whole_path(folder_of(impl) / folder));
}

std::vector<fs::path> folders_of_found_paths(const ConfigDocument& document) {
  return ConfigDescription::of(document.root()).found_in;
}

}  // namespace bantam
