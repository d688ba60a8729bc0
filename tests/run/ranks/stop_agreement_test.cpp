// A wish to stop is heard by all at the same call, and messages are as seldom as the clock of rank 0 says.
#include "bantam/run/ranks/stop_agreement.h"

#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/comm/on_ranks.h"

namespace bantam::run::stop_agreement_test {
namespace {

using testing::nothing_thrown;
using testing::on_ranks;

TEST(StopAgreement, OfOneRankIsItsOwn) {
  StopAgreement agreement({}, 1);
  EXPECT_FALSE(agreement(false));
  EXPECT_TRUE(agreement(true));
  EXPECT_TRUE(agreement(false)) << "for good";
  EXPECT_EQ(agreement.exchanges(), 0);
}

TEST(StopAgreement, AsksAtEachCallWithoutATime) {
  EXPECT_EQ(on_ranks(3,
                     [](Communicator& link, int rank) {
                       StopAgreement agreement({.link = &link});
                       for (int call = 0; call < 5; ++call) EXPECT_FALSE(agreement(false));
                       EXPECT_TRUE(agreement(rank == 2));
                       EXPECT_EQ(agreement.exchanges(), 6);
                     }),
            nothing_thrown(3));
}

// Calls of 1 ms, with 10 ms between exchanges: 1, 3 and 7 calls pass at first, then 9. Another rank's clock, which runs
// faster, says nothing.
TEST(StopAgreement, AsksAsOftenAsRankZeroSays) {
  std::vector<std::vector<int>> exchanged(2);
  EXPECT_EQ(on_ranks(2,
                     [&](Communicator& link, int rank) {
                       double now = 0;
                       StopAgreement agreement({.link = &link}, 0.0105, [&now] { return now; });
                       int before = 0;
                       for (int call = 0; call < 40; ++call) {
                         now += rank == 0 ? 0.001 : 1.0;
                         EXPECT_FALSE(agreement(false));
                         if (agreement.exchanges() > before) exchanged[static_cast<std::size_t>(rank)].push_back(call);
                         before = agreement.exchanges();
                       }
                     }),
            nothing_thrown(2));
  EXPECT_EQ(exchanged[0], (std::vector<int>{0, 2, 6, 14, 24, 34}));
  EXPECT_EQ(exchanged[1], exchanged[0]);
}

TEST(StopAgreement, IsHeardByAllAtTheSameCall) {
  std::vector<int> heard(3, -1);
  EXPECT_EQ(on_ranks(3,
                     [&](Communicator& link, int rank) {
                       double now = 0;
                       StopAgreement agreement({.link = &link}, 0.0105, [&now] { return now; });
                       for (int call = 0; call < 100 && heard[static_cast<std::size_t>(rank)] < 0; ++call) {
                         now += 0.001;
                         if (agreement(rank == 1 && call >= 15)) heard[static_cast<std::size_t>(rank)] = call;
                       }
                     }),
            nothing_thrown(3));
  EXPECT_EQ(heard[0], 24) << "at the next exchange";
  EXPECT_EQ(heard[1], heard[0]);
  EXPECT_EQ(heard[2], heard[0]);
}

}  // namespace
}  // namespace bantam::run::stop_agreement_test
