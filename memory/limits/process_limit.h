// ProcessLimit: a limit on all of the process' memory on one device, enforced through the limits of its pools.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/device/device.h"

namespace bantam {

/// Kept free on a GPU for what the driver adds late (2 MiB at a time), and, until the run's kernels are loaded, for
/// them too: 5 to 9 MiB for the networks of the zoo.
inline constexpr std::uint64_t kLateReserve = 8u << 20;
inline constexpr std::uint64_t kKernelReserve = kLateReserve + (10u << 20);

/// The limits of a device and its shares. Sizes in bytes.
struct ProcessLimitOptions {
  std::string name = "cpu";           ///< of the device, in messages
  std::uint64_t limit_bytes = 0;      ///< of the process on the device; 0: none
  std::uint64_t card_bytes = 0;       ///< the device's memory: what shares are cut from without a limit
  std::vector<std::uint64_t> shares;  ///< pool limits of the logical devices; empty: the device is not split
  /// Most bytes of a share's pool (Device::kWhole: of the whole device's), whatever the limit is. Not named: none.
  std::map<int, std::uint64_t> budgets = {};
  std::uint64_t reserve_bytes = 0;       ///< kept free for overhead to come until `settle`
  std::uint64_t late_reserve_bytes = 0;  ///< the same from then on
  /// Asks for the process' bytes on the device, of which its pools hold `pool_bytes`; empty: only pools count, and the
  /// overhead is 0.
  std::function<std::uint64_t(std::uint64_t pool_bytes)> process_bytes = {};
};

/// Splits one device's limit into overhead (context, libraries, kernels: measured as the process' memory beyond its
/// pools) and pools. The limit of the whole device's pool is the rest after overhead, reserve and shares; a share's
/// pool has the share as its limit, whatever the overhead. Where there is neither limit nor share, pools are not
/// bounded.
///
/// At every moment: overhead measured + reserve + the pools' limits ≤ the limit. Overhead never counts as less than its
/// highest measurement, so that libraries that load and unload do not move the limits. Overhead that appears once there
/// are pools uses up the reserve first. A pool's limit is set where its share of the rest changes, or where the pool
/// could exceed it: a lower limit that the program set on its allocator stays until then. Thread-safe; locks
/// allocators, which never lock this. The allocators must outlive it.
class ProcessLimit {
 public:
  /// Throws OutOfMemory where the shares do not fit into the limit or card.
  explicit ProcessLimit(ProcessLimitOptions options);

  /// Adds the growth of the overhead since its last measurement to the line `name`. Throws OutOfMemory, with the
  /// numbers, where the limit cannot hold it; then the line is noted, and no pool's limit has changed.
  void note_overhead(const std::string& name);
  /// The run's kernels are loaded: the overhead since then goes to the line "kernels", and the rest of the reserve
  /// shrinks to the late one at most. Throws as `note_overhead`.
  void settle();
  /// Measures the overhead again; where it grew, the limit of the whole device's pool is lowered (idle memory is
  /// released). Does nothing where nothing is bounded. Throws OutOfMemory where live memory is in the way; the next
  /// call tries again.
  void refresh();
  /// Sets the line `name` to `bytes` that another library has or will have; 0 removes it. Measured growth is not added
  /// to it: what the library allocates before or after the call is on this line, up to `bytes`. Throws OutOfMemory,
  /// changing nothing, where the limit or live memory has no room for it, ConfigError for an empty name and for that of
  /// a measured line.
  void set_reservation(const std::string& name, std::uint64_t bytes);
  /// The lines, measured now. A question: nothing is noted or enforced.
  std::vector<OverheadLine> overhead() const;
  /// The bytes that all pools together have reserved.
  std::uint64_t pool_bytes() const;

  /// The limit for a pool that is about to be made; 0: none. Throws OutOfMemory where overhead uses all of the limit,
  /// Error where there is no such share.
  std::uint64_t pool_limit(int share) const;
  /// A pool made with it, kept to it from now on.
  void attach(BfcAllocator& pool, int share);

  /// Returns the limit of the process on the device, or of a share's pool; 0: none.
  std::uint64_t limit(int share) const;
  /// Changes it (0: no limit; not for shares). Lowering releases idle memory; where live memory, overhead or shares do
  /// not allow it, throws OutOfMemory with what is needed. Whatever it throws, the limits are as they were.
  void set_limit(int share, std::uint64_t bytes);
  /// Throws OutOfMemory, with what the limit would have to be, unless a pool of `pool_bytes` fits under it.
  void require(int share, std::uint64_t pool_bytes) const;

 private:
  struct Pool {
    BfcAllocator* allocator = nullptr;
    std::uint64_t limit_bytes = 0;  // the last one set on it
  };
  /// The bytes that all pools have reserved, and a number that differs where any pool changed in between.
  struct Reserved {
    std::uint64_t bytes = 0, changes = 0;
    bool operator==(const Reserved&) const = default;
  };

  std::uint64_t bound() const;
  std::uint64_t shares_total() const;
  std::uint64_t fixed() const;
  std::uint64_t left_for(int share) const;
  Reserved reserved() const;
  std::uint64_t measured_overhead() const;
  std::vector<OverheadLine> grown(const std::string& name) const;
  void measure(const std::string& name);
  void enforce();
  void check_fits(std::uint64_t pool_bytes) const;
  void check_share(int share) const;
  void apply_to(int share);
  void set_whole_limit(std::uint64_t bytes);
  void set_share(int share, std::uint64_t bytes);
  void change_share(int share, std::uint64_t bytes);
  std::string name_of(int share) const;
  std::string advice() const;
  std::string lines_text() const;

  ProcessLimitOptions options_;
  mutable std::mutex mutex_;
  std::vector<OverheadLine> overhead_;
  std::set<std::string> reservations_;  // those of the lines that were set, not measured
  std::uint64_t reserve_ = 0;
  std::map<int, Pool> pools_;  // by share
};

}  // namespace bantam
