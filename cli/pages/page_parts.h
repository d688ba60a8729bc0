// The files of the pages that the program writes: markup, style and script.
#pragma once

#include <string>
#include <string_view>

namespace bantam::cli {

/// The text of a part: "theme.js", "report.html", "report.css", "report.js" and so on, as cli/CMakeLists.txt names
/// them. The program has all parts in one compressed piece, which the first call unpacks. Any thread may call it.
const std::string& page_part(std::string_view name);

}  // namespace bantam::cli
