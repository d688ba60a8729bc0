// Checkpoints appear by a rename, after all of their files are on the disk, and go by one before they are removed.
#include "bantam/run/train/checkpoint_folder.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <limits>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/json.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/run/train/json_fields.h"
#include "bantam/run/train/library_versions.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 2;  // 1: without SHA-256 and run
constexpr std::string_view kPrefix = "update-", kReplaced = ".replaced", kTemporary = ".tmp";
constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kState = "state.safetensors";
constexpr const char* kSum = "sha256";  // of checkpoint.json without this last entry

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

/// Removes what a crash left of a new checkpoint.json, in a checkpoint that was given another number.
void remove_temporary_files(const fs::path& checkpoint) {
  std::error_code error, ignored;
  if (fs::is_symlink(checkpoint, ignored)) return;  // not the run's files
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

Json json_of(const CheckpointFacts& facts) {
  const auto sum = [](const FileSum& of) { return Json{{"bytes", of.bytes}, {"sha256", of.sha256}}; };
  return {{"version", kVersion},
          {"run", facts.run_id},
          {"updates", facts.updates},
          {"epoch", facts.epoch},
          {"update", facts.update},
          {"training", {{"loss", facts.loss}, {"accuracy", facts.accuracy}, {"samples", facts.samples}}},
          {"metrics_bytes", facts.metrics.bytes},
          {"metrics_sha256", facts.metrics.sha256},
          {"histograms_bytes", facts.histograms.bytes},
          {"histograms_sha256", facts.histograms.sha256},
          {"events_bytes", facts.events.bytes},
          {"events_sha256", facts.events.sha256},
          {"validation_events_bytes", facts.validation_events.bytes},
          {"validation_events_sha256", facts.validation_events.sha256},
          {"seconds", facts.seconds},
          {"schedule_epochs", facts.schedule_epochs},
          {"schedule_updates", facts.schedule_updates},
          {"best", {{"metric", facts.best_metric}, {"weights", facts.best_weights}, {"sha256", facts.best_sha256}}},
          {"time", utc_text(std::time(nullptr))},
          {"program", std::string("bantam ") + program_version()},
          {"files", {{kWeights, sum(facts.weights)}, {kState, sum(facts.state)}}},
          {"config_sha256", facts.config_sha256},
          {"fingerprint", facts.fingerprint}};
}

/// Writes the entries, and after them the sum of their text.
std::string text_of(Json json) {
  json.erase(kSum);
  const std::string sum = sha256_of(json.dump(1));
  json[kSum] = sum;
  return json.dump(1) + "\n";
}

void require_sum(Json json) {
  const auto written = field<std::string>(json, kSum);
  json.erase(kSum);
  if (const std::string now = sha256_of(json.dump(1)); now != written)
    throw DataError(fmt::format("its values have the SHA-256 {}, and were written with {}", now, shown(written)));
}

void read_log(const Json& json, const std::string& name, FileSum& log) {
  log = {.bytes = field_or(json, (name + "_bytes").c_str(), std::uint64_t{0}),
         .sha256 = field_or(json, (name + "_sha256").c_str(), std::string())};
}

CheckpointFacts facts_of(const Json& json) {
  CheckpointFacts facts;
  read_field(json, "updates", facts.updates);
  read_field(json, "epoch", facts.epoch);
  read_field(json, "update", facts.update);
  (void)object_field(json, "training");
  // JSON has neither infinities nor NaN.
  const bool finite = !json["training"].contains("loss") || !json["training"]["loss"].is_null();
  facts.loss = finite ? field<double>(json, "training.loss") : std::numeric_limits<double>::quiet_NaN();
  read_field(json, "training.accuracy", facts.accuracy);
  read_field(json, "training.samples", facts.samples);
  read_field(json, "metrics_bytes", facts.metrics.bytes);
  read_log(json, "metrics", facts.metrics);
  read_log(json, "histograms", facts.histograms);
  read_log(json, "events", facts.events);
  read_log(json, "validation_events", facts.validation_events);
  // Before there were two files, the one lay in another place: these begin anew.
  if (!json.contains("validation_events_bytes")) facts.events = {};
  read_field(json, "seconds", facts.seconds);
  read_field(json, "schedule_epochs", facts.schedule_epochs);
  facts.schedule_updates = field_or(json, "schedule_updates", std::int64_t{0});
  if (json.contains("best")) {  // not in checkpoints of earlier programs
    read_field(json, "best.metric", facts.best_metric);
    read_field(json, "best.weights", facts.best_weights);
    facts.best_sha256 = field_or(json["best"], "sha256", std::string());
  }
  read_field(json, "config_sha256", facts.config_sha256);
  read_field(json, "time", facts.written);
  read_field(json, "program", facts.program);
  read_field(json, "fingerprint", facts.fingerprint);
  facts.run_id = field_or(json, "run", std::string());
  const Json& files = object_field(json, "files");
  const auto read_sum = [&files](const char* file, FileSum& sum) {
    if (!files.contains(file)) throw DataError(fmt::format("files.{}: the key is missing", file));
    read_field(files[file], "bytes", sum.bytes);
    sum.sha256 = field_or(files[file], "sha256", std::string());
  };
  read_sum(kWeights, facts.weights);
  read_sum(kState, facts.state);
  return facts;
}

[[noreturn]] void fail_length(const fs::path& file, std::uint64_t bytes, std::uint64_t written) {
  throw DataError(fmt::format("{}: damaged: it has {} bytes, and was written with {}", file.string(), bytes, written));
}

void check_size(const fs::path& file, const FileSum& written) {
  const FileDescriptor opened = open_file(Checkpoint::in_run(file), O_RDONLY);
  struct stat facts {};
  if (!opened) throw DataError(fmt::format("{}: {}", file.string(), reason_text(ENOENT)));
  if (::fstat(opened.get(), &facts) != 0) throw DataError(fmt::format("{}: {}", file.string(), reason_text(errno)));
  if (const auto bytes = static_cast<std::uint64_t>(facts.st_size); bytes != written.bytes)
    fail_length(file, bytes, written.bytes);
}

void check_sum(const fs::path& file, const FileSum& found, const FileSum& written) {
  if (found.bytes != written.bytes) fail_length(file, found.bytes, written.bytes);
  if (!written.sha256.empty() && found.sha256 != written.sha256)
    throw DataError(
        fmt::format("{}: damaged, or of another checkpoint: it has the SHA-256 {}, and checkpoint.json has {}",
                    file.string(), found.sha256, shown(written.sha256)));
}

}  // namespace

