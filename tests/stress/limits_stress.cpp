// Two processes train on one device while their limits move at random; a third watches what the driver counts.
//
//   limits_stress [--seconds 3] [--device cpu|cuda:N] [--seed 1]
//
// Prints one JSON object, and exits with 0 where no sample was above a limit, no loss differed from the undisturbed
// run's, and no process failed. On a GPU the driver's figure for each process is sampled every 10 ms, or, where it does
// not say, the card's use beyond what was there before against the sum of the limits. On the CPU, where the pool alone
// is limited, each process samples its own.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bantam/base/json.h"
#include "bantam/memory/device/device.h"
#include "tests/stress/limits_trainer.h"

namespace bantam::stress {
namespace {

struct Arguments {
  double seconds = 3;
  Device device;
  std::uint64_t seed = 1;
  std::string role = "monitor";  // or "undisturbed", or a trainer's number
  int shared = -1;               // the descriptor of the shared block
};

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--seconds")
      arguments.seconds = std::stod(value);
    else if (flag == "--device")
      arguments.device = parse_device(value);
    else if (flag == "--seed")
      arguments.seed = std::stoull(value);
    else if (flag == "--role")
      arguments.role = value;
    else if (flag == "--shared")
      arguments.shared = std::stoi(value);
    else
      throw std::runtime_error("unknown flag " + flag);
  }
  return arguments;
}

/// A fresh process: a fork alone must not use CUDA where its parent has.
pid_t start(const Arguments& arguments, const std::string& role) {
  const std::vector<std::string> words = {"limits_stress",
                                          "--device",
                                          to_string(arguments.device),
                                          "--seed",
                                          std::to_string(arguments.seed),
                                          "--role",
                                          role,
                                          "--shared",
                                          std::to_string(arguments.shared)};
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execv("/proc/self/exe", argv.data());
    _exit(127);
  }
  return child;
}

bool succeeded(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

struct Watch {
  std::uint64_t samples = 0, violations = 0, by_process = 0, by_card = 0;
  std::int64_t least_headroom = std::numeric_limits<std::int64_t>::max();

  void note(std::uint64_t bytes, std::uint64_t bound) {
    ++samples;
    violations += bytes > bound ? 1 : 0;
    least_headroom = std::min(least_headroom, static_cast<std::int64_t>(bound) - static_cast<std::int64_t>(bytes));
  }
};

/// One look at the device. A limit may move during it: the larger of the bounds before and after holds.
void look(const SharedFacts& shared, Device device, const std::vector<pid_t>& children, std::uint64_t idle,
          Watch& watch) {
  std::uint64_t bounds = 0;
  bool all = true;
  for (std::size_t i = 0; i < children.size(); ++i) {
    const std::atomic<std::uint64_t>& bound = shared.trainers[i].bound;
    const std::uint64_t before = bound;
    const auto bytes = driver_process_bytes(device, children[i]);
    const std::uint64_t most = std::max<std::uint64_t>(before, bound);
    bounds += most;
    all = all && bytes.has_value();
    if (!bytes || most == 0) continue;
    watch.note(*bytes, most);
    ++watch.by_process;
  }
  if (all) return;
  const auto card = card_used_bytes(device);
  if (!card || bounds == 0 || *card < idle) return;
  watch.note(*card - idle, bounds);
  ++watch.by_card;
}

Watch watch_children(SharedFacts& shared, const Arguments& arguments, const std::vector<pid_t>& children,
                     std::uint64_t idle) {
  using Clock = std::chrono::steady_clock;
  Watch watch;
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(arguments.seconds));
  while (Clock::now() < end && !shared.stop) {
    if (arguments.device.is_cuda()) look(shared, arguments.device, children, idle, watch);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  shared.stop = true;
  return watch;
}

nlohmann::ordered_json describe(const TrainerFacts& trainer, bool ended_well) {
  return {{"runs", trainer.runs.load()},
          {"updates", trainer.runs.load() * kUpdates},
          {"mismatches", trainer.mismatches.load()},
          {"limit_changes", trainer.changes.load()},
          {"refused_limits", trainer.refusals.load()},
          {"log_lines", trainer.log_lines.load()},
          {"pool_samples", trainer.pool_samples.load()},
          {"pool_violations", trainer.pool_violations.load()},
          {"ended_well", ended_well && !trainer.failed},
          {"error", trainer.error.data()}};
}

int monitor(Arguments arguments) {
  if (arguments.device.is_cuda() && cuda_device_count() == 0) {
    fmt::print("no CUDA device: skipped\n");
    return 0;
  }
  arguments.shared = memfd_create("limits_stress", 0);
  SharedFacts& shared = map_shared(arguments.shared, true);
  const std::uint64_t idle = arguments.device.is_cuda() ? card_used_bytes(arguments.device).value_or(0) : 0;
  if (!succeeded(start(arguments, "undisturbed"))) throw std::runtime_error("the undisturbed run failed");
  std::vector<pid_t> children;
  for (int i = 0; i < kTrainers; ++i) children.push_back(start(arguments, std::to_string(i)));
  const Watch watch = watch_children(shared, arguments, children, idle);
  nlohmann::ordered_json json = {{"device", to_string(arguments.device)},    {"seconds", arguments.seconds},
                                 {"overhead_bytes", shared.overhead.load()}, {"pool_bytes", shared.pool.load()},
                                 {"driver_samples", watch.samples},          {"samples_by_process", watch.by_process},
                                 {"samples_of_card", watch.by_card},         {"driver_violations", watch.violations}};
  if (watch.samples > 0) json["least_headroom_bytes"] = watch.least_headroom;
  bool fine = watch.violations == 0 && (arguments.device.is_cpu() || watch.samples > 0);
  for (std::size_t i = 0; i < children.size(); ++i) {
    const TrainerFacts& trainer = shared.trainers[i];
    const bool well = succeeded(children[i]);
    fine = fine && well && !trainer.failed && trainer.mismatches == 0 && trainer.pool_violations == 0 &&
           trainer.runs > 0 && trainer.changes > 0 && trainer.pool_samples > 0;
    json["processes"].push_back(describe(trainer, well));
  }
  json["passed"] = fine;
  fmt::print("{}\n", json.dump());
  return fine ? 0 : 1;
}

int run(const Arguments& arguments) {
  if (arguments.role == "monitor") return monitor(arguments);
  SharedFacts& shared = map_shared(arguments.shared, false);
  if (arguments.role == "undisturbed") {
    run_undisturbed(shared, arguments.device);
    return 0;
  }
  const int trainer = std::stoi(arguments.role);
  run_disturbed(shared, trainer, arguments.device, arguments.seed * kTrainers + static_cast<std::uint64_t>(trainer));
  return 0;
}

}  // namespace
}  // namespace bantam::stress

int main(int argc, char** argv) {
  try {
    return bantam::stress::run(bantam::stress::parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "limits_stress: {}\n", error.what());
    return 2;
  }
}
