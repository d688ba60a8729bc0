// TrainRanks: the ranks of one `bantam train`, started by this process or by a launcher: how they meet, and how all end
// where one fails.
#pragma once

#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bantam/cli/train/rank_processes.h"
#include "bantam/engine/comm/launch_environment.h"
#include "bantam/engine/comm/rank_group.h"
#include "bantam/run/ranks/run_ranks.h"

namespace bantam::cli {

/// Calls a function once, so many seconds after `start`, unless the timer is destroyed before. While it is paused, it
/// does not; all the seconds pass again once it goes on. All functions: any thread.
class EndTimer {
 public:
  EndTimer() = default;
  ~EndTimer();
  EndTimer(const EndTimer&) = delete;
  EndTimer& operator=(const EndTimer&) = delete;
  /// The first call counts.
  void start(double seconds, std::function<void()> end);
  void pause(bool pauses);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false, is_paused_ = false;
  std::thread thread_;
};

/// This process's place among the ranks. Where a rank has failed and this process has not ended kMostSeconds later, it
/// is ended: its training may wait for something that never comes. Used by one thread.
class TrainRanks {
 public:
  static constexpr double kMostSeconds = 4;

  /// As rank 0 of so many processes on this host, of which the others are started here. `stop`: whether to wait no
  /// longer. `gpus`: of the ranks, where they were named. Throws Error, CommunicationError.
  static std::unique_ptr<TrainRanks> spawn(int ranks, const std::function<bool()>& stop,
                                           const std::vector<Device>& gpus = {});
  /// As the rank that a launcher has started. Throws CommunicationError.
  static std::unique_ptr<TrainRanks> join(const LaunchEnvironment& launched, const std::function<bool()>& stop,
                                          const std::vector<Device>& gpus = {});
  ~TrainRanks();
  TrainRanks(const TrainRanks&) = delete;
  TrainRanks& operator=(const TrainRanks&) = delete;

  run::RunRanks ranks() const {
    return {.link = group_.ranks.get(), .local_rank = local_rank_, .local_size = local_size_, .devices = gpus_};
  }
  /// Processors of this host for each of its ranks.
  int threads() const { return threads_; }
  /// The run's folder, which messages name.
  void set_folder(const std::filesystem::path& folder);
  /// While true, this process is not ended: it writes what was trained, and waits for no other rank.
  void pause_end(bool pauses) { timer_.pause(pauses); }
  /// Tells the other ranks that this one ends.
  void fail(const std::string& reason) noexcept { group_.ranks->fail(reason); }
  /// Prints what has ended the run, on one rank of all; returns the exit code.
  int report(const CommunicationError& error);
  /// Waits for the processes that were started here.
  void wait();

 private:
  TrainRanks(const LaunchEnvironment& launched, std::unique_ptr<RankProcesses> processes,
             const std::function<bool()>& stop, const std::vector<Device>& gpus);
  void end_after(const RankFailure& failure);
  std::string message_of(const RankFailure& failure, const std::string& end);
  bool tells(const RankFailure& failure) const { return rank_ == 0 || (failure.rank == 0 && rank_ == 1); }

  std::string who() const { return "rank " + std::to_string(rank_) + ": "; }

  int rank_, size_, local_rank_, local_size_, threads_;
  std::vector<Device> gpus_;
  std::unique_ptr<RankProcesses> processes_;  // null: a launcher has started the others
  std::mutex mutex_;                          // of the folder
  std::filesystem::path folder_;
  EndTimer timer_;   // from the first failure on
  RankGroup group_;  // last: its threads call end_after
};

}  // namespace bantam::cli
