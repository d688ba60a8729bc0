// Watch: whether all processes of a run live, also while they compute and send each other nothing.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bantam/engine/comm/communicator.h"
#include "bantam/engine/comm/frame_stream.h"

namespace bantam {

struct WatchOptions {
  int rank = 0;
  std::vector<std::string> hosts;  ///< the hosts of all ranks, by rank
  double beat_seconds = 1;         ///< how often each process says that it lives
  double silence_seconds = 30;     ///< a process of which nothing was heard for so long has failed; at least 3 beats
  /// Called once, on the watch's thread, when this process learns of a failure (its own, by fail(), excepted).
  std::function<void(const RankFailure&)> on_failure;
};

/// A thread that sends heartbeats to rank 0, rank 0's to all others. A connection that ends without a goodbye is a
/// process that died; rank 0 tells all others at once. If it is rank 0 that dies or is silent, each notices by itself.
/// A process that was stopped, and goes on, waits anew before it judges others. All functions: any thread.
class Watch {
 public:
  /// `control`: rank 0: a stream to each rank, by rank, none to itself; others: one, to rank 0.
  Watch(std::vector<FrameStream> control, WatchOptions options);
  /// Says goodbye, or why not, waits two seconds at most until that has arrived, and ends the thread.
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Tells all others of a failure of this process, or one that it has found. The first counts. Returns when it is
  /// written, within a second.
  void fail(const RankFailure& failure) noexcept;
  /// The failure that is known so far, of this process or another one; nothing where there is none.
  std::optional<RankFailure> failure() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bantam
