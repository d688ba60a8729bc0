// The arithmetic of limit = overhead + reserve + pools, and its words.
#include "bantam/memory/process_limit.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr int kMeasurements = 16;  // tries to catch a moment in which no pool moves

std::string size_text(std::uint64_t bytes) { return fmt::format("{} ({} B)", format_byte_size(bytes), bytes); }

}  // namespace

ProcessLimit::ProcessLimit(ProcessLimitOptions options)
    : options_(std::move(options)), reserve_(options_.process_bytes ? options_.reserve_bytes : 0) {
  if (std::ranges::count(options_.shares, 0u) > 0)
    throw ConfigError(options_.name + ": a logical device needs at least a byte");
  check_fits(0);
}

// What everything together must stay within; 0: nothing.
std::uint64_t ProcessLimit::bound() const {
  return options_.limit_bytes != 0 || options_.shares.empty() ? options_.limit_bytes : options_.card_bytes;
}

std::uint64_t ProcessLimit::shares_total() const {
  std::uint64_t sum = 0;
  for (const std::uint64_t share : options_.shares) {
    if (sum + share < sum) return ~std::uint64_t{0};
    sum += share;
  }
  return sum;
}

std::uint64_t ProcessLimit::fixed() const {
  const std::uint64_t other = total_bytes(overhead_) + reserve_, shares = shares_total();
  return shares + other < shares ? ~std::uint64_t{0} : shares + other;
}

// The whole device's pool. Where nothing is left it is one byte, which no allocation fits: 0 would mean no limit.
std::uint64_t ProcessLimit::whole_limit() const {
  if (bound() == 0) return options_.budget_bytes;
  const std::uint64_t left = std::max<std::uint64_t>(1, bound() - std::min(bound(), fixed()));
  return options_.budget_bytes == 0 ? left : std::min(left, options_.budget_bytes);
}

void ProcessLimit::check_fits(std::uint64_t pool_bytes) const {
  const std::uint64_t most = bound(), needed = fixed() + pool_bytes;
  if (most == 0 || (needed <= most && needed >= pool_bytes)) return;
  throw OutOfMemory(
      fmt::format("the {} of {} is too small: {}\n  needed at least {}:\n{}{}{}",
                  options_.limit_bytes != 0 ? "limit" : "memory", options_.name, size_text(most), size_text(needed),
                  lines_text(), pool_bytes == 0 ? "" : fmt::format("    {:<16}{}\n", "pool", size_text(pool_bytes)),
                  options_.limit_bytes != 0 ? "  Raise the limit (memory: limits), or give less out."
                                            : "  Give the logical devices less."),
      {.requested_bytes = pool_bytes, .limit_bytes = most});
}

std::string ProcessLimit::lines_text() const {
  std::string text;
  for (const OverheadLine& line : overhead_) text += fmt::format("    {:<16}{}\n", line.name, size_text(line.bytes));
  if (reserve_ > 0) text += fmt::format("    {:<16}{}\n", "reserve", size_text(reserve_));
  for (std::size_t i = 0; i < options_.shares.size(); ++i)
    text += fmt::format("    {:<16}{}\n", fmt::format("{}/{}", options_.name, i), size_text(options_.shares[i]));
  return text;
}

// What the process takes beyond its pools. A pool that moves between the readings would be taken for overhead, or hide
// it: readings count where the pools held the same before and after (a pool's own lock covers its growth, so it cannot
// be half grown). Where no such moment comes, nothing new is known.
std::uint64_t ProcessLimit::measured_overhead() const {
  const auto held = [this] {
    std::uint64_t sum = 0;
    for (const auto& [share, pool] : pools_) sum += pool->stats().pool_bytes;
    return sum;
  };
  for (int i = 0; i < kMeasurements; ++i) {
    const std::uint64_t before = held(), process = options_.process_bytes();
    if (held() == before) return process - std::min(process, before);
  }
  return 0;
}

void ProcessLimit::grow(const std::string& name) {
  if (!options_.process_bytes) return;
  const std::uint64_t known = total_bytes(overhead_), now = measured_overhead();
  if (now <= known) return;
  auto line = std::ranges::find(overhead_, name, &OverheadLine::name);
  if (line == overhead_.end()) line = overhead_.insert(overhead_.end(), {name, 0});
  line->bytes += now - known;
}

void ProcessLimit::apply_to_whole(std::uint64_t bytes) {
  const auto pool = pools_.find(Device::kWhole);
  if (pool != pools_.end() && pool->second->stats().limit_bytes != bytes) pool->second->set_limit(bytes);
}

void ProcessLimit::note_overhead(const std::string& name) {
  const std::lock_guard lock(mutex_);
  grow(name);
  check_fits(0);
  apply_to_whole(whole_limit());
}

