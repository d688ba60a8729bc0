// Complete checks: reading that goes on after an error where it can, so that all errors of a configuration are told at
// once. Internal to the readers of configurations.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bantam/base/config/config.h"

namespace bantam {

struct ConfigErrors;

/// From now on, readers of the document note errors and go on: wrong values of keys with a default count as the
/// default, unknown keys are passed over, and what a ConfigAttempts reads ends with its error alone.
void collect_errors(const ConfigDocument& document);

/// The first 50 errors that were noted: complete messages, each once, in the order of their lines and columns; those of
/// the command line first.
std::vector<std::string> collected_errors(const ConfigDocument& document);
/// The number of errors after those.
std::size_t further_errors(const ConfigDocument& document);

/// Parts of a section that can be read without one another. Where errors are not collected, the first one is thrown at
/// once, and nothing here matters.
///
///     ConfigAttempts attempt(list);
///     for (const ConfigNode& item : list.items()) attempt([&] { read(item); });
///     attempt.finish();
class ConfigAttempts {
 public:
  explicit ConfigAttempts(const ConfigNode& at);
  explicit ConfigAttempts(const ConfigMap& at) : ConfigAttempts(at.self()) {}

  /// Whether `read` came to its end, and noted no error. Throws what `read` throws, a ConfigError only where none are
  /// collected.
  bool operator()(const std::function<void()>& read);
  /// Whether any attempt had an error.
  bool failed() const { return !first_.empty(); }
  /// Throws the first error as a ConfigError, which is noted already: what follows depends on all parts.
  void finish() const;

 private:
  std::shared_ptr<ConfigErrors> errors_;  // null: not collected
  std::string first_;
};

}  // namespace bantam
