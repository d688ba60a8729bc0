// `--device h200` and `--profile FILE`: device profiles named on the command line.
#pragma once

#include <optional>
#include <string>

#include "bantam/cli/options/options.h"
#include "bantam/memory/device/device_profile.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/fit/plan_target.h"

namespace bantam::cli {

/// Where `--device` names a profile ("h200"), or there is a `--profile` file, the profile's; the options then ask for
/// cuda:0. Nothing where they do neither. Throws ConfigError for a file that cannot be read, and for a `--device` that
/// is neither a device nor a profile, with the profiles' names.
std::optional<DeviceProfile> take_profile(CommonOptions& options, const std::string& profile_file);

/// Whether neither the command line nor the configuration chose a device, and this machine has no GPU.
bool device_is_open(const RunConfig& config);

/// The title of a plan's device: its name in this machine, else the profile's.
std::string device_title(const run::PlanTarget& target);

/// Lines of a plan that say that the card is not known, which one stands in for it, and how to name it; "" otherwise.
std::string stand_in_text(const RunConfig& config, const DeviceProfile& profile);

}  // namespace bantam::cli
