// The limit that a plan is compared with: the pool's bytes, and whether the user named the pool, the process or the
// card.
#pragma once

#include <cstdint>
#include <string>

#include "bantam/run/fit/plan_target.h"

namespace bantam::run {

/// Bytes to fit into, and whether they bound the pool, the process or the card.
struct PlanFit {
  enum class Of : std::uint8_t {
    nothing,  ///< a CPU without limit or budget: every row fits
    pool,     ///< the pool of the device's allocator: a budget, a share, or a limit where only pools count
    process,  ///< all that the driver counts for the process
    card      ///< the GPU's memory, where nothing less was named
  } of = Of::nothing;
  std::uint64_t bytes = 0;        ///< the bound on what `of` names; never above the card's
  std::uint64_t asked_bytes = 0;  ///< before it was cut to the card
  std::uint64_t shares = 0;       ///< the part of `bytes` for the device's shares
  std::uint64_t readers = 0;      ///< the part of a CPU's `bytes` that the data's readers keep
  std::uint64_t pool = 0;         ///< the allocator's part, at least a byte; 0: everything fits

  /// Whether a plan can fail to fit.
  bool any() const { return of != Of::nothing; }
  /// The bytes that recompute is chosen for: as in `train`, a limit or budget, and not the card alone.
  std::uint64_t chosen_pool() const { return of == Of::card ? 0 : pool; }
  /// The value of `bytes` that a pool of `pool_bytes` needs.
  std::uint64_t needed_bytes(const PlanTarget& target, std::uint64_t pool_bytes) const;
  /// A line for people: "to fit a process of 1.00 GiB", with the card where it is the bound; "" for nothing.
  std::string to_text(const PlanTarget& target) const;
};

/// "pool", "process", "card".
std::string_view to_string(PlanFit::Of of);

/// The memory that the target was asked to fit, else the configuration's budget or limit for the device, whichever is
/// less; on a GPU the card bounds both. Throws OutOfMemory where the device has less memory than its shares.
PlanFit plan_fit(const MemoryConfig& memory, const PlanTarget& target);

}  // namespace bantam::run
