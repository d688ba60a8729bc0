// One rank as a process, for tests: connects as its environment says, does what its arguments say, prints what happens.
//
// rank_process ring | loop | wait | fail REASON | throw | bench BYTES TIMES   [--connect S] [--beat S] [--silence S]
//              [--version TEXT]
//
// ring: each rank sends its number around; loop: exchanges until a failure; wait: exchanges nothing, waits for a
// failure; fail: says why it fails, when SIGUSR1 comes; throw: an exception ends it, then; bench: times exchanges with
// all. Prints "ready" after the first exchange, then "done", or "failed RANK HOST: REASON" and, at its end, "clean"
// where no thread and no descriptor is left.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>

#include <signal.h>

#include "bantam/engine/comm/rank_group.h"

namespace bantam {
namespace {

std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

/// `mine` to every other rank, and theirs here, by rank.
void exchange_with_all(Communicator& ranks, const std::vector<int>& mine, std::vector<std::vector<int>>& theirs) {
  std::vector<OutgoingMessage> out;
  std::vector<IncomingMessage> in;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    if (rank == ranks.rank()) continue;
    out.push_back({rank, std::as_bytes(std::span(mine))});
    in.push_back({rank, std::as_writable_bytes(std::span(theirs[static_cast<std::size_t>(rank)]))});
  }
  ranks.exchange(out, in);
}

std::vector<std::vector<int>> exchange_with_all(Communicator& ranks, const std::vector<int>& mine) {
  std::vector<std::vector<int>> theirs(static_cast<std::size_t>(ranks.size()), std::vector<int>(mine.size()));
  exchange_with_all(ranks, mine, theirs);
  return theirs;
}

/// Every rank's number at every rank, small and large messages.
void ring(Communicator& ranks) {
  for (const std::size_t elements : {1u, 1000u, 3000000u}) {
    std::vector<int> mine(elements);
    std::iota(mine.begin(), mine.end(), ranks.rank() * 1000003);
    const auto theirs = exchange_with_all(ranks, mine);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      if (rank == ranks.rank()) continue;
      std::iota(mine.begin(), mine.end(), rank * 1000003);
      if (theirs[static_cast<std::size_t>(rank)] != mine) throw Error("wrong bytes arrived");
    }
  }
}

void bench(Communicator& ranks, std::size_t bytes, int times) {
  const std::vector<int> mine(bytes / sizeof(int), ranks.rank());
  auto theirs = exchange_with_all(ranks, mine);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) exchange_with_all(ranks, mine, theirs);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (ranks.rank() != 0) return;
  char line[200];
  std::snprintf(line, sizeof(line), "%d ranks, %zu bytes to each other rank: %.3f ms, %.2f GB/s sent by each rank",
                ranks.size(), bytes, seconds / times * 1000,
                static_cast<double>(bytes) * (ranks.size() - 1) * times / seconds / 1e9);
  say(line);
}

/// What on_failure tells the main thread.
struct Heard {
  std::mutex mutex;
  std::condition_variable event;
  std::optional<RankFailure> failure;
};

/// Until the test says so.
void wait_for_signal() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  int number = 0;
  sigwait(&signals, &number);
}

void act(const std::vector<std::string>& what, Communicator& ranks, Heard& heard) {
  if (what[0] == "ring") return ring(ranks);
  if (what[0] == "bench") return bench(ranks, std::stoul(what[1]), std::stoi(what[2]));
  if (what[0] == "throw" || what[0] == "fail") wait_for_signal();
  if (what[0] == "throw") throw std::runtime_error("this rank's own error");
  if (what[0] == "fail") return ranks.fail(what[1]);
  while (what[0] == "loop") exchange_with_all(ranks, std::vector<int>(10000, ranks.rank()));
  std::unique_lock lock(heard.mutex);
  heard.event.wait(lock, [&] { return heard.failure.has_value(); });
  lock.unlock();
  exchange_with_all(ranks, {1});  // throws what is known
}

void run(const std::vector<std::string>& what, std::map<std::string, std::string> flags) {
  Heard heard;
  RankGroupOptions options;
  options.launched = read_launch_environment();
  options.version = flags["--version"];
  if (flags.contains("--connect")) options.connect_seconds = std::stod(flags["--connect"]);
  if (flags.contains("--beat")) options.beat_seconds = std::stod(flags["--beat"]);
  if (flags.contains("--silence")) options.silence_seconds = std::stod(flags["--silence"]);
  options.on_failure = [&](const RankFailure& failure) {
    const std::scoped_lock lock(heard.mutex);
    heard.failure = failure;
    heard.event.notify_all();
  };
  const RankGroup group = connect_ranks(options);
  exchange_with_all(*group.ranks, {0});
  say("ready");
  act(what, *group.ranks, heard);
}

int main_of(std::vector<std::string> arguments) {
  std::map<std::string, std::string> flags;
  while (arguments.size() > 2 && arguments[arguments.size() - 2].starts_with("--")) {
    flags[arguments[arguments.size() - 2]] = arguments.back();
    arguments.resize(arguments.size() - 2);
  }
  int status = 0;
  std::thread([] {}).join();  // a sanitizer's own thread begins with the first
  const std::size_t descriptors = entries_of("/proc/self/fd"), threads = entries_of("/proc/self/task");
  try {
    run(arguments, flags);
    say("done");
  } catch (const CommunicationError& error) {
    const RankFailure& failure = error.failure();
    say("failed " + std::to_string(failure.rank) + " " + failure.host + ": " + failure.reason);
    status = 3;
  } catch (const std::exception& error) {
    say(std::string("error ") + error.what());
    status = 2;
  }
  // Rank 0 closes the listener that it inherited.
  if (entries_of("/proc/self/fd") <= descriptors && entries_of("/proc/self/task") == threads) say("clean");
  return status;
}

}  // namespace
}  // namespace bantam

int main(int argc, char** argv) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  sigprocmask(SIG_BLOCK, &signals, nullptr);  // before there are threads: only wait_for_signal() sees it
  return bantam::main_of({argv + 1, argv + argc});
}
