// Internal: a guess of which buffers end and begin side by side, where one arena was full.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "bantam/base/philox.h"
#include "bantam/memory/planner_placement.h"

namespace bantam::planner {

/// In a full arena the buffers that end at one time leave their space to those that begin then, and these are
/// neighbours on both sides: a seam. By default there is one seam a time. Where nothing begins at the time at which a
/// buffer ends, or the reverse, an end is loose: it is taken for a lifetime cut short, and moved (outwards only, by at
/// most a share of the lifetime) to a seam whose sizes it balances. A time with several ends and begins may be two
/// seams. Guesses can be changed at random and taken back.
class Seams {
 public:
  Seams(const Problem& problem, double most_moved);

  /// Seams are numbered below it, by twice their time: a later time has the larger number.
  Index count() const { return 2 * problem_.times; }
  Index first() const { return 0; }
  Index last() const { return 2 * (problem_.times - 1); }
  Index of_begin(std::size_t buffer) const { return begin_[buffer]; }
  Index of_end(std::size_t buffer) const { return end_[buffer]; }

  /// Moves this begin or end of a buffer, if it is loose, else parts its seam in two or makes it one again. False where
  /// nothing could be changed.
  bool change(std::size_t buffer, bool at_end, PhiloxSequence& random);
  void undo();

 private:
  enum class Loose : char { no, begin, end };
  struct Move {
    double cost;
    Index time;
    std::vector<Index> loose;  // times
  };
  struct Sums {
    double begins = 0, ends = 0;
    double unbalance() const;  // the share of the larger sum that the other lacks
  };
  struct Change {
    Index time = -1, old_time = -1;  // where a loose end was
    std::vector<std::size_t> old_second;
  };

  std::size_t begins_code(std::size_t buffer) const { return buffer; }
  std::size_t ends_code(std::size_t buffer) const { return problem_.count() + buffer; }
  double between(Index a, Index b) const;
  bool may_move(Index loose, Index to) const;
  std::vector<Index> loose_near(Index time) const;
  void add_moves(Index time, std::vector<Move>& moves) const;
  void match_sets();
  void match_rest(bool any_balance);
  void match_borders();
  void number();
  bool move_loose(Index time, PhiloxSequence& random);
  bool part(Index time, PhiloxSequence& random);

  const Problem& problem_;
  std::vector<Sums> sums_;                        // by time, before any moves
  std::vector<double> reach_;                     // by time: how far a loose end may move
  std::vector<Loose> loose_;                      // by time
  std::vector<Index> moved_to_;                   // by time
  std::vector<std::vector<std::size_t>> second_;  // by time: begins and ends of a second seam
  std::vector<Index> begin_, end_;
  Change change_;
};

}  // namespace bantam::planner