CheckpointFacts Checkpoint::read() const {
  constexpr std::uint64_t kMostBytes = 64'000'000;
  const std::string text = bantam::read_file(in_run(facts()), kMostBytes);
  CheckpointFacts read;
  try {
    const Json json = parse_json(text);
    const int version = field<int>(json, "version");
    if (version != 1 && version != kVersion)
      throw DataError(fmt::format("its version is {}; this program reads versions 1 and {}", version, kVersion));
    if (version == kVersion) require_sum(json);
    read = facts_of(json);
    if (version == kVersion && (read.weights.sha256.empty() || read.state.sha256.empty()))
      throw DataError("files: the key sha256 is missing");
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: damaged: {}", facts().string(), error.what()));
  }
  check_size(weights(), read.weights);
  check_size(state(), read.state);
  return read;
}

std::string Checkpoint::read_file(const fs::path& file, const FileSum& written) const {
  std::string bytes = bantam::read_file(in_run(file), written.bytes);
  check_sum(file, {.bytes = bytes.size(), .sha256 = written.sha256.empty() ? "" : sha256_of(bytes)}, written);
  return bytes;
}

void Checkpoint::check_file(const fs::path& file, const FileSum& written) const {
  if (!written.sha256.empty()) check_sum(file, sum_of(in_run(file), written.bytes + 1).finished(), written);
}

bool is_checkpoint(const fs::path& path) {
  std::error_code error;
  return updates_of(path.filename().string()) && path.parent_path().filename() == "checkpoints" &&
         fs::is_directory(path, error);
}

std::vector<Checkpoint> CheckpointFolder::list() const {
  std::vector<Checkpoint> found;
  require_no_links({.path = path_});
  std::error_code error, unknown;
  for (const fs::path& path : folder_entries(path_, error))
    if (const auto updates = updates_of(path.filename().string()); updates && fs::is_directory(path, unknown))
      found.push_back({.path = path, .updates = *updates});
  if (error && error != std::errc::no_such_file_or_directory)
    throw DataError(fmt::format("cannot read {}: {}", path_.string(), error.message()));
  std::ranges::sort(found, std::ranges::greater(), &Checkpoint::updates);
  return found;
}

void CheckpointFolder::write(const CheckpointFacts& facts,
                             const std::function<void(AtomicFile& weights, AtomicFile& state)>& write) const {
  require_no_links({.path = path_});
  make_folders(path_);
  const Checkpoint done{.path = path_ / name_of(facts.updates), .updates = facts.updates};
  const Checkpoint begun{.path = path_ / fmt::format(".{}{}", name_of(facts.updates), kTemporary),
                         .updates = facts.updates};
  remove_temporaries();  // of a write that failed, and could not remove them
  std::error_code error;
  try {
    fs::create_directory(begun.path);
    CheckpointFacts written = facts;
    {
      AtomicFile weights(Checkpoint::in_run(begun.weights())), state(Checkpoint::in_run(begun.state()));
      weights.begin_sum();
      state.begin_sum();
      write(weights, state);
      written.weights = weights.sum();
      written.state = state.sum();
      weights.commit();
      state.commit();
    }
    write_file_atomically(Checkpoint::in_run(begun.facts()), text_of(json_of(written)));
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
  Json json = parse_json(read_file(Checkpoint::in_run(checkpoint.facts())));
  json["updates"] = updates;
  const bool has_sum = json.contains(kSum);
  write_file_atomically(Checkpoint::in_run(checkpoint.facts()), has_sum ? text_of(json) : json.dump(1) + "\n");
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
    if (fs::is_symlink(path_, error)) return;  // what it leads to is not the run's
    for (const fs::path& path : folder_entries(path_, error))
      if (updates_of(path.filename().string()))
        remove_temporary_files(path);
      else
        remove_temporary(path_, path);
  } catch (const std::bad_alloc&) {  // they stay until the folder is opened the next time
  }
}

}  // namespace bantam::run
