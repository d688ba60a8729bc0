// Errors of a document, noted once each and told in its order.
#include "bantam/base/config/config_attempts.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <string_view>
#include <tuple>

#include "bantam/base/config/config_recording.h"
#include "bantam/base/error.h"

namespace bantam {
namespace {

int number_before(std::string_view& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return 0;
  int number = 0;
  const std::string_view digits = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  text = text.substr(0, colon);
  return error == std::errc() && end == digits.data() + digits.size() ? number : 0;
}

/// Line and column of "file:12:7: error: …"; 0 where there are none.
std::tuple<int, int> place_of(std::string_view message) {
  const std::size_t end = message.find(": error: ");
  if (end == std::string_view::npos) return {};
  std::string_view before = message.substr(0, end);
  const int column = number_before(before), line = number_before(before);
  return {line, column};
}

}  // namespace

void ConfigErrors::note(const std::string& message) {
  if (!noted_.insert(std::hash<std::string>()(message)).second) return;
  if (is_full())
    ++more;
  else
    messages.push_back(message);
}

void collect_errors(const ConfigDocument& document) {
  ConfigDescription::of(document.root()).errors = std::make_shared<ConfigErrors>();
}

std::vector<std::string> collected_errors(const ConfigDocument& document) {
  const std::shared_ptr<ConfigErrors>& errors = ConfigDescription::of(document.root()).errors;
  if (errors == nullptr) return {};
  std::vector<std::string> messages = errors->messages;
  std::ranges::stable_sort(messages, {}, place_of);
  return messages;
}

std::size_t further_errors(const ConfigDocument& document) {
  const std::shared_ptr<ConfigErrors>& errors = ConfigDescription::of(document.root()).errors;
  return errors == nullptr ? 0 : errors->more;
}

ConfigAttempts::ConfigAttempts(const ConfigNode& at) : errors_(ConfigDescription::of(at).errors) {}

bool ConfigAttempts::operator()(const std::function<void()>& read) {
  if (errors_ == nullptr) {
    read();
    return true;
  }
  const std::size_t before = errors_->count();
  std::string error;
  try {
    read();
    if (errors_->count() == before) return true;
    error = errors_->messages[std::min(before, errors_->messages.size() - 1)];
  } catch (const ConfigError& thrown) {
    error = thrown.what();
    errors_->note(error);
  }
  if (first_.empty()) first_ = error;
  return false;
}

void ConfigAttempts::finish() const {
  if (failed()) throw ConfigError(first_);
}

}  // namespace bantam
