// JSON as it is written to files and standard output.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace bantam::cli {

/// On one line (or indented by `indent` columns). Names of files may be any bytes: invalid UTF-8 becomes U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace bantam::cli
