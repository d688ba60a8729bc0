// sweep.json, and the names of the runs' folders.
#include "bantam/run/sweep/sweep_folder.h"

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/run/train/json_fields.h"
#include "bantam/run/train/run_directory.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPlan = "sweep.json";
constexpr const char* kConfig = "sweep.yaml";  // not config.yaml, which is a run's

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

void require_free(const fs::path& folder) {
  if (is_there(folder / kPlan))
    throw ConfigError(
        fmt::format("{} holds a sweep already; `bantam sweep --resume {}` goes on with it, or name another folder",
                    folder.string(), folder.string()));
  for (const char* file : {"run.json", "config.yaml"})
    if (is_there(folder / file))
      throw ConfigError(
          fmt::format("{} holds a run already ({}); name another folder for the sweep", folder.string(), file));
}

/// Removes files that a killed process had begun to write.
void remove_temporaries(const fs::path& folder) {
  std::error_code error, ignored;
  for (const fs::path& entry : folder_entries(folder, error)) {
    const std::string name = entry.filename().string();
    if (is_temporary_of(kPlan, name) || is_temporary_of(kConfig, name)) fs::remove(entry, ignored);
  }
}

/// Keeps characters that a folder's name may have on every file system; the rest becomes '_'.
std::string as_file_name(const std::string& text) {
  constexpr std::size_t kMost = 100;
  std::string name;
  for (const char c : text)
    name +=
        std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("+-._=").find(c) != std::string_view::npos
            ? c
            : '_';
  return name.substr(0, kMost);
}

SweepPlan plan_from(const Json& json, std::string config) {
  SweepPlan plan{.config = std::move(config),
                 .config_path = field<std::string>(json, "config"),
                 .overrides = field<std::vector<std::string>>(json, "overrides"),
                 .repeat = field<std::int64_t>(json, "repeat")};
  for (const Json& axis : list_field(json, "axes"))
    plan.axes.push_back(
        {.key = field<std::string>(axis, "key"), .values = field<std::vector<std::string>>(axis, "values")});
  return plan;
}

}  // namespace

Sweep::Sweep(SweepPlan plan, fs::path folder)
    : plan_(std::move(plan)), settings_(settings_of(plan_)), folder_(std::move(folder)) {
  for (const SweepSetting& setting : settings_) {
    const RunConfig config = run::config_of(plan_, setting);
    require_device(config);
    if (!config.data) config.document.root().fail_at_key("missing key 'data': training needs data");
    seeds_.push_back(config.seed);
  }
}

Sweep Sweep::create(SweepPlan plan, const fs::path& folder, const std::string& name) {
  if (!folder.empty()) require_free(folder);
  Sweep sweep(std::move(plan), folder);
  if (folder.empty()) sweep.folder_ = fresh_run_folder(name);
  make_folders(sweep.folder_);
  sweep.lock_ = std::make_unique<RunLock>(sweep.folder_);
  if (!folder.empty()) require_free(folder);  // with the lock: of two sweeps that begin at once, one has the folder
  remove_temporaries(sweep.folder_);
  sweep.list_runs();
  sweep.write();
  return sweep;
}

Sweep Sweep::open(const fs::path& folder) {
  if (!is_there(folder / kPlan))
    throw DataError(fmt::format("--resume: {} holds no sweep (there is no {})", folder.string(), kPlan));
  auto lock = std::make_unique<RunLock>(folder);
  remove_temporaries(folder);
  constexpr std::uint64_t kMost = 64 << 20;
  const std::string text = read_file(FolderFile{folder / kPlan}, kMost);
  std::string config = read_file(FolderFile{folder / kConfig}, kMost);
  SweepPlan plan;
  try {
    plan = plan_from(parse_json(text), std::move(config));
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: damaged: {}", (folder / kPlan).string(), error.what()));
  }
  if (plan.repeat < 1)
    throw DataError(
        fmt::format("{}: damaged: repeat is {}, expected 1 or more", (folder / kPlan).string(), plan.repeat));
  for (const SweepAxis& axis : plan.axes)
    if (axis.values.empty())
      throw DataError(fmt::format("{}: damaged: {} has no values", (folder / kPlan).string(), shown(axis.key)));
  Sweep sweep(std::move(plan), folder);
  sweep.lock_ = std::move(lock);
  sweep.list_runs();
  return sweep;
}

bool Sweep::is_in(const fs::path& folder) { return is_there(folder / kPlan); }

void Sweep::set_repeat(std::int64_t repeat) {
  if (repeat < plan_.repeat)
    throw ConfigError(
        fmt::format("--repeat: the sweep in {} has {} runs of a setting; expected as many or more, got {}",
                    folder_.string(), plan_.repeat, repeat));
  if (repeat == plan_.repeat) return;
  SweepPlan longer = plan_;
  longer.repeat = repeat;
  (void)settings_of(longer);  // refuses what cannot repeat
  plan_ = std::move(longer);
  list_runs();
  write();
}

RunConfig Sweep::config_of(const SweepRun& run) const {
  return run::config_of(plan_, settings_.at(run.setting), run.seed);
}

std::string Sweep::text_of(const SweepRun& run) const {
  std::string text = setting_text(plan_, settings_.at(run.setting));
  if (plan_.repeat == 1 && !text.empty()) return text;
  return fmt::format("{}{}seed={}", text, text.empty() ? "" : ", ", run.seed);
}

void Sweep::list_runs() {
  runs_.clear();
  for (std::int64_t repeat = 0; repeat < plan_.repeat; ++repeat)
    for (std::size_t i = 0; i < settings_.size(); ++i) {
      const std::uint64_t seed = seeds_[i] + static_cast<std::uint64_t>(repeat);
      runs_.push_back({.setting = i, .seed = seed, .folder = folder_ / name_of(i, seed)});
    }
}

/// "3-learning_rate=0.1-seed=42". The number keeps names apart that differ in what a file's name cannot have; it does
/// not depend on the number of seeds.
std::string Sweep::name_of(std::size_t setting, std::uint64_t seed) const {
  if (settings_.size() == 1) return fmt::format("seed={}", seed);
  const auto digits = static_cast<int>(std::to_string(settings_.size()).size());
  const std::string text = setting_text(plan_, settings_[setting], "-");
  const std::string values = fmt::format("{:0{}}-{}", setting + 1, digits, as_file_name(text));
  const bool has_seed = std::ranges::find(plan_.axes, "seed", &SweepAxis::key) != plan_.axes.end();
  return has_seed ? values : fmt::format("{}-seed={}", values, seed);
}

void Sweep::write() const {
  Json json = {{"version", 1},
               {"config", plan_.config_path.string()},
               {"overrides", plan_.overrides},
               {"axes", Json::array()},
               {"repeat", plan_.repeat},
               {"runs", Json::array()}};
  for (const SweepAxis& axis : plan_.axes) json["axes"].push_back({{"key", axis.key}, {"values", axis.values}});
  for (const SweepRun& run : runs_) json["runs"].push_back(run.folder.filename().string());
  write_file_atomically(FolderFile{folder_ / kConfig}, plan_.config);
  write_file_atomically(FolderFile{folder_ / kPlan}, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace bantam::run
