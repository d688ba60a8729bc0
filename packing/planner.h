// The planner: fixed offsets in one arena for buffers whose lifetimes are known beforehand.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {

/// A buffer that lives in [lower, upper), in any unit of time, and needs `size` bytes. `id` is the caller's.
struct PlannerBuffer {
  std::int64_t id = 0;
  std::int64_t lower = 0;
  std::int64_t upper = 0;
  std::uint64_t size = 0;
};

/// How hard to try. The search ends at the first of: the lower bound is reached, the capacity is reached, the
/// iterations are used up, the time is up. Unless the time ended it, equal inputs have equal plans on every machine.
struct PlannerOptions {
  /// Offsets are multiples of it: 256 for arenas of a device, 1 for traces from elsewhere. Not 0.
  std::uint64_t alignment = 1;
  /// A size of the arena that is small enough; 0: as small as can be found. Where one that the lower bound allows is
  /// given, the search continues until an arena fits into it, also for a last thousandth.
  std::uint64_t capacity = 0;
  /// Most seconds of each thread's processor time, so that a machine that is busy with other programs is slower but
  /// finds the same plan; so are fewer cores than workers. 0: no limit, so that the plan never depends on the machine's
  /// speed.
  double seconds = 1.0;
  /// Most placements tried by each worker of the local search (11,000 neighbours looked at by the ejection search count
  /// as one); 0: only the constructed orders. The default used 1.7 to 2.2 s of a busy machine's processor time, of all
  /// workers together, for traces of 150 to 325 buffers that it could not fill.
  std::int64_t iterations = 7'500;
  std::uint64_t seed = 42;
  /// Searches side by side, each on a thread of its own and with a seed of its own; all go on from the plan of the one
  /// that first fits a smaller arena. More than the machine's cores are of use only without a limit of time. At
  /// least 1.
  int workers = 4;
};

/// `optimal`: the lower bound is reached, or nearly: without a capacity that could be reached, no search begins, or
/// continues, for a last thousandth.
enum class PlannerStop : std::uint8_t { optimal, capacity, iterations, time };
/// "optimal", "capacity", "iterations", "time".
std::string_view to_string(PlannerStop stop);

/// Where the buffers lie. Two buffers that are alive at the same time share no byte.
struct ArenaPlan {
  std::vector<std::uint64_t> offsets;  ///< by position in the input; buffers of no size get 0
  std::uint64_t arena_bytes = 0;       ///< the highest end of a buffer
  std::uint64_t max_live_bytes = 0;    ///< most bytes alive at one time: no arena is smaller
  double seconds = 0;                  ///< by the clock
  std::int64_t iterations = 0;  ///< placements tried by one worker, those of winners where they worked side by side
  PlannerStop stop = PlannerStop::optimal;
  /// arena_bytes / max_live_bytes; 1 where nothing lives.
  double ratio() const {
    return max_live_bytes == 0 ? 1.0 : static_cast<double>(arena_bytes) / static_cast<double>(max_live_bytes);
  }
};

/// Solves dynamic storage allocation (NP-hard) by construction and local search. Buffers are parted at times that none
/// lives across. Each part is placed in several orders, each buffer at the lowest or the tightest gap among those
/// placed before, and by filling a skyline from below; then buffers with little choice are joined to boxes, which
/// are packed in their place; then the skyline's choices are changed at random and annealed; and last an ejection
/// search makes the best plan fit smaller arenas: a buffer that does not fit pushes out others, which are placed anew.
/// A placement of n buffers costs O(n²) at worst, a few milliseconds for some thousands; of more than 4,096 buffers
/// only one made in the order of time, O(n log n), does not ask for the time. Starts threads only for the search, and
/// joins them. Throws Error for lower >= upper, an alignment of 0, less than one worker, or sums that pass 2^62.
/// Sources: the skyline, Sekiyama et al. 2018, "Profile-guided memory optimization for deep neural networks"; choosing
/// what fits a skyline segment's edges, Burke, Kendall and Whitwell 2004, "A new placement heuristic for the orthogonal
/// stock-cutting problem"; ejection by counted failures, Nagata and Bräysy 2009, "A powerful route minimization
/// heuristic for the vehicle routing problem with time windows".
ArenaPlan solve_arena(std::span<const PlannerBuffer> buffers, const PlannerOptions& options = {});

/// Most bytes alive at one time.
std::uint64_t max_live_bytes(std::span<const PlannerBuffer> buffers);

/// Checks a plan by itself: alignment, the arena's size, and that no two buffers alive together overlap. Returns "" or
/// what is broken.
std::string check_arena_plan(std::span<const PlannerBuffer> buffers, const ArenaPlan& plan, std::uint64_t alignment);

}  // namespace bantam
BANTAM_API_END
