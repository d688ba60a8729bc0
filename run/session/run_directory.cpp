// Making the folder without treading on another run.
#include "bantam/run/session/run_directory.h"

#include <ctime>
#include <system_error>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFiles[] = {"config.yaml", "metrics.jsonl", "weights.safetensors", "state.safetensors",
                                  "algorithms.json"};

/// Whether something is there; where the system cannot say (a loop of links, a folder that may not be read, …), a
/// DataError.
bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (status.type() == fs::file_type::none)
    throw DataError(fmt::format("cannot look at {}: {}", path.string(), error.message()));
  return true;
}

void require_folder(const fs::path& path) {
  std::error_code error;
  if (is_there(path) && !fs::is_directory(path, error))
    throw DataError(fmt::format("--run-dir: {} is no folder", path.string()));
}

/// runs/<name>-<date-time>, with a number appended where two runs begin in one second.
fs::path fresh_path(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  const std::string base = fmt::format("{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(now));
  make_folders("runs");
  for (int number = 1;; ++number) {
    const fs::path path = fs::path("runs") / (number == 1 ? base : fmt::format("{}-{}", base, number));
    std::error_code error;
    if (fs::create_directory(path, error)) return path;  // false where another run was faster
    if (error) throw DataError(fmt::format("{}: cannot make the run's folder: {}", path.string(), error.message()));
  }
}

void require_no_run(const fs::path& given) {
  for (const char* file : kFiles)
    if (is_there(given / file))
      throw ConfigError(
          fmt::format("--run-dir: {} holds a run already ({}); name another folder, --overwrite to replace it, or "
                      "--resume to go on with it",
                      given.string(), file));
}

void remove_run(const fs::path& given) {
  for (const char* file : kFiles) {
    std::error_code error;
    fs::remove(given / file, error);
    if (error) throw DataError(fmt::format("cannot remove {}: {}", (given / file).string(), error.message()));
  }
}

}  // namespace

RunDirectory::RunDirectory(fs::path path, bool made)
    : path_(std::move(path)), made_(made), lock_(std::make_unique<RunLock>(path_)) {}

RunDirectory::~RunDirectory() {
  if (!lock_) return;  // moved from
  lock_.reset();
  if (made_) ::rmdir(path_.c_str());  // only where nothing lies in it
}

void RunDirectory::require_free(const fs::path& given, bool overwrite) {
  if (given.empty()) return;
  require_folder(given);
  RunLock::require_free(given);
  if (!overwrite) require_no_run(given);
}

RunDirectory RunDirectory::create(const fs::path& given, const std::string& name, bool overwrite) {
  if (given.empty()) return RunDirectory(fresh_path(name), true);
  require_folder(given);
  const bool made = !is_there(given);
  make_folders(given);
  RunDirectory directory(given, made);
  // With the lock: of two runs that begin at once, one gets the folder.
  if (overwrite)
    remove_run(given);
  else
    require_no_run(given);
  return directory;
}

RunDirectory RunDirectory::open(const fs::path& path) {
  const auto require = [&path](bool is_run) {
    if (is_run) return;
    throw DataError(
        fmt::format("--resume: {} holds no run that can go on (config.yaml and state.safetensors are written by a "
                    "run that was stopped or has finished)",
                    path.string()));
  };
  RunLock::require_free(path);  // a run that is under way has not saved yet
  require(is_there(path / "config.yaml") && is_there(path / "state.safetensors"));
  return RunDirectory(path, false);
}

}  // namespace bantam::run
