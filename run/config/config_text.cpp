// Looks at a run's own file before it is read as any other.
#include "bantam/run/config/config_text.h"

#include <system_error>

#include <fcntl.h>

#include "bantam/base/config/config.h"
#include "bantam/base/folder_file.h"

namespace bantam::run {

std::string read_config_text(const std::filesystem::path& path) {
  std::error_code error;
  const bool in_run =
      path.filename() == "config.yaml" && std::filesystem::is_regular_file(path.parent_path() / "run.json", error);
  if (in_run && what_else_is_at({.path = path}) != "a folder") (void)open_file({.path = path}, O_RDONLY);
  return ConfigDocument::read_text(path);
}

}  // namespace bantam::run
