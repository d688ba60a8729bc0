// Registry: an ordered table of named entries that a program can add to.
#pragma once

#include <deque>
#include <initializer_list>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {

/// Names and entries of one kind of thing ("loss"), the built-in ones first. A program adds its own before it reads its
/// first configuration: what was read before does not know them. Entries are never removed or changed, and stay where
/// they are. Thread-safe.
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
    if (name.empty()) throw ConfigError(what_ + ": an entry without a name");
    if (find_locked(name) != nullptr) throw ConfigError(what_ + " '" + name + "' is registered already");
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
    const std::vector<std::string> all = names();
    const auto near = nearest(name, all);
    const std::string advice = near          ? "; did you mean '" + *near + "'?"
                               : all.empty() ? std::string()
                                             : "; valid: " + join(all, ", ", " and ");
    throw ConfigError("unknown " + what_ + " '" + shown(name) + "'" + advice);
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

}  // namespace bantam
