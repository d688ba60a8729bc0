// A Mesh over TCP and a Watch beside it, as one Communicator.
#include "bantam/engine/comm/rank_group.h"

#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include "bantam/base/plain_words.h"
#include "bantam/engine/comm/mesh.h"
#include "bantam/engine/comm/rendezvous.h"
#include "bantam/engine/comm/tcp_network.h"
#include "bantam/engine/comm/watch.h"

namespace bantam {
namespace {

/// The communicator of a run of one rank.
class OneRank final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void exchange(std::span<const OutgoingMessage> out, std::span<const IncomingMessage> in) override {
    if (!out.empty() || !in.empty()) throw Error("a run of one rank has no other rank to exchange messages with");
  }
  void fail(const std::string&) noexcept override {}
};

class WatchedRanks final : public Communicator {
 public:
  WatchedRanks(int rank, RankConnections connections, const RankGroupOptions& options)
      : host_(connections.hosts[static_cast<std::size_t>(rank)]),
        // The watch knows who lives: a rank may compute for as long as it likes.
        mesh_(std::make_unique<TcpNetwork>(rank, std::move(connections.data), connections.hosts),
              {.silence_seconds = 0}),
        watch_(std::move(connections.control), watch_options(connections.hosts, options)) {}

  ~WatchedRanks() override {
    if (std::uncaught_exceptions() > exceptions_) fail("ended by an error");
    // A failure that only the mesh has heard of is passed on, so that this process's end is not taken for one.
    if (const auto failure = mesh_.failure()) watch_.fail(*failure);
  }

  int rank() const override { return mesh_.rank(); }
  int size() const override { return mesh_.size(); }

  void exchange(std::span<const OutgoingMessage> out, std::span<const IncomingMessage> in) override {
    try {
      mesh_.exchange(out, in);
    } catch (const CommunicationError& error) {
      tell();
      watch_.fail(error.failure());
      throw;
    }
  }

  void on_failure(std::function<void()> told) override {
    const std::lock_guard lock(mutex_);
    if (failed_)
      told();
    else
      told_.push_back(std::move(told));
  }

  void fail(const std::string& reason) noexcept override {
    tell();
    try {
      watch_.fail(RankFailure{rank(), host_, reason});  // first: the mesh may wait for others
    } catch (...) {  // no memory for the texts: the end of the process tells the others
    }
    mesh_.fail(reason);
  }

 private:
  WatchOptions watch_options(const std::vector<std::string>& hosts, const RankGroupOptions& options) {
    const auto heed = [this, told = options.on_failure](const RankFailure& failure) {
      mesh_.fail(failure);
      tell();
      if (told) told(failure);
    };
    return {mesh_.rank(), hosts, options.beat_seconds, options.silence_seconds, heed};
  }

  /// Whoever asked for it, once.
  void tell() noexcept {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    for (const std::function<void()>& told : told_) told();
    told_.clear();
  }

  int exceptions_ = std::uncaught_exceptions();
  std::mutex mutex_;
  std::vector<std::function<void()>> told_;
  bool failed_ = false;
  std::string host_;
  Mesh mesh_;
  Watch watch_;  // after the mesh, which its thread uses
};

}  // namespace

RankGroup connect_ranks(const RankGroupOptions& options) {
  const LaunchEnvironment& launched = options.launched;
  if (launched.size == 1) return {std::make_unique<OneRank>(), {host_name()}};
  RendezvousOptions meeting;
  meeting.rank = launched.rank;
  meeting.size = launched.size;
  meeting.address = {launched.address, launched.port};
  meeting.all_local = launched.all_local();
  meeting.listener = launched.listener;
  meeting.run = launched.run;
  meeting.secret = launched.secret;
  meeting.version = options.version;
  meeting.timeout_seconds = options.connect_seconds;
  meeting.stop = options.stop;
  RankConnections connections = rendezvous(meeting);
  RankGroup group;
  group.hosts = connections.hosts;
  group.ranks = std::make_unique<WatchedRanks>(launched.rank, std::move(connections), options);
  return group;
}

LocalListener listen_for_local_ranks() {
  std::string why;
  const auto addresses = resolve({"127.0.0.1", 0}, why);
  FileDescriptor socket;
  if (!addresses.empty()) socket = listen_at(addresses.front(), why);
  if (!socket) throw Error(fmt::format("cannot listen at 127.0.0.1: {}", why));
  LocalListener listener{-1, own_address(socket).port()};
  listener.descriptor = ::fcntl(socket.get(), F_DUPFD, 3);  // without close-on-exec: rank 0 inherits it
  if (listener.descriptor < 0) throw Error(fmt::format("cannot listen at 127.0.0.1: {}", reason_text(errno)));
  return listener;
}

}  // namespace bantam
