// Checkpoints appear by a rename, after all of their files are on the disk, and go by one before they are removed.
#include "bantam/run/session/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/json.h"
#include "bantam/base/text.h"
#include "bantam/run/session/library_versions.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::string_view kPrefix = "update-", kReplaced = ".replaced", kTemporary = ".tmp";
constexpr const char* kFiles[] = {"weights.safetensors", "state.safetensors"};

std::string name_of(std::int64_t updates) { return fmt::format("{}{:08}", kPrefix, updates); }

/// The updates of "update-00001234".
std::optional<std::int64_t> updates_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  std::int64_t updates = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), updates);
  if (error != std::errc() || end != digits.data() + digits.size() || updates < 0) return std::nullopt;
  return updates;
}

/// A folder that a crash left: whole ones go back to their name, the others are removed.
void remove_temporary(const fs::path& folder, const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with("." + std::string(kPrefix)) || !name.ends_with(kTemporary)) return;
  std::string whole = name.substr(1, name.size() - 1 - kTemporary.size());
  std::error_code error;
  if (whole.ends_with(kReplaced)) {
    whole.resize(whole.size() - kReplaced.size());
    if (!fs::exists(folder / whole, error)) {
      fs::rename(path, folder / whole, error);
      return;
    }
  }
  remove_folder(path, error);
}

/// Of a checkpoint that was given another number: what a crash left of its new checkpoint.json.
void remove_temporary_files(const fs::path& checkpoint) {
  std::error_code error, ignored;
  for (const fs::path& path : folder_entries(checkpoint, error)) {
    const std::string name = path.filename().string();
    if (name.starts_with('.') && name.ends_with(kTemporary)) fs::remove(path, ignored);
  }
}

/// Renamed first: a folder that is removed file by file must not be taken for a checkpoint.
void remove_checkpoint(const fs::path& checkpoint) {
  const fs::path temporary =
      checkpoint.parent_path() / fmt::format(".{}{}", checkpoint.filename().string(), kTemporary);
  std::error_code error;
  remove_folder(temporary, error);
  fs::rename(checkpoint, temporary, error);
  if (!error) remove_folder(temporary, error);
  if (error) throw DataError(fmt::format("cannot remove {}: {}", checkpoint.string(), error.message()));
}

fs::path replaced_name(const fs::path& checkpoint) {
  return checkpoint.parent_path() / fmt::format(".{}{}{}", checkpoint.filename().string(), kReplaced, kTemporary);
}

/// `from` becomes `to`. A rename replaces empty folders only: a checkpoint that is there is moved aside before, and
/// back where the rename fails; where the process ends in between, remove_temporaries() does that.
void replace(const fs::path& to, const fs::path& from) {
  const fs::path aside = replaced_name(to);
  std::error_code error;
  remove_folder(aside, error);
  fs::rename(to, aside, error);
  if (error && error != std::errc::no_such_file_or_directory) throw fs::filesystem_error("rename", to, aside, error);
  const bool moved = !error;
  try {
    fs::rename(from, to);
  } catch (...) {
    if (moved) fs::rename(aside, to, error);
    throw;
  }
  sync_folder(to.parent_path());
  if (moved) remove_folder(aside, error);
}

Json json_of(const CheckpointFacts& facts, const fs::path& folder) {
  Json files = Json::object();
  for (const char* file : kFiles) files[file] = {{"bytes", fs::file_size(folder / file)}};
  return {{"version", kVersion},
          {"updates", facts.updates},
          {"epoch", facts.epoch},
          {"update", facts.update},
          {"training", {{"loss", facts.loss}, {"accuracy", facts.accuracy}, {"samples", facts.samples}}},
          {"metrics_bytes", facts.metrics_bytes},
          {"histograms_bytes", facts.histograms_bytes},
          {"events_bytes", facts.events_bytes},
          {"validation_events_bytes", facts.validation_events_bytes},
          {"seconds", facts.seconds},
          {"schedule_epochs", facts.schedule_epochs},
          {"schedule_updates", facts.schedule_updates},
          {"best", {{"metric", facts.best_metric}, {"weights", facts.best_weights}}},
          {"time", utc_text(std::time(nullptr))},
          {"program", std::string("bantam ") + program_version()},
          {"files", files},
          {"config_sha256", facts.config_sha256},
          {"fingerprint", facts.fingerprint}};
}

CheckpointFacts facts_of(const Json& json) {
  CheckpointFacts facts;
  json.at("updates").get_to(facts.updates);
  json.at("epoch").get_to(facts.epoch);
  json.at("update").get_to(facts.update);
  const Json& training = json.at("training");
  const Json& loss = training.at("loss");  // JSON has neither infinities nor NaN
  facts.loss = loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>();
  training.at("accuracy").get_to(facts.accuracy);
  training.at("samples").get_to(facts.samples);
  json.at("metrics_bytes").get_to(facts.metrics_bytes);
  facts.histograms_bytes = json.value("histograms_bytes", std::uint64_t{0});
  facts.events_bytes = json.value("events_bytes", std::uint64_t{0});
  facts.validation_events_bytes = json.value("validation_events_bytes", std::uint64_t{0});
  // Before there were two files, the one lay in another place: these begin anew.
  if (!json.contains("validation_events_bytes")) facts.events_bytes = 0;
  json.at("seconds").get_to(facts.seconds);
  json.at("schedule_epochs").get_to(facts.schedule_epochs);
  facts.schedule_updates = json.value("schedule_updates", std::int64_t{0});
  if (json.contains("best")) {  // not in checkpoints of earlier programs
    json.at("best").at("metric").get_to(facts.best_metric);
    json.at("best").at("weights").get_to(facts.best_weights);
  }
  json.at("config_sha256").get_to(facts.config_sha256);
  json.at("time").get_to(facts.written);
  json.at("program").get_to(facts.program);
  json.at("fingerprint").get_to(facts.fingerprint);
  return facts;
}

