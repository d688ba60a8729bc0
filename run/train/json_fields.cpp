// Types are looked at before values are taken, so that the library has nothing to throw.
#include "bantam/run/train/json_fields.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam::run {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail(std::string_view key, std::string_view expected, const Json& found) {
  throw DataError(fmt::format("{}: expected {}, found {}", shown(key), expected,
                              shown(found.dump(-1, ' ', false, Json::error_handler_t::replace), 40)));
}

const Json& at(const Json& json, std::string_view key) {
  const Json* found = &json;
  for (std::size_t begin = 0; begin < key.size();) {
    const std::size_t end = std::min(key.find('.', begin), key.size());
    const std::string name(key.substr(begin, end - begin));
    if (!found->is_object()) fail(begin == 0 ? "the whole" : key.substr(0, begin - 1), "an object", *found);
    begin = end + 1;
    const auto next = found->find(name);
    if (next == found->end()) throw DataError(fmt::format("{}: the key is missing", shown(key)));
    found = &*next;
  }
  return *found;
}

template <class T>
T whole_number(const Json& json, std::string_view key, std::string_view expected) {
  const Json& found = at(json, key);
  if (found.is_number_unsigned()) {
    const auto value = found.get<std::uint64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  } else if (found.is_number_integer()) {
    const auto value = found.get<std::int64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  }
  fail(key, expected, found);
}

}  // namespace

Json parse_json(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const std::string_view before = text.substr(0, std::min<std::size_t>(text.size(), error.byte));
    const std::size_t line = static_cast<std::size_t>(std::ranges::count(before, '\n')) + 1;
    const std::size_t begin = before.rfind('\n');
    const std::size_t column = before.size() - (begin == std::string_view::npos ? 0 : begin + 1);
    throw DataError(fmt::format("line {}, column {}: it is no JSON from here on", line, column));
  } catch (const Json::exception&) {
    throw DataError("it has a number that is out of range, or a text that is not UTF-8");
  }
}

void read_field(const Json& json, std::string_view key, std::string& to) {
  const Json& found = at(json, key);
  if (!found.is_string()) fail(key, "a text", found);
  to = found.get<std::string>();
}

void read_field(const Json& json, std::string_view key, std::int64_t& to) {
  to = whole_number<std::int64_t>(json, key, "a whole number");
}

void read_field(const Json& json, std::string_view key, std::uint64_t& to) {
  to = whole_number<std::uint64_t>(json, key, "a whole number that is not negative");
}

void read_field(const Json& json, std::string_view key, int& to) {
  to = whole_number<int>(json, key, "a whole number");
}

void read_field(const Json& json, std::string_view key, double& to) {
  const Json& found = at(json, key);
  if (!found.is_number()) fail(key, "a number", found);
  to = found.get<double>();
}

void read_field(const Json& json, std::string_view key, std::vector<std::string>& to) {
  to.clear();
  for (const Json& item : list_field(json, key)) {
    if (!item.is_string()) fail(key, "a list of texts", item);
    to.push_back(item.get<std::string>());
  }
}

void read_field(const Json& json, std::string_view key, std::vector<double>& to) {
  to.clear();
  for (const Json& item : list_field(json, key)) {
    if (!item.is_number()) fail(key, "a list of numbers", item);
    to.push_back(item.get<double>());
  }
}

void read_field(const Json& json, std::string_view key, std::map<std::string, std::string>& to) {
  to.clear();
  for (const auto& [name, item] : object_field(json, key).items()) {
    if (!item.is_string()) fail(fmt::format("{}.{}", key, name), "a text", item);
    to[name] = item.get<std::string>();
  }
}

const Json& list_field(const Json& json, std::string_view key) {
  const Json& found = at(json, key);
  if (!found.is_array()) fail(key, "a list", found);
  return found;
}

const Json& object_field(const Json& json, std::string_view key) {
  const Json& found = at(json, key);
  if (!found.is_object()) fail(key, "an object", found);
  return found;
}

}  // namespace bantam::run
