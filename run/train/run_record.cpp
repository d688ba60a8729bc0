// run.json, and what it tells of a process.
#include "bantam/run/train/run_record.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <sstream>
#include <system_error>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/sha256.h"
#include "bantam/base/text.h"
#include "bantam/run/train/json_fields.h"
#include "bantam/run/train/library_versions.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kStates = {"starting", "running", "stopped", "finished", "failed"};

/// The way back from utc_text; 0 where it is none.
std::int64_t time_from(const std::string& text) {
  std::tm time{};
  return ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time) == nullptr ? 0 : ::timegm(&time);
}

/// The first line of a small file; empty where it cannot be read.
std::string first_line(const fs::path& path) {
  try {
    const std::string text = read_file(path, 1 << 20);
    return text.substr(0, text.find('\n'));
  } catch (const DataError&) {
    return {};
  }
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

/// A reference that lies in a file of its own, or among the packed ones ("<commit> <name>" a line).
std::string commit_of(const fs::path& git, const std::string& name) {
  if (const std::string commit = first_line(git / name); is_commit(commit)) return commit;
  std::string packed;
  try {
    packed = read_file(git / "packed-refs", 64 << 20);
  } catch (const DataError&) {
    return {};
  }
  std::istringstream lines(packed);
  for (std::string line; std::getline(lines, line);)
    if (line.size() > 41 && line.substr(41) == name && is_commit(line.substr(0, 40))) return line.substr(0, 40);
  return {};
}

/// A work tree's `.git` is a folder, or a file that names one, whose `commondir` has the references.
std::string commit_in(fs::path git) {
  std::error_code error;
  if (fs::is_regular_file(git, error)) {
    const std::string line = first_line(git);
    if (!line.starts_with("gitdir: ")) return {};
    git = git.parent_path() / line.substr(8);  // an absolute path stands alone
  }
  const std::string head = first_line(git / "HEAD");
  if (!head.starts_with("ref: ")) return is_commit(head) ? head : "";
  const std::string name = head.substr(5);
  if (const std::string commit = commit_of(git, name); !commit.empty()) return commit;
  const std::string common = first_line(git / "commondir");
  return common.empty() ? "" : commit_of(git / common, name);
}

/// The file that this process runs; empty: not known.
std::string own_executable() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "" : path.string();
}

Json json_of(const RunRecord& record) {
  Json versions = Json::object();
  for (const auto& [name, version] : record.versions) versions[name] = version;
  Json json = {{"version", 1},
               {"id", record.id},
               {"state", to_string(record.state)},
               {"reason", record.reason},
               {"name", record.name},
               {"model", record.model},
               {"device", record.device},
               {"ranks", record.ranks},
               {"precision", record.precision},
               {"command", record.command},
               {"executable", record.executable},
               {"config_sha256", record.config_sha256},
               {"git_commit", record.git_commit},
               {"versions", versions},
               {"created", utc_text(record.created)},
               {"started", utc_text(record.started)},
               {"updated", utc_text(record.updated)},
               {"sessions", record.sessions},
               {"seconds", record.seconds},
               {"compute_seconds", record.compute_seconds},
               {"epochs", record.epochs},
               {"epoch", record.epoch},
               {"update", record.update},
               {"updates", record.updates}};
  if (!record.weights.empty()) json["weights"] = {{"file", record.weights}, {"sha256", record.weights_sha256}};
  if (!record.class_names.empty()) json["class_names"] = record.class_names;
  if (!record.watched.empty())
    json["watched"] = {{"metric", record.watched}, {"mode", record.larger_is_better ? "max" : "min"}};
  if (!record.metric.empty())
    json["best"] = {{"metric", record.metric}, {"value", record.best}, {"epoch", record.best_epoch}};
  if (record.broken_samples > 0)
    json["broken_samples"] = {{"count", record.broken_samples}, {"first", record.broken_reasons}};
  return json;
}