void ProcessLimit::settle() {
  const std::lock_guard lock(mutex_);
  grow("kernels");
  if (options_.process_bytes) reserve_ = options_.late_reserve_bytes;
  check_fits(0);
  apply_to_whole(whole_limit());
}

void ProcessLimit::refresh() {
  const std::lock_guard lock(mutex_);
  if (bound() == 0 || !options_.process_bytes) return;
  const std::uint64_t before = total_bytes(overhead_);
  grow("kernels");
  // What came late is what the reserve was for; beyond it, the pool of the whole device gives way.
  const std::uint64_t taken = std::min(reserve_, total_bytes(overhead_) - before);
  reserve_ -= taken;
  check_fits(0);
  apply_to_whole(whole_limit());
}

std::vector<OverheadLine> ProcessLimit::overhead() const {
  const std::lock_guard lock(mutex_);
  return overhead_;
}

void ProcessLimit::check_share(int share) const {
  if (share == Device::kWhole || (share >= 0 && static_cast<std::size_t>(share) < options_.shares.size())) return;
  throw DeviceError(
      options_.shares.empty()
          ? fmt::format("{0}/{1} does not exist: {0} is not split (memory: logical)", options_.name, share)
          : fmt::format("{0}/{1} does not exist: {0} is split into {2}", options_.name, share, options_.shares.size()));
}

std::uint64_t ProcessLimit::pool_limit(int share) const {
  const std::lock_guard lock(mutex_);
  check_share(share);
  if (share != Device::kWhole) return options_.shares[static_cast<std::size_t>(share)];
  if (options_.shares.empty()) check_fits(1);
  return whole_limit();
}

void ProcessLimit::attach(BfcAllocator& pool, int share) {
  const std::lock_guard lock(mutex_);
  check_share(share);
  pools_[share] = &pool;
}

std::uint64_t ProcessLimit::limit(int share) const {
  const std::lock_guard lock(mutex_);
  check_share(share);
  return share == Device::kWhole ? options_.limit_bytes : options_.shares[static_cast<std::size_t>(share)];
}

void ProcessLimit::set_limit(int share, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  check_share(share);
  if (share == Device::kWhole)
    set_whole_limit(bytes);
  else
    set_share(static_cast<std::size_t>(share), bytes);
}

void ProcessLimit::set_whole_limit(std::uint64_t bytes) {
  grow("kernels");
  const std::uint64_t before = std::exchange(options_.limit_bytes, bytes);
  try {
    check_fits(0);
    apply_to_whole(whole_limit());
  } catch (const OutOfMemory& error) {
    options_.limit_bytes = before;
    if (fixed() == 0) throw;
    const OutOfMemory::Facts& facts = error.facts();
    throw OutOfMemory(
        fmt::format("the limit of {} cannot be set to {}\n  besides its pool the process needs {} there\n{}",
                    options_.name, size_text(bytes), size_text(fixed()), error.what()),
        facts);
  }
}

void ProcessLimit::set_share(std::size_t share, std::uint64_t bytes) {
  if (bytes == 0) throw ConfigError(fmt::format("{}/{}: a logical device needs a limit", options_.name, share));
  grow("kernels");
  const auto pool = pools_.find(static_cast<int>(share));
  const std::uint64_t before = options_.shares[share];
  // What one pool gives up another may take: the one that shrinks goes first, and is put back where the other refuses.
  if (bytes <= before) {
    if (pool != pools_.end()) pool->second->set_limit(bytes);
    options_.shares[share] = bytes;
    apply_to_whole(whole_limit());
    return;
  }
  options_.shares[share] = bytes;
  try {
    check_fits(0);
    apply_to_whole(whole_limit());
  } catch (const OutOfMemory&) {
    options_.shares[share] = before;
    throw;
  }
  if (pool != pools_.end()) pool->second->set_limit(bytes);
}

void ProcessLimit::require(int share, std::uint64_t pool_bytes) const {
  const std::lock_guard lock(mutex_);
  check_share(share);
  if (share == Device::kWhole) {
    if (options_.budget_bytes != 0 && pool_bytes > options_.budget_bytes)
      throw OutOfMemory(fmt::format("the budget for {} is too small: {}\n  needed: {}", options_.name,
                                    size_text(options_.budget_bytes), size_text(pool_bytes)),
                        {.requested_bytes = pool_bytes, .limit_bytes = options_.budget_bytes});
    return check_fits(pool_bytes);
  }
  const std::uint64_t most = options_.shares[static_cast<std::size_t>(share)];
  if (pool_bytes <= most) return;
  throw OutOfMemory(
      fmt::format("the share of {}/{} is too small: {}\n  needed at least {}. Give it more (memory: logical).",
                  options_.name, share, size_text(most), size_text(pool_bytes)),
      {.requested_bytes = pool_bytes, .limit_bytes = most});
}

}  // namespace bantam
