// What of a saved position holds for a configuration.
#include "bantam/run/session/position.h"

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
  state.add_numbers(
      "trainer/best",
      [this] {
        std::vector<double> numbers = early_stop_numbers(stop_early);
        numbers.insert(numbers.begin(), best);
        return numbers;
      },
      [this](const std::vector<double>& saved) {
        best = saved.empty() ? 0 : saved.front();
        stop_early = early_stop_from(saved.empty() ? saved : std::vector(saved.begin() + 1, saved.end()));
      });
}

Position resumed_position(const Position& saved, const Position& now, const RunConfig& config,
                          const std::filesystem::path& file) {
  check_saved(file, "trainer/epoch", saved.epoch, 0);
  check_saved(file, "trainer/update", saved.update, 0);
  check_saved(file, "trainer/effective_batch", saved.effective_batch, 1);
  check_saved(file, "trainer/batches", saved.batches, 1);
  const auto require_same = [&](const char* what, std::int64_t then, std::int64_t today) {
    if (saved.update > 0 && then != today)
      throw ConfigError(fmt::format("--resume: the run stopped inside an epoch with {} {}; it cannot go on with {}",
                                    what, then, today));
  };
  require_same("an effective batch of", saved.effective_batch, now.effective_batch);
  require_same("batches an epoch:", saved.batches, now.batches);
  require_same("the seed", saved.seed, now.seed);
  check_saved(file, "trainer/update", saved.update, 0, updates_of(now.batches, config.train.accumulate));
  Position position = saved;
  position.effective_batch = now.effective_batch;
  position.batches = now.batches;
  position.seed = now.seed;
  return position;
}

}  // namespace bantam::run
