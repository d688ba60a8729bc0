// Escapes, templates and data URIs.
#include "bantam/cli/report/page_text.h"

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

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    // A digit says something where it has bits of a byte that is there: digit k of bytes k - 1 and k.
    for (std::size_t k = 0; k < 4; ++k)
      text += k < 2 || i + k - 1 < bytes.size() ? kDigits[word >> (18 - 6 * k) & 63] : '=';
  }
  return text;
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
