// Problems are timed by one rank, for all: on libraries that are none.
#include "bantam/run/ranks/algorithm_rounds.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/comm/on_ranks.h"

namespace bantam::run::algorithm_rounds_test {
namespace {

using testing::nothing_thrown;
using testing::on_ranks;
using Choices = std::map<std::string, std::string>;

/// A rank's library: what it times it keeps, and says so of itself; what it meets without a choice and without timing
/// gets the first algorithm, which is not kept.
class Library {
 public:
  Library(int rank, Choices known) : rank_(rank), choices_(std::move(known)) {}
  RoundChoices choices() {
    return {.set_timing = [this](bool on) { timing_ = on; },
            .all = [this] { return choices_; },
            .add = [this](const Choices& more) { choices_.insert(more.begin(), more.end()); }};
  }
  void meet(const std::string& problem) {
    if (!choices_.contains(problem) && timing_) choices_[problem] = "timed by " + std::to_string(rank_);
    used[problem] = choices_.contains(problem) ? choices_[problem] : "first";
  }
  bool timing() const { return timing_; }
  Choices used;  ///< as the problems were met first

 private:
  int rank_;
  Choices choices_;
  bool timing_ = true;
};

struct Rank {
  RoundMember member;
  std::vector<std::string> problems;  ///< that it meets
  Choices known = {};
};

/// What each rank uses.
std::vector<Choices> used_by(const std::vector<Rank>& ranks) {
  std::vector<Choices> used(ranks.size());
  const auto body = [&](const RunRanks& run, std::size_t rank) {
    const Rank& one = ranks[rank];
    Library library(static_cast<int>(rank), one.known);
    int warm_ups = 0;
    warm_up_in_rounds(run, one.member, library.choices(), [&] {
      ++warm_ups;
      for (const std::string& problem : one.problems) library.meet(problem);
    });
    EXPECT_EQ(warm_ups, 1);
    EXPECT_FALSE(library.timing());
    library.meet("later");
    used[rank] = library.used;
  };
  if (ranks.size() == 1) {
    body({}, 0);
    return used;
  }
  EXPECT_EQ(on_ranks(static_cast<int>(ranks.size()),
                     [&](Communicator& link, int rank) { body({.link = &link}, static_cast<std::size_t>(rank)); }),
            nothing_thrown(static_cast<int>(ranks.size())));
  return used;
}

TEST(AlgorithmRounds, OneRankTimesForItself) {
  const std::vector<Choices> used =
      used_by({{.member = {"H", "none"}, .problems = {"a", "b"}, .known = {{"b", "kept"}}}});
  EXPECT_EQ(used[0], (Choices{{"a", "timed by 0"}, {"b", "kept"}, {"later", "first"}}));
}

TEST(AlgorithmRounds, LikeRanksUseWhatTheFirstHasTimed) {
  const Rank like{.member = {"H", "none"}, .problems = {"a", "b"}};
  Rank first = like;
  first.known = {{"b", "kept"}};
  for (const Choices& used : used_by({first, like, like, like}))
    EXPECT_EQ(used, (Choices{{"a", "timed by 0"}, {"b", "kept"}, {"later", "first"}}));
}

// Rank 2 recomputes, and meets a problem more, which it alone times, whoever else meets it; rank 3 does as it does.
TEST(AlgorithmRounds, AProblemIsTimedByTheFirstRankThatMeetsIt) {
  const Rank plain{.member = {"H", "none"}, .problems = {"a"}};
  const Rank recomputes{.member = {"H", "cheap"}, .problems = {"a", "c"}};
  const std::vector<Choices> used = used_by({plain, plain, recomputes, recomputes});
  for (const std::size_t rank : {0u, 1u}) EXPECT_EQ(used[rank].at("a"), "timed by 0");
  for (const std::size_t rank : {2u, 3u})
    EXPECT_EQ(used[rank], (Choices{{"a", "timed by 0"}, {"c", "timed by 2"}, {"later", "first"}}));
}

TEST(AlgorithmRounds, ARankWithoutRoomTimesNothing) {
  const Rank tight{.member = {"H", "cheap", false}, .problems = {"a", "c"}};
  const std::vector<Choices> used = used_by({{.member = {"H", "none"}, .problems = {"a"}}, tight});
  EXPECT_EQ(used[1], (Choices{{"a", "timed by 0"}, {"c", "first"}, {"later", "first"}}));
}

TEST(AlgorithmRounds, ChoicesAreOfOneModelOfGpu) {
  const std::vector<Choices> used = used_by({{.member = {"H", "none"}, .problems = {"a"}},
                                             {.member = {"T", "none"}, .problems = {"a"}},
                                             {.member = {"T", "none"}, .problems = {"a"}}});
  EXPECT_EQ(used[0].at("a"), "timed by 0");
  EXPECT_EQ(used[1].at("a"), "timed by 1");
  EXPECT_EQ(used[2].at("a"), "timed by 1");
}

}  // namespace
}  // namespace bantam::run::algorithm_rounds_test
