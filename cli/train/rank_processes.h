// RankProcesses: the other ranks of `train --ranks N`, as processes of this program on this host.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <sys/types.h>

namespace bantam::cli {

/// How spawned ranks find rank 0, which is this process.
struct RankMeeting {
  int ranks = 1;
  std::string address;  ///< HOST:PORT
  std::string secret;
};

/// Ranks 1 … ranks - 1: this program with this process's arguments, and the variables of a launcher
/// (engine/comm/launch_environment.h). They read no standard input and write no standard output; standard error is this
/// process's. Where this process ends, however that is, they get SIGTERM until they are connected, and see it by their
/// connections from then on. Used by one thread.
class RankProcesses {
 public:
  /// Starts them. Throws Error where the system starts no process; those that run already are ended.
  explicit RankProcesses(const RankMeeting& meeting);
  /// Those that still run are ended, at once.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  /// The first rank that has ended; 0: none has.
  int first_ended();
  /// Waits until all have ended by themselves, or for so long; then ends them at once.
  void wait(double seconds);
  /// Ends those that still run at once, and does not wait. Any thread.
  void kill_all() noexcept;
  /// The exit code of a rank that has ended by itself; 0 where it still runs, or a signal has ended it. Any thread.
  int code_of(int rank) noexcept;
  /// How a rank has ended, after `wait`: "ended by signal 9 (Killed)" or "ended with exit code 4"; empty where it was
  /// ended here.
  std::string end_of(int rank) const;

 private:
  struct Process {
    pid_t id = 0;
    bool ended = false, killed = false;  ///< killed: by kill_all
    int status = 0;
  };
  void start(int rank, std::vector<char*>& arguments, std::vector<std::string> environment);
  void end_all() noexcept;
  bool collect(bool waits) noexcept;

  std::mutex mutex_;                // of what has ended
  std::vector<Process> processes_;  // of rank 1 on
};

}  // namespace bantam::cli
