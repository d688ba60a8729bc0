// Making the folder without treading on another run.
#include "bantam/run/train/run_directory.h"

#include <algorithm>
#include <ctime>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/folder_file.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

constexpr const char* kBeginning[] = {"config.yaml", "run.json"};
constexpr const char* kFiles[] = {"metrics.jsonl",       "histograms.jsonl",         "tensorboard",
                                  "weights.safetensors", "weights-best.safetensors", "weights-ema.safetensors",
                                  "state.safetensors",   "algorithms.json",          "checkpoints"};
/// Not a run's own, but of it: what `bantam report` writes beside its files.
constexpr const char* kReport = "report.html";

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

/// Refuses a folder with a run's files. A run that ended before it trained (config.yaml, run.json) may be replaced; a
/// configuration alone may be somebody's own.
void require_no_run(const fs::path& given) {
  const auto refuse = [&given](const char* file) {
    throw ConfigError(
        fmt::format("--run-dir: {} holds a run already ({}); name another folder, --overwrite to replace it, or "
                    "--resume to go on with it",
                    given.string(), file));
  };
  for (const char* file : kFiles)
    if (is_there(given / file)) refuse(file);
  if (is_there(given / "config.yaml") && !is_there(given / "run.json")) refuse("config.yaml");
}

/// Refuses files that would make reading or writing wait, before anything is trained.
void require_files(const fs::path& run) {
  const auto check = [&run](const char* file) {
    const std::string kind = what_else_is_at({.path = run / file});
    if (kind == "a FIFO" || kind == "a socket" || kind == "a device")
      throw DataError(fmt::format("--resume: {} is {}, expected a regular file: remove it, or put the file back",
                                  (run / file).string(), kind));
  };
  for (const char* file : kBeginning) check(file);
  for (const char* file : kFiles) check(file);
}

void remove_file(const fs::path& path) {
  std::error_code error;
  if (path.filename() == "checkpoints" || path.filename() == "tensorboard")
    remove_folder(path, error);
  else
    fs::remove(path, error);
  if (error) throw DataError(fmt::format("cannot remove {}: {}", path.string(), error.message()));
}

bool is_temporary(const std::string& name) {
  if (!name.starts_with('.') || !name.ends_with(".tmp")) return false;
  const auto is_of = [&name](const char* file) { return name.starts_with(fmt::format(".{}.", file)); };
  return std::ranges::any_of(kBeginning, is_of) || std::ranges::any_of(kFiles, is_of) || is_of(kReport) ||
         name.starts_with(".samples-");
}

}  // namespace

fs::path fresh_run_folder(const std::string& name) {
  const std::time_t now = std::time(nullptr);
  const std::string base = fmt::format("{}-{:%Y%m%d-%H%M%S}", name, fmt::localtime(now));
  make_folders("runs");
  for (int number = 1;; ++number) {
    const fs::path path = fs::path("runs") / (number == 1 ? base : fmt::format("{}-{}", base, number));
    std::error_code error;
    if (fs::create_directory(path, error)) {  // false where another run was faster
      sync_folder("runs");
      return path;
    }
    if (error) throw DataError(fmt::format("{}: cannot make the run's folder: {}", path.string(), error.message()));
  }
}

RunDirectory::RunDirectory(fs::path path, bool made)
    : path_(std::move(path)), made_(made), lock_(std::make_unique<RunLock>(path_)) {
  remove_temporaries();
}

void RunDirectory::remove_temporaries() const noexcept {
  try {
    checkpoints().remove_temporaries();
    std::error_code error, ignored;
    for (const fs::path& entry : folder_entries(path_, error))
      if (is_temporary(entry.filename().string())) fs::remove(entry, ignored);
  } catch (const std::bad_alloc&) {  // they stay until the folder is opened the next time
  }
}

bool RunDirectory::holds_run(const fs::path& path) {
  const auto has = [&path](const char* file) { return is_there(path / file); };
  return std::ranges::any_of(kBeginning, has) || std::ranges::any_of(kFiles, has);
}

bool RunDirectory::has_files() const { return holds_run(path_); }

void RunDirectory::clear() const {
  for (const char* file : kBeginning) remove_file(path_ / file);
  for (const char* file : kFiles) remove_file(path_ / file);
  remove_file(path_ / kReport);
}

void RunDirectory::abandon() const noexcept {
  std::error_code error;
  for (const char* file : kBeginning) fs::remove(path_ / file, error);
  remove_folder(events().parent_path().parent_path(), error);  // it tells what is about to begin
}

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
  if (given.empty()) return RunDirectory(fresh_run_folder(name), true);
  require_folder(given);
  const bool made = !is_there(given);
  make_folders(given);
  RunDirectory directory(given, made);
  if (!overwrite) require_no_run(given);  // with the lock: of two runs that begin at once, one gets the folder
  return directory;
}

RunDirectory RunDirectory::open(const fs::path& given) {
  const fs::path checkpoint = given.has_filename() ? given : given.parent_path();
  const bool chosen = is_checkpoint(checkpoint);
  const fs::path above = checkpoint.parent_path().parent_path();
  const fs::path path = !chosen ? given : above.empty() ? fs::path(".") : above;
  RunLock::require_free(path);
  if (!is_there(path / "config.yaml"))
    throw DataError(fmt::format("--resume: {} holds no run (there is no config.yaml)", path.string()));
  if (is_there(path / "state.safetensors") && !is_there(path / "checkpoints"))
    throw DataError(fmt::format(
        "--resume: {} was saved by an earlier version of this program (state.safetensors beside config.yaml, "
        "no checkpoints/), which cannot be gone on with; its weights.safetensors can still be read",
        path.string()));
  require_files(path);
  RunDirectory directory(path, false);
  if (chosen)
    for (Checkpoint& found : directory.checkpoints().list())
      if (found.path.filename() == checkpoint.filename()) directory.chosen_ = std::move(found);
  return directory;
}

}  // namespace bantam::run
