// `--device h200` and `--profile FILE`: device profiles named on the command line.
#pragma once

#include <optional>
#include <string>

#include "bantam/cli/config/options.h"
#include "bantam/memory/device/device_profile.h"

namespace bantam::cli {

/// Where `--device` names a profile ("h200"), or there is a `--profile` file, the profile's; the options then ask for
/// cuda:0. Nothing where they do neither. Throws ConfigError for a file that cannot be read, and for a `--device` that
/// is neither a device nor a profile, with the profiles' names.
std::optional<DeviceProfile> take_profile(CommonOptions& options, const std::string& profile_file);

}  // namespace bantam::cli