RunRecord record_from(const Json& json) {
  RunRecord record;
  const auto name = field<std::string>(json, "state");
  const auto state = std::ranges::find(kStates, name);
  if (state == kStates.end())
    throw DataError(fmt::format("unknown state '{}', expected {}", shown(name), fmt::join(kStates, ", ")));
  record.state = static_cast<RunState>(state - kStates.begin());
  const auto text = [&](const char* key, std::string& to) { read_field(json, key, to); };
  text("reason", record.reason), text("name", record.name), text("model", record.model);
  text("device", record.device), text("precision", record.precision), text("command", record.command);
  text("config_sha256", record.config_sha256), text("git_commit", record.git_commit);
  for (const auto& [library, version] : object_field(json, "versions").items()) {
    if (!version.is_string()) throw DataError(fmt::format("versions.{}: expected a text", shown(library)));
    record.versions.emplace_back(library, version.get<std::string>());
  }
  const auto time = [&](const char* key) { return time_from(field<std::string>(json, key)); };
  record.id = field_or(json, "id", std::string());
  record.executable = field_or(json, "executable", std::string());
  record.ranks = field_or(json, "ranks", 1);  // runs from before it was noted may have had several
  record.created = time("created"), record.started = time("started"), record.updated = time("updated");
  read_field(json, "sessions", record.sessions);
  read_field(json, "seconds", record.seconds);
  record.compute_seconds = field_or(json, "compute_seconds", 0.0);
  read_field(json, "epochs", record.epochs);
  read_field(json, "epoch", record.epoch);
  read_field(json, "update", record.update);
  read_field(json, "updates", record.updates);
  if (json.contains("weights")) {
    text("weights.file", record.weights);
    text("weights.sha256", record.weights_sha256);
  }
  record.class_names = field_or(json, "class_names", std::vector<std::string>());
  if (json.contains("broken_samples")) {
    read_field(json, "broken_samples.count", record.broken_samples);
    read_field(json, "broken_samples.first", record.broken_reasons);
  }
  if (json.contains("watched")) {
    text("watched.metric", record.watched);
    record.larger_is_better = field<std::string>(json, "watched.mode") != "min";
  }
  if (!json.contains("best")) return record;
  text("best.metric", record.metric);
  const Json& best = object_field(json, "best");
  if (best.contains("value") && !best["value"].is_null()) read_field(json, "best.value", record.best);
  read_field(json, "best.epoch", record.best_epoch);
  return record;
}

}  // namespace

std::string_view to_string(RunState state) { return kStates[static_cast<std::size_t>(state)]; }

RunRecord record_of(const RunConfig& config, const std::string& command) {
  RunRecord record{.name = config.name,
                   .model = config.model.name,
                   .device = to_string(config.device),
                   .precision = std::string(to_string(config.precision)),
                   .ranks = std::max(static_cast<int>(config.assigned.size()), 1),
                   .command = command,
                   .executable = own_executable(),
                   .config_sha256 = sha256_of(config.document.resolved_yaml()),
                   .created = std::time(nullptr),
                   .sessions = 1,
                   .epochs = config.train.epochs};
  const WatchedMetric watched = config.checkpoint.best.value_or(watched_by_default(config.train));
  record.watched = watched.metric;
  record.larger_is_better = watched.larger;
  if (const auto& weights = config.model.weights) {
    record.weights = weights->file;
    record.weights_sha256 = weights->sha256;
  }
  if (config.data) record.class_names = train_facts(*config.data).class_names;
  std::error_code error;
  record.git_commit = git_commit_of(fs::current_path(error));
  record.started = record.updated = record.created;
  note_versions(record);
  return record;
}

std::map<std::string, std::string> weights_metadata(const RunConfig& config) {
  std::map<std::string, std::string> metadata;
  if (!config.data) return metadata;
  const std::vector<std::string> names = train_facts(*config.data).class_names;
  // Names that are not UTF-8, as a folder's may be, are written with replacements.
  if (!names.empty()) metadata["class_names"] = Json(names).dump(-1, ' ', false, Json::error_handler_t::replace);
  return metadata;
}

void note_versions(RunRecord& record) {
  record.versions = {{"bantam", program_version()}};
  for (const LibraryVersion& library : library_versions(CudaLibraries::loaded))
    record.versions.emplace_back(library.name, library.version);
}

void write_record(const fs::path& path, const RunRecord& record) {
  // Paths and commands need not be text.
  write_file_atomically(FolderFile{path}, json_of(record).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

RunRecord load_record(const fs::path& path) {
  const std::string text = read_file(FolderFile{path}, 16 << 20);
  try {
    return record_from(parse_json(text));
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: damaged: {}", path.string(), error.what()));
  }
}

std::optional<RunRecord> read_record(const fs::path& path) {
  try {
    return load_record(path);
  } catch (const DataError&) {
    return std::nullopt;
  }
}

ConfigError with_program_of(const ConfigError& error, const fs::path& folder) {
  const std::optional<RunRecord> record = read_record(folder / "run.json");
  if (!record || record->executable.empty()) return error;
  const fs::path made_by = record->executable, own = own_executable();
  if (made_by.filename() == own.filename()) return error;
  return ConfigError(fmt::format(
      "{}\nthe run was made by another program, {}\n(run.json), which may have layers, losses or formats of its own: "
      "`{}` does not\nknow them. Use the run with that program (docs/EXTENDING.md, \"Use a run of your program\")",
      error.what(), made_by.string(), own.filename().string()));
}

bool has_ended(const RunRecord& record) {
  return record.state == RunState::finished || (record.state == RunState::stopped && record.reason == kOutOfTime);
}

std::string git_commit_of(fs::path folder) {
  std::error_code error;
  for (;; folder = folder.parent_path()) {
    if (fs::exists(folder / ".git", error)) return commit_in(folder / ".git");
    if (folder.empty() || folder == folder.root_path()) return {};
  }
}

}  // namespace bantam::run
