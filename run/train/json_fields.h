// Fields of a run's JSON files: errors name the key, what was expected and what is there, in no library's words.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/json.h"

namespace bantam::run {

/// Throws DataError with line and column; the caller adds the file.
nlohmann::ordered_json parse_json(std::string_view text);

/// Reads the field under `key` ("epoch", or "best.value" of an object in the object) into `to`. Throws DataError that
/// names the key, where it is missing or of another type.
void read_field(const nlohmann::ordered_json& json, std::string_view key, std::string& to);
void read_field(const nlohmann::ordered_json& json, std::string_view key, std::int64_t& to);
void read_field(const nlohmann::ordered_json& json, std::string_view key, std::uint64_t& to);
void read_field(const nlohmann::ordered_json& json, std::string_view key, int& to);
void read_field(const nlohmann::ordered_json& json, std::string_view key, double& to);
void read_field(const nlohmann::ordered_json& json, std::string_view key, std::vector<std::string>& to);
void read_field(const nlohmann::ordered_json& json, std::string_view key, std::vector<double>& to);
void read_field(const nlohmann::ordered_json& json, std::string_view key, std::map<std::string, std::string>& to);

template <class T>
T field(const nlohmann::ordered_json& json, std::string_view key) {
  T value{};
  read_field(json, key, value);
  return value;
}

/// `otherwise` where the key is missing, as in files of earlier versions.
template <class T>
T field_or(const nlohmann::ordered_json& json, const char* key, T otherwise) {
  if (json.is_object() && json.contains(key)) read_field(json, key, otherwise);
  return otherwise;
}

/// The list or the object under `key`. Throws as read_field does.
const nlohmann::ordered_json& list_field(const nlohmann::ordered_json& json, std::string_view key);
const nlohmann::ordered_json& object_field(const nlohmann::ordered_json& json, std::string_view key);

}  // namespace bantam::run
