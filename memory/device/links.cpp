// A link in words.
#include "bantam/memory/device/links.h"

#include <fmt/format.h>

namespace bantam {

std::string to_string(const GpuLink& link) {
  std::string text = link.path.empty() ? "path not known" : link.path;
  if (link.nvlinks > 0) text = fmt::format("{} NVLink{}", link.nvlinks, link.nvlinks == 1 ? "" : "s");
  return text + (link.peer_access ? ", peer access" : ", no peer access");
}

}  // namespace bantam
