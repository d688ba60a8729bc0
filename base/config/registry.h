// Registry: an ordered table of named entries that a program can add to; and Reader, which makes an object from a
// configuration's entry: `adam`, or `adam: {learning_rate: 0.1}`.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/base/config/config.h"

BANTAM_API_BEGIN
namespace bantam {
namespace registry_detail {

/// Throws ConfigError as Registry::at and Registry::add say.
[[noreturn]] void fail_unknown(const std::string& what, std::string_view name, const std::vector<std::string>& names);
void check_new(const std::string& what, const std::string& name, bool taken);

}  // namespace registry_detail

/// Names and entries of one kind of thing ("loss"), the built-in ones first. A program adds its own before it reads its
/// first configuration: configurations read earlier do not know them. Entries are never removed, changed or moved.
/// Thread-safe.
template <class Entry>
class Registry {
 public:
  /// `what` names the kind in messages. Throws as `add` does.
  Registry(std::string what, std::initializer_list<std::pair<std::string, Entry>> built_in) : what_(std::move(what)) {
    for (const auto& [name, entry] : built_in) add(name, entry);
  }
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Throws ConfigError for a name that is there already, and for an empty one.
  void add(std::string name, Entry entry) {
    const std::lock_guard lock(mutex_);
    registry_detail::check_new(what_, name, find_locked(name) != nullptr);
    entries_.emplace_back(std::move(name), std::move(entry));
  }
  /// Null where there is no such name.
  const Entry* find(std::string_view name) const {
    const std::lock_guard lock(mutex_);
    return find_locked(name);
  }
  /// Throws ConfigError with the nearest name, or all of them where none is near.
  const Entry& at(std::string_view name) const {
    if (const Entry* entry = find(name)) return *entry;
    registry_detail::fail_unknown(what_, name, names());
  }
  /// In the order in which they were added.
  std::vector<std::string> names() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }
  const std::string& what() const { return what_; }

 private:
  const Entry* find_locked(std::string_view name) const {
    for (const auto& [known, entry] : entries_)
      if (known == name) return &entry;
    return nullptr;
  }

  std::string what_;
  mutable std::mutex mutex_;
  std::deque<std::pair<std::string, Entry>> entries_;  // whose elements never move
};

/// Reads one entry's options and returns the object that they describe. It need not call `finish`. Throws ConfigError
/// at what is wrong.
template <class Result>
using Reader = std::function<Result(ConfigMap& options)>;

/// The entry that a table has for `name`. Throws ConfigError at the name, with the nearest one, where there is none.
template <class Result>
const Reader<Result>& find_reader(const Registry<Reader<Result>>& table, const ConfigNode& at,
                                  const std::string& name) {
  if (const Reader<Result>* reader = table.find(name)) return *reader;
  at.fail_unknown(table.what(), name, table.names());
}

/// In a description (`bantam schema`): the value, or each item of a list, is the name of an entry of the table. Else
/// nothing happens.
template <class Result>
void describe_registered(const Registry<Reader<Result>>& table, const ConfigNode& node) {
  if (!node.is_described()) return;
  node.describe_entries(table.what(), table.names(), [&](const std::string& name, const ConfigNode& value) {
    ConfigMap options = value.as_map();
    (void)table.at(name)(options);
    options.finish();
  });
}

/// The entry `name`, whose options stand beside the key that names it: `format: idx`, `path: …`. Throws as the reader
/// does; the caller finishes the section.
template <class Result>
Result read_beside(const Registry<Reader<Result>>& table, ConfigMap& section, std::string_view key,
                   const std::string& name) {
  if (!section.self().is_described()) return table.at(name)(section);
  Result result{};
  section.read_choice(key, name, table.names(), [&](const std::string& entry) { result = table.at(entry)(section); });
  return result;
}

/// Reads a name of the table: text, or a map with one key whose value is the options. Throws ConfigError for a name
/// that the table does not have, and whatever the name's reader throws; options that it did not ask for are refused.
template <class Result>
Result read_registered(const Registry<Reader<Result>>& table, const ConfigNode& node) {
  describe_registered(table, node);
  const ConfigNode::Named named = node.as_named();
  const Reader<Result>& reader = find_reader(table, named.options, named.name);
  ConfigMap options = named.options.as_map();
  Result result = reader(options);
  options.finish();
  return result;
}

}  // namespace bantam
BANTAM_API_END
