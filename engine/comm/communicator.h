// Communicator: the messages between the ranks of one run. What is sent where is the callers'; how bytes travel is the
// implementations': processes over TCP, threads, a simulator.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "bantam/base/error.h"

namespace bantam {

/// Why a run of several ranks ends for all of them.
struct RankFailure {
  int rank = 0;        ///< where it began
  std::string host;    ///< the host of `rank`; empty: not known
  std::string reason;  ///< what that rank said of itself ("out of memory: …"), or what others saw ("died")
};

/// A rank failed, died or does not answer: thrown on every rank, of every call from then on.
class CommunicationError : public Error {
 public:
  CommunicationError(const std::string& message, RankFailure failure) : Error(message), failure_(std::move(failure)) {}
  const RankFailure& failure() const { return failure_; }

 private:
  RankFailure failure_;
};

/// Bytes for, or from, another rank. Both sides know the size.
struct OutgoingMessage {
  int to = 0;
  std::span<const std::byte> bytes;
};
struct IncomingMessage {
  int from = 0;
  std::span<std::byte> bytes;
};

/// Ranks 0 … size() - 1 of a run. Messages of a pair arrive in the order in which they were sent. Host memory. Used by
/// one thread, but for fail().
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Sends and receives at once, so that ranks that send to each other do not wait for each other; returns when all is
  /// sent and received. No message is to this rank itself. Throws CommunicationError.
  virtual void exchange(std::span<const OutgoingMessage> out, std::span<const IncomingMessage> in) = 0;
  /// Tells all other ranks that this one has failed: their calls throw with this reason, as do this rank's own. The
  /// first failure counts. Does not throw. Any thread may call it.
  virtual void fail(const std::string& reason) noexcept = 0;
  /// `told` is called, on any thread, once a failure of any rank is known, this one's own too; at once where one is. It
  /// must not call the communicator. An implementation that hears of failures in exchange() alone never calls it.
  virtual void on_failure(std::function<void()> told) { (void)told; }
};

}  // namespace bantam
