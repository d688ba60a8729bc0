// What of a saved position a configuration can go on with.
#include "bantam/run/train/position.h"

#include "bantam/base/error.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::position_test {
namespace {

using PositionTest = RunTest;

const Position kNow{.effective_batch = 16, .batches = 6, .seed = 7};

TEST_F(PositionTest, GoesOnWhereItStopped) {
  Position saved = kNow;
  saved.epoch = 1;
  saved.update = 3;
  const Position position = resumed_position(saved, kNow, tiny(), "r");
  EXPECT_EQ(position.epoch, 1);
  EXPECT_EQ(position.update, 3);
  EXPECT_EQ(position.effective_batch, 16);
}

TEST_F(PositionTest, BetweenEpochsTheBatchMayChange) {
  Position saved{.epoch = 1, .update = 0, .effective_batch = 32, .batches = 3, .seed = 8};
  const Position position = resumed_position(saved, kNow, tiny(), "r");
  EXPECT_EQ(position.effective_batch, 16);
  EXPECT_EQ(position.seed, 7);
  saved.update = 1;
  EXPECT_THROW((void)resumed_position(saved, kNow, tiny(), "r"), ConfigError);
}

TEST_F(PositionTest, NumbersThatCannotBeAreDataErrors) {
  for (const auto& change : std::vector<void (*)(Position&)>{
           [](Position& p) { p.epoch = -1; }, [](Position& p) { p.update = -1; }, [](Position& p) { p.update = 7; },
           [](Position& p) { p.effective_batch = 0; }, [](Position& p) { p.batches = 0; }}) {
    Position saved = kNow;
    change(saved);
    EXPECT_THROW((void)resumed_position(saved, kNow, tiny(), "r"), DataError);
  }
}

TEST_F(PositionTest, IsPartOfTheState) {
  Position position = kNow;
  StateRegistry state;
  position.register_state(state);
  EXPECT_EQ(state.counters().size(), 6u);
  EXPECT_EQ(state.numbers().size(), 2u);
}

}  // namespace
}  // namespace bantam::run::position_test
