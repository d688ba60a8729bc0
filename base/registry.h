// Registry: a table of built-in entries by name, to which programs add their own.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam {

/// Entries by name, in the order in which they were added. Thread-safe.
template <class T>
class Registry {
 public:
  using Entries = std::vector<std::pair<std::string, T>>;

  /// `what` is the entries' kind in messages: "data format".
  explicit Registry(std::string what, Entries built_in = {}) : what_(std::move(what)), entries_(std::move(built_in)) {}

  /// Adds an entry for the rest of the process. Throws ConfigError for a name that is taken.
  void add(std::string name, T entry) {
    const std::lock_guard lock(guard_);
    for (const auto& [taken, unused] : entries_)
      if (taken == name) throw ConfigError(fmt::format("{} '{}' is already registered", what_, name));
    entries_.emplace_back(std::move(name), std::move(entry));
  }

  /// A copy of the entry. Throws ConfigError with the nearest name, or all names where none is near.
  T find(std::string_view name) const {
    const std::lock_guard lock(guard_);
    for (const auto& [known, entry] : entries_)
      if (known == name) return entry;
    const std::vector<std::string> known = names_locked();
    const auto near = nearest(name, known);
    throw ConfigError(fmt::format(
        "unknown {} '{}'; {}", what_, name,
        near ? fmt::format("did you mean '{}'?", *near) : fmt::format("there are {}", join(known, ", ", " and "))));
  }

  std::vector<std::string> names() const {
    const std::lock_guard lock(guard_);
    return names_locked();
  }

 private:
  std::vector<std::string> names_locked() const {
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) names.push_back(name);
    return names;
  }

  std::string what_;
  mutable std::mutex guard_;
  Entries entries_;
};

}  // namespace bantam
