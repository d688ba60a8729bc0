// SweepPlan: which settings of a configuration are trained, with which seeds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

/// A key of the configuration, and the values that it has in turn, in YAML's flow style.
struct SweepAxis {
  std::string key;
  std::vector<std::string> values;
  bool operator==(const SweepAxis&) const = default;
};

/// Reads "train.epochs=1,2,3". A comma separates values where it is outside of quotes, brackets and braces:
/// "recompute=none,[cheap, flatten]" has two values, "train.metrics=[accuracy, f1]" has one. Spaces around a value do
/// not count. Throws ConfigError naming the text for no key, an empty value, one that occurs twice, and quotes or
/// brackets that are not closed.
SweepAxis parse_axis(std::string_view text);

/// The values of one setting, one for each axis.
using SweepSetting = std::vector<std::string>;

struct SweepPlan {
  std::string config;                  ///< the configuration's text
  std::filesystem::path config_path;   ///< the file that it was read from
  std::vector<std::string> overrides;  ///< overrides that every run has: "train.epochs=3"
  std::vector<SweepAxis> axes;         ///< none: one setting
  std::int64_t repeat = 1;             ///< runs of a setting: its seed, and those after it
  bool operator==(const SweepPlan&) const = default;
};

/// Every combination of the axes' values; those of the last axis vary fastest. Throws ConfigError for a key that is
/// named twice, an axis that replaces a section in which an override or an earlier axis has set a key, `seed` as an
/// axis of a plan that repeats, and more than 10,000 settings or 100,000 runs.
std::vector<SweepSetting> settings_of(const SweepPlan& plan);

/// The configuration of a setting, with its own seed or another. Throws ConfigError.
RunConfig config_of(const SweepPlan& plan, const SweepSetting& setting, std::optional<std::uint64_t> seed = {},
                    DataSection data = DataSection::read);

/// The axes with more than one value, as indices: what differs between settings.
std::vector<std::size_t> varied_axes(const SweepPlan& plan);

/// A short name for each axis: the end of its key that no other axis has, "learning_rate".
std::vector<std::string> short_keys(const SweepPlan& plan);

/// "learning_rate=0.1, epochs=2": the values of the varied axes; empty where nothing varies.
std::string setting_text(const SweepPlan& plan, const SweepSetting& setting, std::string_view separator = ", ");

}  // namespace bantam::run
