// Starting ranks and waiting for them. Between fork and exec only what POSIX lists as async-signal-safe is called.
#include "bantam/cli/train/rank_processes.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/plain_words.h"

namespace bantam::cli {
namespace {

constexpr const char* kProgram = "/proc/self/exe";

/// This process's arguments, each ended by a 0.
std::string own_arguments() { return read_file("/proc/self/cmdline"); }

std::vector<char*> pointers_to(std::string& arguments) {
  std::vector<char*> pointers;
  for (std::size_t at = 0; at < arguments.size(); at = arguments.find('\0', at) + 1) {
    pointers.push_back(arguments.data() + at);
    if (arguments.find('\0', at) == std::string::npos) break;
  }
  pointers.push_back(nullptr);
  return pointers;
}

/// This process's environment with the variables of one rank.
std::vector<std::string> environment_of(int rank, const RankMeeting& meeting) {
  const std::vector<std::string> own = {fmt::format("BANTAM_RANK={}", rank),
                                        fmt::format("BANTAM_RANKS={}", meeting.ranks),
                                        "BANTAM_ADDRESS=" + meeting.address, "BANTAM_SECRET=" + meeting.secret};
  std::vector<std::string> all = own;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    if (!text.starts_with("BANTAM_RANK") && !text.starts_with("BANTAM_ADDRESS=") &&
        !text.starts_with("BANTAM_SECRET=") && !text.starts_with("BANTAM_LISTENER="))
      all.emplace_back(text);
  }
  return all;
}

/// In the new process.
[[noreturn]] void become_rank(pid_t parent, char* const* arguments, char* const* environment) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);   // until it is connected (TrainRanks::join)
  if (getppid() != parent) _exit(1);  // it has ended before that was set
  const int nothing = open("/dev/null", O_RDWR);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(nothing, STDOUT_FILENO) < 0) _exit(1);
  if (nothing > STDERR_FILENO) close(nothing);
  execve(kProgram, arguments, environment);
  constexpr std::string_view kFailed = "bantam: error: a rank cannot be started: /proc/self/exe cannot be run\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kFailed.data(), kFailed.size());
  _exit(1);
}

}  // namespace

RankProcesses::RankProcesses(const RankMeeting& meeting) {
  std::string text = own_arguments();
  std::vector<char*> arguments = pointers_to(text);
  try {
    for (int rank = 1; rank < meeting.ranks; ++rank) start(rank, arguments, environment_of(rank, meeting));
  } catch (...) {
    end_all();
    throw;
  }
}

RankProcesses::~RankProcesses() { end_all(); }

void RankProcesses::start(int rank, std::vector<char*>& arguments, std::vector<std::string> environment) {
  std::vector<char*> variables;
  for (std::string& variable : environment) variables.push_back(variable.data());
  variables.push_back(nullptr);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) become_rank(parent, arguments.data(), variables.data());
  if (child < 0) throw Error(fmt::format("rank {} cannot be started: {}", rank, reason_text(errno)));
  processes_.push_back({.id = child});
}

void RankProcesses::kill_all() noexcept {
  const std::lock_guard lock(mutex_);
  for (Process& process : processes_) {
    if (process.ended) continue;
    kill(process.id, SIGKILL);
    process.killed = true;
  }
}

void RankProcesses::end_all() noexcept {
  kill_all();
  (void)collect(true);
}

/// Whether all have ended.
bool RankProcesses::collect(bool waits) noexcept {
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (Process& process : processes_) {
    if (process.ended) continue;
    pid_t found = 0;
    do {
      found = waitpid(process.id, &process.status, waits ? 0 : WNOHANG);
    } while (found < 0 && errno == EINTR);
    process.ended = found != 0;
    all = all && process.ended;
  }
  return all;
}

int RankProcesses::first_ended() {
  (void)collect(false);
  for (std::size_t i = 0; i < processes_.size(); ++i)
    if (processes_[i].ended) return static_cast<int>(i) + 1;
  return 0;
}

void RankProcesses::wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  while (!collect(false) && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  end_all();
}

std::string RankProcesses::end_of(int rank) const {
  const Process& process = processes_.at(static_cast<std::size_t>(rank - 1));
  if (process.killed) return "";
  const int status = process.status;
  if (WIFSIGNALED(status)) return fmt::format("ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

int RankProcesses::code_of(int rank) noexcept {
  (void)collect(false);
  const std::lock_guard lock(mutex_);
  const Process& process = processes_[static_cast<std::size_t>(rank - 1)];
  return process.ended && WIFEXITED(process.status) ? WEXITSTATUS(process.status) : 0;
}

}  // namespace bantam::cli
