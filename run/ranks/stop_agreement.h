// StopAgreement: whether any rank wants to stop, asked often and exchanged seldom.
#pragma once

#include <chrono>
#include <functional>

#include "bantam/run/ranks/run_ranks.h"

namespace bantam::run {

/// As TrainerOptions::agree. All ranks call it at the same places; it returns the same on all. Ranks exchange messages
/// at some calls only, about `seconds` apart: rank 0 measures how long calls are apart and says after how many the next
/// exchange comes. A wish to stop waits until then. So a host that launches a millisecond of GPU work ahead does
/// not wait for the network at each.
class StopAgreement {
 public:
  using Clock = std::function<double()>;  ///< seconds

  /// `seconds` 0: at every call.
  explicit StopAgreement(RunRanks ranks, double seconds = 0, Clock clock = {});
  /// Whether any rank has said so. Throws CommunicationError.
  bool operator()(bool stops);
  /// Exchanges so far.
  int exchanges() const { return exchanges_; }

 private:
  static constexpr int kMostPassed = 255;

  int next_passed() const;

  RunRanks ranks_;
  double seconds_;
  Clock clock_;
  double last_ = 0;  // when the last exchange was
  int passed_ = 0;   // calls between the last two exchanges
  int left_ = 0;     // calls that pass until the next
  int exchanges_ = 0;
  bool stops_ = false;
};

}  // namespace bantam::run
