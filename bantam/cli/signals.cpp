// The handler may only touch what is lock-free: the trainer's stop flag and a number.
#include "bantam/cli/signals.h"

#include <atomic>
#include <csignal>

#include <unistd.h>

namespace bantam::cli {
namespace {

// A handler has no argument of its own, so these two have to be reachable from anywhere.
std::atomic<Trainer*> g_trainer{nullptr};
volatile std::sig_atomic_t g_signal = 0;

extern "C" void on_signal(int number) {
  g_signal = number;
  if (Trainer* trainer = g_trainer.load(std::memory_order_relaxed)) trainer->request_stop();
  constexpr char kText[] = "\nstopping after this update, then saving; once more ends at once\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof(kText) - 1);
}

void install(int number, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  // The second signal finds the system's default again; system calls under way go on.
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(number, &action, nullptr);
}

}  // namespace

StopOnSignal::StopOnSignal(Trainer& trainer) {
  g_signal = 0;
  g_trainer.store(&trainer);
  install(SIGINT, on_signal);
  install(SIGTERM, on_signal);
  install(SIGHUP, on_signal);  // a dropped connection must not lose the run
}

StopOnSignal::~StopOnSignal() {
  install(SIGINT, SIG_DFL);
  install(SIGTERM, SIG_DFL);
  install(SIGHUP, SIG_DFL);
  g_trainer.store(nullptr);
}

int StopOnSignal::signal() const { return g_signal; }

}  // namespace bantam::cli
