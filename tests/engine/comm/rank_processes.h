// Starts rank_process children, reads what they print, waits for their ends; nothing survives the test.
#pragma once

#include <chrono>
#include <climits>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bantam/base/clock.h"
#include "bantam/engine/comm/rank_group.h"

namespace bantam::testing {

using Environment = std::map<std::string, std::string>;

/// A child, killed with its owner.
class RankProcess {
 public:
  RankProcess(const std::vector<std::string>& arguments, const Environment& environment) {
    const std::string program =
        (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "rank_process").string();
    std::vector<std::string> variables;
    for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
    std::vector<char*> argv = {const_cast<char*>(program.c_str())}, envp;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    for (const std::string& variable : variables) envp.push_back(const_cast<char*>(variable.c_str()));
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::execve(program.c_str(), argv.data(), envp.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  RankProcess(RankProcess&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), output_(std::exchange(other.output_, -1)), text_(std::move(other.text_)) {}
  ~RankProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    if (output_ >= 0) ::close(output_);
  }

  /// Waits until the line is printed; false where the end of the output, or the time, comes first.
  bool prints(const std::string& line, double seconds = 30) {
    const auto start = std::chrono::steady_clock::now();
    while (("\n" + text_).find("\n" + line + "\n") == std::string::npos) {
      if (!read_more(seconds - seconds_since(start))) return false;
    }
    return true;
  }

  /// All that it prints up to its end; the end has to come within `seconds`.
  std::string output(double seconds = 30) {
    const auto start = std::chrono::steady_clock::now();
    while (read_more(seconds - seconds_since(start))) {
    }
    EXPECT_LT(seconds_since(start), seconds) << "still runs; printed: " << text_;
    if (seconds_since(start) < seconds) expect_orderly_end();
    return text_;
  }

  void signal(int number) const {
    if (pid_ > 0) ::kill(pid_, number);
  }

 private:
  /// No crash, and nothing that a sanitizer has to say. (A process that the test kills is not asked.)
  void expect_orderly_end() {
    int status = 0;
    if (pid_ <= 0) return;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 3) << "status " << status << "; printed: " << text_;
  }

  bool read_more(double seconds) {
    pollfd poll{output_, POLLIN, 0};
    if (seconds <= 0 || ::poll(&poll, 1, static_cast<int>(seconds * 1000) + 1) <= 0) return false;
    char buffer[4096];
    const auto n = ::read(output_, buffer, sizeof(buffer));
    if (n > 0) text_.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }

  pid_t pid_ = 0;
  int output_ = -1;
  std::string text_;
};

/// The ranks of one run on this host, each told where rank 0 is, which inherits the listener.
class LocalRun {
 public:
  explicit LocalRun(int size) : size_(size), listener_(listen_for_local_ranks()) {}
  ~LocalRun() { close_listener(); }

  /// `more`: variables beside the usual ones, or instead of them.
  RankProcess start(int rank, std::vector<std::string> arguments, const Environment& more = {}) {
    Environment environment = more;
    environment.insert({{"BANTAM_RANK", std::to_string(rank)},
                        {"BANTAM_RANKS", std::to_string(size_)},
                        {"BANTAM_ADDRESS", "127.0.0.1:" + std::to_string(listener_.port)}});
    if (rank != 0) {
      // Others than rank 0 do not inherit it: a listener that is open somewhere accepts connections for ever.
      ::fcntl(listener_.descriptor, F_SETFD, FD_CLOEXEC);
    } else {
      ::fcntl(listener_.descriptor, F_SETFD, 0);
      environment.insert({"BANTAM_LISTENER", std::to_string(listener_.descriptor)});
    }
    RankProcess process(arguments, environment);
    if (rank == 0) close_listener();
    return process;
  }

  std::vector<RankProcess> start_all(const std::vector<std::string>& arguments) {
    std::vector<RankProcess> processes;
    for (int rank = 0; rank < size_; ++rank) processes.push_back(start(rank, arguments));
    return processes;
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(listener_.port); }
  int port() const { return listener_.port; }

 private:
  void close_listener() {
    if (listener_.descriptor >= 0) ::close(std::exchange(listener_.descriptor, -1));
  }

  int size_;
  LocalListener listener_;
};

/// Whether all print "ready".
inline void expect_ready(std::vector<RankProcess>& processes) {
  for (std::size_t i = 0; i < processes.size(); ++i)
    EXPECT_TRUE(processes[i].prints("ready")) << processes[i].output(1);
}

inline std::string this_host() {
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace bantam::testing
