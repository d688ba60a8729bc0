// JSON as text, with the bytes of what is no text.
#include "bantam/base/json.h"

#include <algorithm>
#include <string_view>

#include "bantam/base/printable.h"
#include "bantam/base/text.h"

namespace bantam {
namespace {

using Json = nlohmann::ordered_json;

bool is_text(const Json& json) { return !json.is_string() || is_utf8(json.get_ref<const std::string&>()); }

/// The value of KEY_bytes; null where everything is UTF-8.
Json bytes_of(const Json& json) {
  Json bytes;
  if (json.is_string() && !is_text(json)) return base64(json.get_ref<const std::string&>());
  if (json.is_array() && !std::ranges::all_of(json, is_text))
    for (const Json& item : json) bytes.push_back(bytes_of(item));
  if (json.is_object())
    for (const auto& [key, value] : json.items())
      if (!is_utf8(key)) bytes[printable(key)] = base64(key);
  return bytes;
}

Json with_bytes(const Json& json) {
  if (json.is_string()) return is_text(json) ? json : Json(printable(json.get_ref<const std::string&>()));
  if (!json.is_structured()) return json;
  Json result = json.is_array() ? Json::array() : Json::object();
  if (json.is_array())
    for (const Json& item : json) result.push_back(with_bytes(item));
  else
    for (const auto& [key, value] : json.items()) {
      std::string name = is_utf8(key) ? key : printable(key);
      while (result.contains(name)) name += '\'';  // an escape may be another key's text
      result[name] = with_bytes(value);
      if (Json bytes = bytes_of(value); !bytes.is_null()) result[name + "_bytes"] = std::move(bytes);
    }
  return result;
}

}  // namespace

std::string json_text(const Json& json, int indent) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  const auto text_of = [indent](const Json& tree) {
    return printable_json(tree.dump(indent, ' ', false, Json::error_handler_t::replace));
  };
  const std::string text = text_of(json);
  return text.find(kReplacement) == std::string::npos ? text : text_of(with_bytes(json));
}

}  // namespace bantam
