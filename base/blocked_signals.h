// BlockedSignals: a thread that is started meanwhile receives no signals.
#pragma once

#include <csignal>

#include <pthread.h>

namespace bantam {

/// Blocks all signals in this thread until it goes. A new thread inherits that for good: handlers then run in the
/// threads that were there before, where the program expects them.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace bantam
