// Loading a document: parse, apply overrides, hand out the root.
#include "bantam/base/config/config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/config/config_tree.h"
#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

/// A hundred times the layer lists of the largest networks: anything larger is another kind of file, or an endless
/// pipe.
constexpr std::size_t kMostBytes = 4'000'000;

/// "; did you mean net.yaml?" of a missing net.yml; empty where the file is there, or nothing near it is.
std::string advice_on_missing(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return "";
  const std::filesystem::path folder = path.parent_path();
  if (!folder.empty() && !std::filesystem::exists(folder, error))
    return fmt::format("; there is no folder {}", shown(folder.string()));
  std::vector<std::string> names;
  for (const std::filesystem::path& entry : folder_entries(folder.empty() ? "." : folder, error)) {
    const std::filesystem::path suffix = entry.extension();
    if (suffix == ".yaml" || suffix == ".yml") names.push_back(entry.filename().string());
  }
  std::ranges::sort(names);
  const auto near = nearest(path.filename().string(), names);
  return near ? fmt::format("; did you mean {}?", shown((folder / *near).string())) : "";
}

}  // namespace

ConfigDocument::ConfigDocument(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::string ConfigDocument::read_text(const std::filesystem::path& path) {
  try {
    return read_file(path, kMostBytes);
  } catch (const DataError& error) {
    throw ConfigError(error.what() + advice_on_missing(path));
  }
}

ConfigDocument ConfigDocument::load(const std::filesystem::path& path, std::span<const std::string> overrides) {
  return parse(read_text(path), path.string(), overrides);
}

ConfigDocument ConfigDocument::parse(std::string_view text, std::string name, std::span<const std::string> overrides) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.size() > kMostBytes)
    throw ConfigError(fmt::format("{}: error: a configuration has at most {} bytes, got {}", name,
                                  format_count(kMostBytes), format_count(static_cast<std::int64_t>(text.size()))));
  auto impl = std::make_shared<Impl>();
  impl->name = name;
  impl->sources.push_back(
      std::make_shared<ConfigSource>(ConfigSource{.name = std::move(name), .lines = split_lines(text)}));
  impl->root = parse_yaml(*impl->sources.front());
  if (impl->root->kind == ConfigKind::scalar || impl->root->kind == ConfigKind::list)
    fail_at(impl->root->mark, fmt::format("expected a map of keys at the top, got {}", describe(*impl->root)));
  impl->root->kind = ConfigKind::map;
  for (const std::string& text_of_one : overrides) apply_override(*impl, text_of_one);
  return ConfigDocument(std::move(impl));
}

const std::string& ConfigDocument::name() const { return impl_->name; }

ConfigNode ConfigDocument::root() const { return ConfigNode(impl_, impl_->root.get()); }

ConfigMap ConfigDocument::map() const { return root().as_map(); }

void ConfigDocument::set_synonyms(std::span<const ConfigSynonym> synonyms) {
  impl_->synonyms.assign(synonyms.begin(), synonyms.end());
}

ConfigDocument ConfigDocument::with_value(std::string_view path, std::string_view value) const {
  auto copy = std::make_shared<Impl>();
  copy->name = impl_->name;
  copy->sources = impl_->sources;
  copy->synonyms = impl_->synonyms;
  copy->search_folders = impl_->search_folders;
  copy->found_in = impl_->found_in;
  copy->root = copy_of(*impl_->root);
  apply_override(*copy, fmt::format("{}={}", path, value));
  return ConfigDocument(std::move(copy));
}

namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

/// A plain name, `relu`, and the same with no options, `relu: {}`, have one value: the name.
bool is_bare_name(const ConfigNode::Data& node) {
  return node.kind == ConfigKind::map && node.children.size() == 1 && node.parent != nullptr &&
         node.parent->kind == ConfigKind::list && node.children[0]->kind != ConfigKind::scalar &&
         node.children[0]->children.empty();
}

/// A number in its shortest form: 0.05 for 5.0e-2, 16 for 16.0; one that float64 cannot hold exactly stays as it is.
std::string value_text(const ConfigNode::Data& node) {
  constexpr double kMostWhole = 9007199254740992;  // 2^53
  const std::string& text = node.scalar;
  if (node.quoted || !looks_like_number(text)) return text;
  const char* first = text.data() + (text.starts_with('+') ? 1 : 0);
  double number = 0;
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || std::abs(number) >= kMostWhole) return text;
  return number == std::trunc(number) ? fmt::format("{}", static_cast<std::int64_t>(number))
                                      : fmt::format("{}", number);
}

void add_values(const ConfigNode::Data& node, const std::string& path, Values& values) {
  const auto below = [&path](const std::string& step) { return path.empty() ? step : path + "." + step; };
  const bool has_options = node.options && !node.options->children.empty();
  if (is_bare_name(node)) {
    values.emplace_back(path, node.children[0]->key);
  } else if (node.kind == ConfigKind::scalar && has_options) {  // a plain name is the map of its options
    for (const auto& child : node.options->children) add_values(*child, below(node.scalar) + "." + child->key, values);
  } else if (node.kind == ConfigKind::scalar) {
    values.emplace_back(path, value_text(node));
  } else if (node.children.empty()) {
    values.emplace_back(path, node.kind == ConfigKind::list ? "[]" : "{}");
  } else {
    for (std::size_t i = 0; i < node.children.size(); ++i)
      add_values(*node.children[i], below(node.kind == ConfigKind::list ? std::to_string(i) : node.children[i]->key),
                 values);
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> ConfigDocument::values() const {
  Values values;
  add_values(*impl_->root, "", values);
  return values;
}

std::string ConfigDocument::resolved_yaml() const { return emit_yaml(*impl_->root); }

}  // namespace bantam
