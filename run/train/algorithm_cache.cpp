// Reading and writing the algorithm cache: never a reason for a run to fail.
#include "bantam/run/train/algorithm_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <system_error>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/engine/comm/collectives.h"
#include "bantam/run/ranks/algorithm_rounds.h"

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

AlgorithmCache::AlgorithmCache(Runtime& runtime, const RunConfig& config, const AlgorithmSources& sources)
    : runtime_(runtime), sources_(sources), where_(config.device) {
  if (!config.device.is_cuda() || config.algorithms == "off") return;
  device_ = device_info(config.device).name;
  choices_ = kernels::algorithm_choices(runtime.exec(config.device).libraries);
  path_ = algorithm_cache_path(config.algorithms, device_);
  bool reads = true;  // what a rank before this one reads, it sends
  if (sources.ranks.several()) {
    const std::vector<std::string> cards = all_gather_texts(*sources.ranks.link, device_);
    reads = std::ranges::find(cards, device_) - cards.begin() == sources.ranks.rank();
    if (std::ranges::adjacent_find(cards, std::not_equal_to()) != cards.end()) unlike_cards_ = cards;
  }
  if (choices_ == nullptr) return;
  if (reads) read_files();
  choices_->set_timing(!sources.in_rounds && may_time());
  if (!may_time() && choices_->all().empty() && reads)
    runtime.log("algorithms are not timed, which the limit has no room for: the libraries' own first choices are used");
}

void AlgorithmCache::read_files() {
  if (!sources_.run_file.empty() && what_else_is_at({.path = sources_.run_file}).empty())
    choices_->add(read(sources_.run_file));
  if (sources_.in_rounds && !choices_->all().empty()) return;
  if (path_) choices_->add(read(*path_));
}

/// The pool's share of the limit is lowered once the kernels' bytes are known: enough must remain.
bool AlgorithmCache::may_time() const {
  if (runtime_.limit(where_) == 0) return true;
  return sources_.planned_pool_bytes > 0 &&
         runtime_.allocator(where_).stats().limit_bytes >= sources_.planned_pool_bytes + kCandidateBytes;
}

void AlgorithmCache::choose_in_rounds(const std::string& work, const std::function<void()>& warm_up) {
  if (choices_ == nullptr) return warm_up();
  warm_up_in_rounds(sources_.ranks, {.card = device_, .work = work, .may_time = may_time()},
                    {.set_timing = [this](bool on) { choices_->set_timing(on); },
                     .all = [this] { return choices_->all(); },
                     .add = [this](const AlgorithmMap& more) { choices_->add(more); }},
                    warm_up);
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
  if (choices_ == nullptr) return;
  AtomicFile file(FolderFile{run_file});
  write_algorithms(file, device_, chosen);
  file.commit();
}

}  // namespace bantam::run
