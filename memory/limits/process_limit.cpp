// The arithmetic of limit = overhead + reserve + pools, and its words.
#include "bantam/memory/limits/process_limit.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator_report.h"

namespace bantam {
namespace {

constexpr std::uint64_t kMostReserved = std::uint64_t{1} << 60;  // sums of many do not overflow
constexpr int kMeasurements = 16;                                // tries to catch a moment in which no pool moves

}  // namespace

ProcessLimit::ProcessLimit(ProcessLimitOptions options)
    : options_(std::move(options)), reserve_(options_.process_bytes ? options_.reserve_bytes : 0) {
  if (std::ranges::count(options_.shares, 0u) > 0)
    throw ConfigError(options_.name + ": a logical device needs at least a byte");
  check_fits(0);
}

// Returns the bytes that everything together must stay within; 0: there is no such bound.
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

// The limit of a share's pool, or of the whole device's; 0: none. Where nothing is left it is one byte, which no
// allocation fits: 0 would mean no limit.
std::uint64_t ProcessLimit::left_for(int share) const {
  std::uint64_t left = 0;
  if (share != Device::kWhole)
    left = options_.shares[static_cast<std::size_t>(share)];
  else if (bound() != 0)
    left = std::max<std::uint64_t>(1, bound() - std::min(bound(), fixed()));
  const auto budget = options_.budgets.find(share);
  if (budget == options_.budgets.end() || budget->second == 0) return left;
  return left == 0 ? budget->second : std::min(left, budget->second);
}

std::string ProcessLimit::name_of(int share) const {
  return share == Device::kWhole ? options_.name : fmt::format("{}/{}", options_.name, share);
}

void ProcessLimit::check_fits(std::uint64_t pool_bytes) const {
  const std::uint64_t most = bound(), needed = fixed() + pool_bytes;
  if (most == 0 || (needed <= most && needed >= pool_bytes)) return;
  const auto pool = pools_.find(Device::kWhole);
  throw OutOfMemory(
      fmt::format("the {} of {} is too small: {}\n  needed at least {}:\n{}{}{}{}",
                  options_.limit_bytes != 0 ? "limit" : "memory", options_.name, size_text(most), size_text(needed),
                  lines_text(), pool_bytes == 0 ? "" : fmt::format("    {:<16}{}\n", "pool", size_text(pool_bytes)),
                  pool == pools_.end() ? "" : holders_text(pool->second.allocator->holders()), advice()),
      {.requested_bytes = pool_bytes, .limit_bytes = most});
}

std::string ProcessLimit::advice() const {
  if (options_.limit_bytes == 0) return "  Make the shares of the logical devices smaller (memory: logical).";
  return fmt::format("  Raise the limit (memory: limits, or Runtime::set_limit){}.",
                     options_.shares.empty() ? "" : ", or make the shares smaller (memory: logical)");
}

std::string ProcessLimit::lines_text() const {
  std::string text;
  for (const OverheadLine& line : overhead_) text += fmt::format("    {:<16}{}\n", line.name, size_text(line.bytes));
  if (reserve_ > 0) text += fmt::format("    {:<16}{}\n", "reserve", size_text(reserve_));
  for (std::size_t i = 0; i < options_.shares.size(); ++i)
    text += fmt::format("    {:<16}{}\n", name_of(static_cast<int>(i)), size_text(options_.shares[i]));
  return text;
}

ProcessLimit::Reserved ProcessLimit::reserved() const {
  Reserved sum;
  for (const auto& [share, pool] : pools_) {
    const MemoryStats stats = pool.allocator->stats();
    sum.bytes += stats.pool_bytes;
    sum.changes += stats.pool_changes;
  }
  return sum;
}

// The process' memory beyond its pools. A pool that changes between the readings would count as overhead, or hide it,
// also where it ends as it began: readings count where no pool reserved or released memory in between (a pool's own
// lock covers its growth, so it cannot be half grown). Where no such moment comes, nothing new is known.
std::uint64_t ProcessLimit::measured_overhead() const {
  for (int i = 0; i < kMeasurements; ++i) {
    const Reserved before = reserved();
    const std::uint64_t process = options_.process_bytes(before.bytes);
    if (reserved() == before) return process - std::min(process, before.bytes);
  }
  return 0;
}

// The lines as they are now, with what is new on the line `name`.
std::vector<OverheadLine> ProcessLimit::grown(const std::string& name) const {
  std::vector<OverheadLine> lines = overhead_;
  if (!options_.process_bytes) return lines;
  const std::uint64_t known = total_bytes(lines), now = measured_overhead();
  if (now <= known) return lines;
  auto line = std::ranges::find(lines, name, &OverheadLine::name);
  if (line == lines.end()) line = lines.insert(lines.end(), {name, 0});
  line->bytes += now - known;
  return lines;
}

// Notes new overhead. Once there are pools it is drawn from the reserve; before, the pools are made smaller. Without a
// bound there is no reserve to draw from.
void ProcessLimit::measure(const std::string& name) {
  const std::uint64_t before = total_bytes(overhead_);
  overhead_ = grown(name);
  if (bound() != 0 && !pools_.empty()) reserve_ -= std::min(reserve_, total_bytes(overhead_) - before);
}

// Overhead beyond the reserve lowers the limit of the whole device's pool.
void ProcessLimit::enforce() {
  check_fits(0);
  apply_to(Device::kWhole);
}

void ProcessLimit::apply_to(int share) {
  const auto found = pools_.find(share);
  if (found == pools_.end()) return;
  Pool& pool = found->second;
  const std::uint64_t now = pool.allocator->stats().limit_bytes, bytes = left_for(share);
  const bool may_pass = bytes != 0 && (now == 0 || now > bytes);
  if (bytes == pool.limit_bytes && !may_pass) return;
  pool.allocator->set_limit(bytes);
  pool.limit_bytes = bytes;
}

void ProcessLimit::note_overhead(const std::string& name) {
  const std::lock_guard lock(mutex_);
  measure(name);
  enforce();
}

void ProcessLimit::settle() {
  const std::lock_guard lock(mutex_);
  measure("kernels");
  reserve_ = std::min(reserve_, options_.late_reserve_bytes);
  enforce();
}

void ProcessLimit::refresh() {
  const std::lock_guard lock(mutex_);
  if (bound() == 0 || !options_.process_bytes) return;
  measure("kernels");
  enforce();
}

void ProcessLimit::set_reservation(const std::string& name, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (name.empty()) throw ConfigError(options_.name + ": a reservation needs a name");
  if (bytes > kMostReserved)
    throw ConfigError(
        fmt::format("{}: {} bytes reserved for {} are more than any device has", options_.name, bytes, name));
  const auto same = [&](const OverheadLine& line) { return line.name == name; };
  if (!reservations_.contains(name) && std::ranges::any_of(overhead_, same))
    throw ConfigError(fmt::format("{}: \"{}\" is measured; a reservation needs another name", options_.name, name));
  const std::vector<OverheadLine> lines = overhead_;
  const std::set<std::string> names = reservations_;
  try {
    std::erase_if(overhead_, same);
    reservations_.erase(name);
    if (bytes > 0) {
      overhead_.push_back({name, bytes});
      reservations_.insert(name);
    }
    enforce();
  } catch (...) {
    overhead_ = lines;
    reservations_ = names;
    throw;
  }
}

std::vector<OverheadLine> ProcessLimit::overhead() const {
  const std::lock_guard lock(mutex_);
  return grown("kernels");
}

std::uint64_t ProcessLimit::pool_bytes() const {
  const std::lock_guard lock(mutex_);
  return reserved().bytes;
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
  if (share == Device::kWhole && options_.shares.empty()) check_fits(1);
  return left_for(share);
}

void ProcessLimit::attach(BfcAllocator& pool, int share) {
  const std::lock_guard lock(mutex_);
  check_share(share);
  pools_[share] = {&pool, pool.stats().limit_bytes};
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
    set_share(share, bytes);
}

void ProcessLimit::set_whole_limit(std::uint64_t bytes) {
  measure("kernels");
  const std::uint64_t before = std::exchange(options_.limit_bytes, bytes);
  try {
    enforce();
  } catch (const OutOfMemory& error) {
    options_.limit_bytes = before;
    if (fixed() == 0) throw;
    const OutOfMemory::Facts& facts = error.facts();
    throw OutOfMemory(
        fmt::format("the limit of {} cannot be set to {}\n  besides its pool the process needs {} there\n{}",
                    options_.name, size_text(bytes), size_text(fixed()), error.what()),
        facts);
  } catch (...) {  // a pool without growth has to have a limit, say
    options_.limit_bytes = before;
    throw;
  }
}

void ProcessLimit::set_share(int share, std::uint64_t bytes) {
  if (bytes == 0) throw ConfigError(name_of(share) + ": a logical device needs a limit");
  measure("kernels");
  const std::uint64_t before = options_.shares[static_cast<std::size_t>(share)];
  try {
    change_share(share, bytes);
  } catch (...) {
    options_.shares[static_cast<std::size_t>(share)] = before;
    apply_to(share);  // where it shrank, it grows again, which is never refused
    throw;
  }
}

// One pool may grow by what another releases: the one that shrinks goes first.
void ProcessLimit::change_share(int share, std::uint64_t bytes) {
  const std::uint64_t before = std::exchange(options_.shares[static_cast<std::size_t>(share)], bytes);
  if (bytes <= before) {
    apply_to(share);
    apply_to(Device::kWhole);
    return;
  }
  enforce();
  apply_to(share);
}

void ProcessLimit::require(int share, std::uint64_t pool_bytes) const {
  const std::lock_guard lock(mutex_);
  check_share(share);
  const auto budget = options_.budgets.find(share);
  if (budget != options_.budgets.end() && budget->second != 0 && pool_bytes > budget->second)
    throw OutOfMemory(fmt::format("the budget for {} is too small: {}\n  needed: {}. Make it larger (memory: budget).",
                                  name_of(share), size_text(budget->second), size_text(pool_bytes)),
                      {.requested_bytes = pool_bytes, .limit_bytes = budget->second});
  if (share == Device::kWhole) return check_fits(pool_bytes);
  const std::uint64_t most = options_.shares[static_cast<std::size_t>(share)];
  if (pool_bytes <= most) return;
  throw OutOfMemory(
      fmt::format("the share of {} is too small: {}\n  needed at least {}. Make it larger (memory: logical).",
                  name_of(share), size_text(most), size_text(pool_bytes)),
      {.requested_bytes = pool_bytes, .limit_bytes = most});
}

}  // namespace bantam
