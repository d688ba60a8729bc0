// Meeting of ranks, and their common end.
#include "bantam/cli/train/train_ranks.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/failure.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/signals.h"
#include "bantam/engine/comm/handshake.h"
#include "bantam/memory/device/host_info.h"
#include "bantam/run/ranks/rank_devices.h"
#include "bantam/run/train/checkpoint_folder.h"
#include "bantam/run/train/training_run.h"

namespace bantam::cli {
namespace {

constexpr double kFarewellSeconds = 2;  // for ranks that were started here to end by themselves
constexpr const char* kLoopback = "127.0.0.1";

int threads_of(const LaunchEnvironment& launched) {
  return std::max(1, read_host_info().processors / std::max(1, launched.local_size));
}

}  // namespace

EndTimer::~EndTimer() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EndTimer::start(double seconds, std::function<void()> end) {
  const std::lock_guard lock(mutex_);
  if (is_over_ || thread_.joinable()) return;
  thread_ = std::thread([this, seconds, end = std::move(end)] {
    std::unique_lock lock(mutex_);
    while (!is_over_) {
      if (is_paused_)
        changed_.wait(lock);
      else if (!changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                  [this] { return is_over_ || is_paused_; }))
        return end();
    }
  });
}

void EndTimer::pause(bool pauses) {
  {
    const std::lock_guard lock(mutex_);
    is_paused_ = pauses;
  }
  changed_.notify_all();
}

std::unique_ptr<TrainRanks> TrainRanks::spawn(int ranks, const std::function<bool()>& stop,
                                              const std::vector<Device>& gpus) {
  const LocalListener listener = listen_for_local_ranks();
  ::fcntl(listener.descriptor, F_SETFD, FD_CLOEXEC);  // it is rank 0's, which is this process
  const LaunchEnvironment launched{.launcher = kOwnLauncher,
                                   .size = ranks,
                                   .local_size = ranks,
                                   .address = kLoopback,
                                   .port = listener.port,
                                   .secret = handshake::random_number(),
                                   .listener = listener.descriptor};
  auto processes = std::make_unique<RankProcesses>(RankMeeting{
      .ranks = ranks, .address = fmt::format("{}:{}", kLoopback, listener.port), .secret = launched.secret});
  return std::unique_ptr<TrainRanks>(new TrainRanks(launched, std::move(processes), stop, gpus));
}

std::unique_ptr<TrainRanks> TrainRanks::join(const LaunchEnvironment& launched, const std::function<bool()>& stop,
                                             const std::vector<Device>& gpus) {
  ::prctl(PR_SET_NAME, "bantam");  // started as /proc/self/exe its name would be "exe"
  auto joined = std::unique_ptr<TrainRanks>(new TrainRanks(launched, nullptr, stop, gpus));
  // From now on the end of rank 0 is seen by its connection; a process that was halted wakes up to see it.
  if (launched.launcher == kOwnLauncher) ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  return joined;
}

TrainRanks::TrainRanks(const LaunchEnvironment& launched, std::unique_ptr<RankProcesses> processes,
                       const std::function<bool()>& stop, const std::vector<Device>& gpus)
    : rank_(launched.rank),
      size_(launched.size),
      local_rank_(launched.local_rank),
      local_size_(launched.local_size),
      threads_(threads_of(launched)),
      gpus_(gpus),
      processes_(std::move(processes)) {
  int ended = 0;  // the first, which the others follow
  const auto stops = [&] {
    if (ended == 0 && processes_ != nullptr) ended = processes_->first_ended();
    return ended > 0 || (stop && stop());
  };
  try {
    group_ = connect_ranks({.launched = launched,
                            .version = BANTAM_VERSION,
                            .stop = stops,
                            .on_failure = [this](const RankFailure& failure) { end_after(failure); }});
  } catch (const CommunicationError&) {
    if (ended == 0) throw;
    const std::string reason = fmt::format("died before all ranks were connected ({})", processes_->end_of(ended));
    throw CommunicationError(fmt::format("rank {} {}", ended, reason), {.rank = ended, .host = "", .reason = reason});
  }
}

TrainRanks::~TrainRanks() = default;

void TrainRanks::set_folder(const std::filesystem::path& folder) {
  const std::lock_guard lock(mutex_);
  folder_ = folder;
}

/// On a thread of the group's: whatever the training waits for, this process ends.
void TrainRanks::end_after(const RankFailure& failure) {
  timer_.start(kMostSeconds, [this, failure] {
    int code = 0;
    if (processes_ != nullptr) {
      if (failure.rank > 0) code = processes_->code_of(failure.rank);
      processes_->kill_all();
    }
    if (tells(failure)) write_at_once(error_line(message_of(failure, ""), rank_ == 0 ? "" : who()));
    ::_exit(code != 0 ? code : kFailed);
  });
}

std::string TrainRanks::message_of(const RankFailure& failure, const std::string& end) {
  std::string text =
      fmt::format("rank {}{}: {}{}", failure.rank, failure.host.empty() ? "" : " on " + printable_line(failure.host),
                  failure.reason, end);
  text += fmt::format("\n  the run has ended on all {} ranks", size_);
  const std::lock_guard lock(mutex_);
  if (folder_.empty()) return text;
  try {
    const std::vector<run::Checkpoint> checkpoints = run::CheckpointFolder(folder_).list();
    if (!checkpoints.empty())
      return text + fmt::format("; its newest checkpoint is {}: `bantam train --resume {}{}` goes on",
                                checkpoints.front().path.string(), folder_.string(),
                                processes_ == nullptr ? ""
                                : gpus_.empty()       ? fmt::format(" --ranks {}", size_)
                                                      : " --gpus " + run::gpus_text(gpus_));
  } catch (const DataError&) {  // as if there were none
  }
  return text + "; it has no checkpoint yet";
}

int TrainRanks::report(const CommunicationError& error) {
  const RankFailure& failure = error.failure();
  wait();
  const bool started_here = processes_ != nullptr && failure.rank > 0;
  const int of_rank = started_here ? processes_->code_of(failure.rank) : 0;
  if (failure.reason == run::StoppedBeforeTraining().what()) {
    if (rank_ == 0) print_error("{}\n", failure.reason);
    return of_rank != 0 ? of_rank : stop_exit_code(SIGTERM);
  }
  const int code = of_rank != 0 ? of_rank : int{kFailed};
  if (!tells(failure)) return code;
  const std::string how = started_here && of_rank == 0 ? processes_->end_of(failure.rank) : "";
  const std::string end = how.empty() ? "" : fmt::format(" ({})", how);
  return report_error(message_of(failure, end), code, rank_ == 0 ? "" : who());
}

void TrainRanks::wait() {
  if (processes_ != nullptr) processes_->wait(kFarewellSeconds);
}

}  // namespace bantam::cli
