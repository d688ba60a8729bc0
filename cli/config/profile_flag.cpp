// From flags to a profile.
#include "bantam/cli/config/profile_flag.h"

#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/stable_sort.h"
#include "bantam/base/text.h"

namespace bantam::cli {
namespace {

/// Throws where `text` is no device, with the profiles that could have been meant, nearest first.
void require_device_name(const std::string& text) {
  if (text == "auto") return;
  try {
    (void)parse_device(text);
  } catch (const DeviceError&) {
    std::vector<std::string> profiles = device_profile_names();
    sort_stably(profiles, {}, [&](const std::string& name) { return edit_distance(text, name); });
    throw ConfigError(fmt::format("--device: '{}' is no device (auto, cpu, cuda:N)\nand no profile; there are\n  {}",
                                  text, join(profiles, ", ", ", ")));
  }
}

}  // namespace

std::optional<DeviceProfile> take_profile(CommonOptions& options, const std::string& profile_file) {
  const auto device = options.flag_overrides.find("device");
  const bool given = device != options.flag_overrides.end();
  if (!profile_file.empty()) {
    if (!given) options.flag_overrides["device"] = "cuda:0";
    return load_device_profile(profile_file);
  }
  if (!given) return std::nullopt;
  auto named = find_device_profile(device->second);
  if (named)
    device->second = "cuda:0";
  else
    require_device_name(device->second);
  return named;
}

}  // namespace bantam::cli