void check_sizes(const Json& files, const fs::path& folder) {
  for (const char* file : kFiles) {
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(folder / file, error);
    const auto written = files.at(file).at("bytes").get<std::uint64_t>();
    if (error) throw DataError(fmt::format("{}: {}", (folder / file).string(), error.message()));
    if (bytes != written)
      throw DataError(fmt::format("{}: damaged: it has {} bytes, and was written with {}", (folder / file).string(),
                                  bytes, written));
  }
}

}  // namespace

CheckpointFacts Checkpoint::read() const {
  constexpr std::uint64_t kMostBytes = 64'000'000;
  const std::string text = read_file(facts(), kMostBytes);
  try {
    const Json json = Json::parse(text);
    if (const int version = json.at("version").get<int>(); version != kVersion)
      throw DataError(
          fmt::format("{}: its version is {}; this program reads version {}", facts().string(), version, kVersion));
    check_sizes(json.at("files"), path);
    return facts_of(json);
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{}: damaged: {}", facts().string(), error.what()));
  }
}

bool is_checkpoint(const fs::path& path) {
  std::error_code error;
  return updates_of(path.filename().string()) && path.parent_path().filename() == "checkpoints" &&
         fs::is_directory(path, error);
}

std::vector<Checkpoint> CheckpointFolder::list() const {
  std::vector<Checkpoint> found;
  std::error_code error, unknown;
  for (const fs::path& path : folder_entries(path_, error))
    if (const auto updates = updates_of(path.filename().string()); updates && fs::is_directory(path, unknown))
      found.push_back({.path = path, .updates = *updates});
  if (error && error != std::errc::no_such_file_or_directory)
    throw DataError(fmt::format("cannot read {}: {}", path_.string(), error.message()));
  std::ranges::sort(found, std::ranges::greater(), &Checkpoint::updates);
  return found;
}

void CheckpointFolder::write(const CheckpointFacts& facts, const std::function<void(const Checkpoint&)>& write) const {
  make_folders(path_);
  const Checkpoint done{.path = path_ / name_of(facts.updates), .updates = facts.updates};
  const Checkpoint begun{.path = path_ / fmt::format(".{}{}", name_of(facts.updates), kTemporary),
                         .updates = facts.updates};
  remove_temporaries();  // of a write that failed, and could not remove them
  std::error_code error;
  try {
    fs::create_directory(begun.path);
    write(begun);
    write_file_atomically(begun.facts(), json_of(facts, begun.path).dump(1) + "\n");
    sync_folder(begun.path);
    replace(done.path, begun.path);
  } catch (const fs::filesystem_error& failure) {
    remove_folder(begun.path, error);
    throw DataError(fmt::format("cannot write {}: {}", done.path.string(), failure.code().message()));
  } catch (...) {
    remove_folder(begun.path, error);
    throw;
  }
}

void CheckpointFolder::keep_newest(std::int64_t keep) const {
  const std::vector<Checkpoint> all = list();
  for (std::size_t i = static_cast<std::size_t>(keep); i < all.size(); ++i) remove_checkpoint(all[i].path);
}

void CheckpointFolder::remove_after(std::int64_t updates) const {
  bool removed = false;
  for (const Checkpoint& checkpoint : list()) {
    if (checkpoint.updates <= updates) continue;
    remove_checkpoint(checkpoint.path);
    removed = true;
  }
  if (removed) sync_folder(path_);
}

Checkpoint CheckpointFolder::renumber(const Checkpoint& checkpoint, std::int64_t updates) const {
  bool removed = false;
  for (const Checkpoint& other : list()) {
    if (other.updates == checkpoint.updates || (other.updates < updates && other.updates < checkpoint.updates))
      continue;
    remove_checkpoint(other.path);
    removed = true;
  }
  if (removed) sync_folder(path_);
  Json json = Json::parse(read_file(checkpoint.facts()));
  json["updates"] = updates;
  write_file_atomically(checkpoint.facts(), json.dump(1) + "\n");
  Checkpoint renamed{.path = path_ / name_of(updates), .updates = updates};
  if (updates == checkpoint.updates) return renamed;
  try {
    replace(renamed.path, checkpoint.path);
  } catch (const fs::filesystem_error& failure) {
    throw DataError(fmt::format("cannot rename {} to {}: {}", checkpoint.path.string(), renamed.path.string(),
                                failure.code().message()));
  }
  return renamed;
}

void CheckpointFolder::remove_temporaries() const noexcept {
  try {
    std::error_code error;
    for (const fs::path& path : folder_entries(path_, error))
      if (updates_of(path.filename().string()))
        remove_temporary_files(path);
      else
        remove_temporary(path_, path);
  } catch (const std::bad_alloc&) {  // they stay until the folder is opened the next time
  }
}

}  // namespace bantam::run
