// Text and pictures as HTML pages have them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "bantam/base/json.h"
#include "bantam/data/images/image.h"

namespace bantam::cli {

/// Text between tags and in attributes: control characters as escapes, < > & " as entities.
std::string escaped(std::string_view text);
/// JSON inside a script element, which only "</" (and "<!--") could end: "<" is spelled as JSON's escape.
std::string safe_in_script(std::string_view json);
/// The same JSON with each text and key `printable`: a page shows escapes where the browser would obey marks.
nlohmann::ordered_json printable_texts(const nlohmann::ordered_json& json);
/// `page` with each {{name}} replaced, once: what replaces it is not looked at again.
std::string filled(std::string_view page, const std::map<std::string, std::string, std::less<>>& parts);

/// The image, or, where its longer side has more pixels, one whose longer side has `most`.
Image reduced(const Image& image, std::int64_t most);

}  // namespace bantam::cli
