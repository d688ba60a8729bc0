#include "bantam/run/train/disk_room.h"

#include <algorithm>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/text.h"

namespace bantam::run {
namespace {

namespace fs = std::filesystem;

/// The folder, or the nearest one above it that is there.
fs::path existing(const fs::path& folder) {
  std::error_code error;
  fs::path at = folder.empty() ? fs::path(".") : fs::absolute(folder, error);
  while (!fs::exists(at, error) && at.has_relative_path()) at = at.parent_path();
  return at;
}

bool are_on_one_disk(const fs::path& a, const fs::path& b) {
  struct stat of_a = {}, of_b = {};
  return ::stat(existing(a).c_str(), &of_a) == 0 && ::stat(existing(b).c_str(), &of_b) == 0 &&
         of_a.st_dev == of_b.st_dev;
}

/// Sums the bytes of the sets that are packed already.
std::uint64_t packed_already(const fs::path& folder) {
  std::uint64_t bytes = 0;
  for (const char* set : {"train", "training", "validation", "test"}) {
    std::error_code error;
    const std::uintmax_t size = fs::file_size(folder / fmt::format("samples-{}.cache", set), error);
    if (!error) bytes += size;
  }
  return bytes;
}

std::string run_text(const DiskNeed& need) {
  return fmt::format("weights ({}) and {} checkpoint{} ({}{})", format_byte_size(need.weights_bytes), need.checkpoints,
                     need.checkpoints == 1 ? "" : "s", format_byte_size(need.checkpoint_bytes),
                     need.checkpoints == 1 ? "" : " each");
}

std::string packed_text(const DiskNeed& need) {
  return fmt::format("packed samples of cache: disk ({})", format_byte_size(need.packed_bytes));
}

/// Empty where `bytes` fit.
std::string shortage_of(std::uint64_t bytes, const std::string& what, const fs::path& folder, const DiskCheck& check) {
  const std::optional<std::uint64_t> free = check.free_bytes(folder);
  if (!free || bytes <= *free) return "";
  return fmt::format("{} need {}, but the disk of {} has {} free", what, format_byte_size(bytes), folder.string(),
                     format_byte_size(*free));
}

}  // namespace

DiskNeed disk_need(const RunConfig& config, const RunPlan& plan, std::int64_t kept) {
  constexpr std::uint64_t kHeaders = 64u << 10;  // of a file: names, shapes, JSON
  const std::uint64_t weights = plan.by_category[Category::parameter] + kHeaders;
  const std::uint64_t state = weights + plan.by_category[Category::optimizer];
  DiskNeed need{.weights_bytes = weights, .checkpoint_bytes = weights + state};
  if (config.checkpoint.best) need.weights_bytes += weights;
  if (config.train.optimizer.ema) need.weights_bytes += weights;
  need.checkpoints =
      std::max<std::int64_t>(1, std::min(config.checkpoint.keep_last + 1, DiskNeed::kCheckpoints) - kept);
  if (!config.data || config.data->pipeline.cache != CacheKind::disk) return need;
  for (const CachedSet& set : cached_sets(*config.data)) need.packed_bytes += set.bytes();
  need.packed_folder = config.data->pipeline.cache_folder;
  return need;
}

std::optional<std::uint64_t> free_disk_bytes(const fs::path& folder) {
  std::error_code error;
  const fs::space_info space = fs::space(existing(folder), error);
  if (error || space.available == static_cast<std::uintmax_t>(-1)) return std::nullopt;
  return space.available;
}

std::string disk_shortage(const DiskNeed& need, const fs::path& run, const DiskCheck& check) {
  const fs::path folder = check.folder.empty() ? run : check.folder;
  const fs::path packed = need.packed_folder.empty() ? folder : need.packed_folder;
  const std::uint64_t there = need.packed_bytes > 0 ? packed_already(need.packed_folder.empty() ? run : packed) : 0;
  const std::uint64_t packed_bytes = need.packed_bytes - std::min(need.packed_bytes, there);
  std::vector<std::string> found;
  if (packed_bytes > 0 && are_on_one_disk(folder, packed)) {
    found.push_back(
        shortage_of(need.run_bytes() + packed_bytes, run_text(need) + " and " + packed_text(need), folder, check));
  } else {
    found.push_back(shortage_of(need.run_bytes(), run_text(need), folder, check));
    if (packed_bytes > 0) found.push_back(shortage_of(packed_bytes, packed_text(need), packed, check));
  }
  std::erase(found, "");
  if (found.empty()) return "";
  return join(found, "; ", "; ") +
         fmt::format("; --run-dir names a folder on another disk{}",
                     packed_bytes > 0 ? ", and cache: {disk: FOLDER} one for the samples" : "");
}

void check_disk(const DiskNeed& need, const fs::path& run, const DiskCheck& check,
                const std::function<void(std::string_view)>& warn) {
  const std::string shortage = disk_shortage(need, run, check);
  if (shortage.empty()) return;
  if (check.strict) throw NoRoomOnDisk("--strict-disk: " + shortage);
  warn(shortage + "; --strict-disk refuses such a run");
}

}  // namespace bantam::run
