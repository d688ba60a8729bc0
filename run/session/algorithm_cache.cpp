// Reading and writing the algorithm cache: never a reason for a run to fail.
#include "bantam/run/session/algorithm_cache.h"

#include <cctype>
#include <cstdlib>
#include <system_error>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"

namespace bantam::run {
namespace {

/// Room that timing wants under a limit. On an H200 the candidates of resnet50's and resnet18's problems left 8 and 4
/// MiB more in the process than the chosen ones alone.
constexpr std::uint64_t kCandidateBytes = 64u << 20;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// In the user's folder for caches; nothing where there is none.
std::optional<std::filesystem::path> default_path(const std::string& device) {
  std::filesystem::path folder = environment("XDG_CACHE_HOME");
  if (folder.empty()) {
    const std::string home = environment("HOME");
    if (home.empty()) return std::nullopt;
    folder = std::filesystem::path(home) / ".cache";
  }
  std::string name = "algorithms-" + device + ".json";
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  }
  return folder / "bantam" / name;
}

}  // namespace

std::optional<std::filesystem::path> algorithm_cache_path(const std::string& algorithms, const std::string& device) {
  const std::string given = environment("BANTAM_ALGORITHM_CACHE");
  const std::string place = algorithms == "auto" && !given.empty() ? given : algorithms;
  if (place == "off") return std::nullopt;
  return place == "auto" ? default_path(device) : place;
}

bool timings_count() {
  return environment("NV_NSIGHT_INJECTION_TRANSPORT_TYPE").empty() &&
         environment("NV_SANITIZER_INJECTION_TRANSPORT_TYPE").empty();
}

AlgorithmCache::AlgorithmCache(Runtime& runtime, const RunConfig& config, const std::filesystem::path& run_file,
                               std::uint64_t planned_pool_bytes)
    : runtime_(runtime), where_(config.device) {
  if (!config.device.is_cuda() || config.algorithms == "off") return;
  device_ = device_info(config.device).name;
  choices_ = kernels::algorithm_choices(runtime.exec(config.device).libraries);
  path_ = algorithm_cache_path(config.algorithms, device_);
  if (choices_ == nullptr) return;
  if (!run_file.empty()) choices_->add(read(run_file));
  if (path_) choices_->add(read(*path_));
  choices_->set_timing(runtime.limit(where_) == 0 || has_room_to_time(planned_pool_bytes));
  if (!choices_->timing() && choices_->all().empty())
    runtime.log("algorithms are not timed, which the limit has no room for: the libraries' own first choices are used");
}

/// The pool's share of the limit is lowered once the kernels' bytes are known: enough must remain.
bool AlgorithmCache::has_room_to_time(std::uint64_t planned_pool_bytes) const {
  return planned_pool_bytes > 0 &&
         runtime_.allocator(where_).stats().limit_bytes >= planned_pool_bytes + kCandidateBytes;
}

void AlgorithmCache::end_timing() {
  if (choices_ != nullptr && runtime_.limit(where_) != 0) choices_->set_timing(false);
}

AlgorithmMap AlgorithmCache::read(const std::filesystem::path& path) const {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};  // not there yet, or /dev/null
  try {
    return read_algorithms(path, device_);
  } catch (const DataError& problem) {
    runtime_.log(std::string("algorithms are timed again: ") + problem.what());
    return {};
  }
}

void AlgorithmCache::save() {
  if (choices_ == nullptr || !path_ || !timings_count()) return;
  const AlgorithmMap known = choices_->all();
  AlgorithmMap file = read(*path_);  // another process may have written since; the first choice of a problem stays
  const std::size_t before = file.size();
  file.insert(known.begin(), known.end());
  if (file.size() == before) return;
  try {
    if (path_ == default_path(device_)) make_folders(path_->parent_path());
    write_algorithms(*path_, device_, file);
  } catch (const DataError& problem) {
    runtime_.log(std::string("the algorithm cache was not written: ") + problem.what());
  }
}

AlgorithmMap AlgorithmCache::chosen() const { return choices_ == nullptr ? AlgorithmMap() : choices_->all(); }

void AlgorithmCache::save_with_run(const std::filesystem::path& run_file, const AlgorithmMap& chosen) const {
  if (choices_ != nullptr) write_algorithms(run_file, device_, chosen);
}

}  // namespace bantam::run
