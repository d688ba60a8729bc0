// The position of a run in its saved state, and its checks against the configuration of a session that resumes it.
#include "bantam/run/train/position.h"

#include <limits>

#include <fmt/format.h>

#include "bantam/base/error.h"

namespace bantam::run {
namespace {

/// Throws DataError where a number of the state file cannot be one.
void check_saved(const std::filesystem::path& file, const char* name, std::int64_t value, std::int64_t least,
                 std::int64_t most = std::numeric_limits<std::int64_t>::max()) {
  if (value >= least && value <= most) return;
  throw DataError(fmt::format("{}: {} is {}, expected {} to {}", file.string(), name, value, least, most));
}

}  // namespace

void Position::register_state(StateRegistry& state) {
  const auto counter = [&state](const char* name, std::int64_t& value) {
    state.add_counter(
        name, [&value] { return value; }, [&value](std::int64_t saved) { value = saved; });
  };
  counter("trainer/epoch", epoch);
  counter("trainer/update", update);
  counter("trainer/effective_batch", effective_batch);
  counter("trainer/batches", batches);
  counter("trainer/seed", seed);
  counter("trainer/best_epoch", best_epoch);
  state.add_numbers(
      "trainer/sum", [this] { return sum; }, [this](const std::vector<double>& saved) { sum = saved; });
  // One list: a state file that ends earlier is complete, too.
  const auto evaluations = [this] {
    std::vector<double> numbers = {best, static_cast<double>(evaluated), static_cast<double>(tested)};
    const std::vector<double> early = early_stop_numbers(stop_early);
    numbers.insert(numbers.end(), early.begin(), early.end());
    return numbers;
  };
  state.add_numbers("trainer/best", evaluations, [this](const std::vector<double>& saved) {
    constexpr std::size_t kOwn = 3;
    const auto at = [&saved](std::size_t i) { return i < saved.size() ? saved[i] : 0.0; };
    best = at(0);
    evaluated = static_cast<std::int64_t>(at(1));
    tested = static_cast<std::int64_t>(at(2));
    stop_early =
        early_stop_from({saved.begin() + static_cast<std::ptrdiff_t>(std::min(kOwn, saved.size())), saved.end()});
  });
}

Position resumed_position(const Position& saved, const Position& now, const RunConfig& config,
                          const std::filesystem::path& file) {
  check_saved(file, "trainer/epoch", saved.epoch, 0);
  check_saved(file, "trainer/update", saved.update, 0);
  check_saved(file, "trainer/effective_batch", saved.effective_batch, 1);
  check_saved(file, "trainer/batches", saved.batches, 1);
  check_saved(file, "trainer/best[1]", saved.evaluated, 0);
  check_saved(file, "trainer/best[2]", saved.tested, 0);
  const auto require_same = [&](const char* what, std::int64_t then, std::int64_t today) {
    if (saved.update > 0 && then != today)
      throw ConfigError(fmt::format("--resume: the run stopped inside an epoch with {} {}; it cannot go on with {}",
                                    what, then, today));
  };
  require_same("an effective batch of", saved.effective_batch, now.effective_batch);
  require_same("batches an epoch:", saved.batches, now.batches);
  require_same("the seed", saved.seed, now.seed);
  check_saved(file, "trainer/update", saved.update, 0,
              updates_of(now.batches, config.train.accumulate, config.train.replicas));
  Position position = saved;
  position.effective_batch = now.effective_batch;
  position.batches = now.batches;
  position.seed = now.seed;
  return position;
}

}  // namespace bantam::run
