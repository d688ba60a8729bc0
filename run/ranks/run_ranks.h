// RunRanks: this process among the ranks that train one run, and what they decide together beside the updates.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/comm/communicator.h"
#include "bantam/engine/train/trainer.h"
#include "bantam/memory/device/device.h"

namespace bantam::run {

/// A process that trains alone, or one of several ranks of a run. Every rank has the whole state; rank 0 alone has the
/// run's folder. Functions below are called by all ranks in the same order, and throw CommunicationError; with one rank
/// they exchange nothing.
struct RunRanks {
  Communicator* link = nullptr;  ///< null: there is one rank
  int local_rank = 0;            ///< among the ranks on this host
  int local_size = 1;            ///< ranks on this host; 0: not known
  /// GPUs by local rank, where they were named; empty: each rank has the GPU of its local rank.
  std::vector<Device> devices = {};

  int rank() const { return link == nullptr ? 0 : link->rank(); }
  int size() const { return link == nullptr ? 1 : link->size(); }
  bool several() const { return size() > 1; }
  bool writes() const { return rank() == 0; }
};

/// Rank 0's text.
std::string text_of_first(const RunRanks& ranks, const std::string& text);
/// Whether any rank says so.
bool any_rank(const RunRanks& ranks, bool mine);
/// The first number that is not 0, in the order of the ranks; 0 where all are.
int first_number(const RunRanks& ranks, int mine);
/// Throws DataError naming the ranks whose text differs from rank 0's, and `what` it is.
void require_same(const RunRanks& ranks, const std::string& what, const std::string& mine);

/// Rank 0's state in every rank's registry: tensors, counters and numbers; registries have the same entries. Waits for
/// the device.
void broadcast_state(const RunRanks& ranks, const StateRegistry& state, Stream stream);

/// SHA-256 of the names and bytes of all tensors, as they are after the work submitted to the stream.
std::string state_digest(const StateRegistry& state, Stream stream);

/// The ranks whose digest is not that of most ranks (of rank 0, where no digest is that of more than half).
std::vector<int> odd_ranks(std::span<const std::string> digests);

/// Ranks whose states have come to differ, which they never should: a processor or memory that computes wrongly, or
/// unlike libraries.
class StateMismatch : public Error {
 public:
  using Error::Error;
};

/// Compares the state of all ranks at the end of epochs: of each, or with `seconds` of those that end so long after the
/// last comparison, by rank 0's clock, and of the last. Where a rank's differs, it ends the run on every rank with a
/// StateMismatch that names the rank.
class StateComparison : public Callback {
 public:
  StateComparison(const RunRanks& ranks, const StateRegistry& state, Stream stream, double seconds = 0)
      : ranks_(ranks), state_(state), stream_(stream), seconds_(seconds) {}
  bool observes() const override { return true; }
  void on_epoch_end(const EpochEvent& event) override;

 private:
  bool is_due(const EpochEvent& event) const;

  RunRanks ranks_;
  const StateRegistry& state_;
  Stream stream_;
  double seconds_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace bantam::run
