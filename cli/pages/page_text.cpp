// Escapes, templates and data URIs.
#include "bantam/cli/pages/page_text.h"

#include <algorithm>

#include "bantam/base/text.h"
#include "bantam/data/images/resample.h"

namespace bantam::cli {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : printable(text))
    safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  return safe;
}

std::string safe_in_script(std::string_view json) {
  std::string safe;
  for (const char c : json) safe += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return safe;
}

nlohmann::ordered_json printable_texts(const nlohmann::ordered_json& json) {
  if (json.is_string()) return printable(json.get_ref<const std::string&>());
  if (!json.is_structured()) return json;
  nlohmann::ordered_json result = json.is_array() ? nlohmann::ordered_json::array() : nlohmann::ordered_json::object();
  if (json.is_array())
    for (const nlohmann::ordered_json& item : json) result.push_back(printable_texts(item));
  else
    for (const auto& [key, value] : json.items()) result[printable(key)] = printable_texts(value);
  return result;
}

std::string filled(std::string_view page, const std::map<std::string, std::string, std::less<>>& parts) {
  std::string text;
  while (true) {
    const std::size_t begin = page.find("{{");
    const std::size_t end = begin == std::string_view::npos ? begin : page.find("}}", begin);
    if (end == std::string_view::npos) return text.append(page);
    text.append(page.substr(0, begin)).append(parts.at(std::string(page.substr(begin + 2, end - begin - 2))));
    page.remove_prefix(end + 2);
  }
}

Image reduced(const Image& image, std::int64_t most) {
  const std::int64_t longer = std::max(image.size.height, image.size.width);
  if (longer <= most) return image;
  const auto part = [&](std::int64_t extent) {
    return std::max<std::int64_t>(1, (extent * most + longer / 2) / longer);
  };
  Image out;
  resample(image, {.window = image.size, .size = {part(image.size.height), part(image.size.width)}},
           Interpolation::bilinear, out);
  return out;
}

}  // namespace bantam::cli
