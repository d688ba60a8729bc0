// Handlers may only touch what is lock-free, and call what POSIX lists as async-signal-safe. They may run on any
// thread.
#include "bantam/cli/signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>

#include <unistd.h>

#include "bantam/cli/failure.h"

namespace bantam::cli {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
constexpr std::int64_t kTwinNanoseconds = 1'000'000'000;  // what comes so soon after the first signal is its twin
constexpr unsigned kMostStartSeconds = 1;                 // from the first signal on
constexpr int kExitTerminated = 75, kExitInterrupted = 130;

enum class Phase : int { starting, training, saved };

// A handler has no argument of its own, so these have to be reachable from anywhere.
std::atomic<Phase> g_phase{Phase::starting};
std::atomic<int> g_signal{0};
std::atomic<bool> g_quiet{false};
std::atomic<std::int64_t> g_first_at{0};  // nanoseconds of the monotonic clock; 0: not known yet
static_assert(std::atomic<Phase>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

struct Former {
  struct sigaction action {};
  bool replaced = false;
};
std::array<Former, kSignals.size()> g_former;
struct sigaction g_former_alarm {};

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void say(std::string_view text) {
  if (!g_quiet.load()) write_at_once(text);
}

/// As if there were no handler, so that a parent sees which signal it was.
[[noreturn]] void end_by(int number) {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  sigaction(number, &action, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  raise(number);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  _exit(128 + number);  // the first process of a container has no default action
}

void on_further_signal(int number) {
  switch (g_phase.load()) {
    case Phase::starting:
      break;
    case Phase::training:
      say("\nended before it was saved: what was trained since the last checkpoint is lost\n");
      break;
    case Phase::saved:
      _exit(stop_exit_code(g_signal.load()));
  }
  end_by(number);
}

extern "C" void on_signal(int number) {
  const int error = errno;
  int none = 0;
  if (g_signal.compare_exchange_strong(none, number)) {
    g_first_at.store(now());
    if (g_phase.load() == Phase::starting) {
      say("\nstopping before the training begins: there is nothing to save\n");
      alarm(kMostStartSeconds);
    } else if (g_phase.load() != Phase::saved)
      say("\nstopping after the batch under way, then saving; a further signal, a second from now or later, ends at "
          "once "
          "without saving\n");
  } else if (const std::int64_t first = g_first_at.load(); first != 0 && now() - first >= kTwinNanoseconds) {
    on_further_signal(number);
  }
  errno = error;
}

/// A start that did not end by itself.
extern "C" void on_alarm(int /*number*/) {
  if (g_phase.load() == Phase::starting) _exit(stop_exit_code(g_signal.load()));
}

bool is_ignored(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == SIG_IGN;
}

bool is_ours(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler == on_signal;
}

void install(int number, Former& former) {
  struct sigaction before {};
  sigaction(number, nullptr, &before);
  if (is_ignored(before) || is_ours(before)) return;  // ours: of an earlier scope that a signal ended
  former = {.action = before, .replaced = true};
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;  // system calls under way go on
  sigemptyset(&action.sa_mask);
  for (const int other : kSignals) sigaddset(&action.sa_mask, other);
  sigaction(number, &action, nullptr);
}

}  // namespace

StopOnSignal::StopOnSignal(bool quiet) {
  g_quiet.store(quiet);
  g_phase.store(Phase::starting);
  g_signal.store(0);
  g_first_at.store(0);
  for (std::size_t i = 0; i < kSignals.size(); ++i) install(kSignals[i], g_former[i]);
  struct sigaction alarm {};
  alarm.sa_handler = on_alarm;
  alarm.sa_flags = SA_RESTART;
  sigemptyset(&alarm.sa_mask);
  sigaction(SIGALRM, &alarm, &g_former_alarm);
}

StopOnSignal::~StopOnSignal() {
  if (requested()) return;
  sigaction(SIGALRM, &g_former_alarm, nullptr);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (!g_former[i].replaced) continue;
    sigaction(kSignals[i], &g_former[i].action, nullptr);
    g_former[i].replaced = false;
  }
}

void StopOnSignal::begin_start() { g_phase.store(Phase::starting); }

void StopOnSignal::begin_training() { g_phase.store(Phase::training); }

void StopOnSignal::note_saved() { g_phase.store(Phase::saved); }

bool StopOnSignal::requested() const { return g_signal.load(std::memory_order_relaxed) != 0; }

int StopOnSignal::signal() const { return g_signal.load(); }

int stop_exit_code(int signal) { return signal == SIGINT ? kExitInterrupted : kExitTerminated; }

}  // namespace bantam::cli
