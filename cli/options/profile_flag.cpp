// From flags to a profile.
#include "bantam/cli/options/profile_flag.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/memory/device/known_gpus.h"

namespace bantam::cli {
namespace {

constexpr std::size_t kNearest = 6;

/// Throws where `text` is no device, with the cards that could have been meant, nearest first.
void require_device_name(const std::string& text) {
  if (text == "auto") return;
  try {
    (void)parse_device(text);
    return;
  } catch (const DeviceError&) {  // said below, with more advice
  }
  if (const std::string why = unsupported_gpu(text); !why.empty())
    throw ConfigError(fmt::format("--device: {} {}", shown(text), why));
  std::vector<std::string> names = device_profile_names();
  const std::string key = gpu_key(text);
  std::ranges::stable_sort(names, {}, [&](const std::string& name) { return edit_distance(key, gpu_key(name)); });
  names.resize(std::min(names.size(), kNearest));
  throw ConfigError(
      fmt::format("--device: '{}' is no device (auto, cpu, cuda:N) and no card that is known; the nearest are\n  {}\n"
                  "`bantam devices --profiles` lists all; --profile FILE describes another (docs/PLANNING.md)",
                  shown(text), join(names, ", ", ", ")));
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

bool device_is_open(const RunConfig& config) {
  if (cuda_device_count() > 0 || !config.device.is_cpu()) return false;
  return std::ranges::any_of(config.document.values(),
                             [](const auto& value) { return value.first == "device" && value.second == "auto"; });
}

std::string device_title(const run::PlanTarget& target) {
  return target.machine ? to_string(target.device) : target.profile.title();
}

std::string stand_in_text(const RunConfig& config, const DeviceProfile& profile) {
  if (profile.stand_in.empty()) return "";
  if (!config.planned_for)
    return fmt::format(
        "{} is not in this machine: planned for a stand-in, the {}.\n"
        "--device CARD names yours, e.g. --device rtx3060.\n",
        to_string(config.device), profile.stand_in);
  return fmt::format(
      "No GPU is here and none is named: {} stands in, with the rates of\n"
      "the {}. --device CARD names yours, --device cpu plans for this machine.\n",
      profile.name, profile.stand_in);
}

}  // namespace bantam::cli
