// run.json, and what it tells of a process.
#include "bantam/run/session/run_record.h"

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
#include "bantam/run/session/library_versions.h"

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
  const auto state = std::ranges::find(kStates, json.at("state").get<std::string>());
  if (state == kStates.end())
    throw DataError(
        fmt::format("unknown state '{}', expected {}", json.at("state").get<std::string>(), fmt::join(kStates, ", ")));
  record.state = static_cast<RunState>(state - kStates.begin());
  const auto text = [&](const char* key, std::string& to) { json.at(key).get_to(to); };
  text("reason", record.reason), text("name", record.name), text("model", record.model);
  text("device", record.device), text("precision", record.precision), text("command", record.command);
  text("config_sha256", record.config_sha256), text("git_commit", record.git_commit);
  for (const auto& [name, version] : json.at("versions").items())
    record.versions.emplace_back(name, version.get<std::string>());
  const auto time = [&](const char* key) { return time_from(json.at(key).get<std::string>()); };
  record.executable = json.value("executable", "");
  record.ranks = json.value("ranks", 1);  // runs from before it was noted may have had several
  record.created = time("created"), record.started = time("started"), record.updated = time("updated");
  json.at("sessions").get_to(record.sessions);
  json.at("seconds").get_to(record.seconds);
  record.compute_seconds = json.value("compute_seconds", 0.0);
  json.at("epochs").get_to(record.epochs);
  json.at("epoch").get_to(record.epoch);
  json.at("update").get_to(record.update);
  json.at("updates").get_to(record.updates);
  if (json.contains("weights")) {
    json.at("weights").at("file").get_to(record.weights);
    json.at("weights").at("sha256").get_to(record.weights_sha256);
  }
  if (json.contains("class_names")) json.at("class_names").get_to(record.class_names);
  if (json.contains("broken_samples")) {
    json.at("broken_samples").at("count").get_to(record.broken_samples);
    json.at("broken_samples").at("first").get_to(record.broken_reasons);
  }
  if (json.contains("watched")) {
    json.at("watched").at("metric").get_to(record.watched);
    record.larger_is_better = json.at("watched").at("mode") != "min";
  }
  if (!json.contains("best")) return record;
  const Json& best = json.at("best");
  best.at("metric").get_to(record.metric);
  if (best.at("value").is_number()) best.at("value").get_to(record.best);
  best.at("epoch").get_to(record.best_epoch);
  return record;
}

}  // namespace

std::string_view to_string(RunState state) { return kStates[static_cast<std::size_t>(state)]; }

RunRecord record_of(const RunConfig& config, const std::string& command) {
  RunRecord record{.name = config.name,
                   .model = config.model.name,
                   .device = to_string(config.device),
                   .precision = std::string(to_string(config.precision)),
                   .ranks = std::max(static_cast<int>(config.dealt.size()), 1),
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
  write_file_atomically(path, json_of(record).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

RunRecord load_record(const fs::path& path) {
  const std::string text = read_file(path, 16 << 20);
  try {
    return record_from(Json::parse(text));
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{}: damaged: {}", path.string(), error.what()));
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: damaged: {}", path.string(), error.what()));
  }
}

std::optional<RunRecord> read_record(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
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
