// A run that is served, disturbed and gone on with, again and again: its page is asked for by several clients, some of
// them slow or wrong, its memory limit moves, and a callback of the program throws at random updates.
//
//   serve_stress [--seconds 3] [--seed 1]
//
// Prints one JSON object, and exits with 0 where each run ended with the weights of an undisturbed one, every sound
// request was answered, and nothing failed but what was thrown. Built with ThreadSanitizer it finds races of training,
// its workers, the server and changes of limits.
#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/cli/train/run_server.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/train/train.h"
#include "tests/cli/http_client.h"

namespace bantam::stress {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kConfig = R"(version: 1
seed: 7
device: cpu
algorithms: "off"
data:
  format: generated
  train_samples: 256
  test_samples: 64
  pipeline: [{shuffle: {}}, {random_flip: {}}, {normalize: {scale: 0.0039}}, {batch: {size: 16}}, {prefetch: {depth: 2, workers: 2}}]
model:
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 8, kernel: 3, stride: 4, padding: same, bias: false}
    - batch_norm: {activation: relu}
    - flatten
    - dense: {units: 10}
train: {epochs: 4, log_every: 4, optimizer: {adam: {learning_rate: 2.0e-3}}}
checkpoint: {every: 8updates, min_interval: 0s, keep_last: 2}
memory: {limits: {cpu: 1GiB}}
log: {histograms: 8}
)";

struct Counts {
  std::atomic<std::int64_t> runs = 0, thrown = 0, mismatches = 0, limit_changes = 0, refusals = 0, requests = 0,
                            answers = 0, unanswered = 0;
};

/// The first failure of any thread ends the stress.
class Failure {
 public:
  void note(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = text;
    failed_ = true;
  }
  bool failed() const { return failed_; }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
  std::atomic<bool> failed_ = false;
};

/// The exception of a program's own callback.
struct Thrown : std::exception {
  const char* what() const noexcept override { return "a callback has thrown"; }
};

/// Moves the limit of the run under way in a thread of its own, also to one below live memory, which must be refused.
class LimitMover : public run::RunObserver {
 public:
  LimitMover(Counts& counts, Failure& failure, std::uint64_t seed)
      : counts_(counts), failure_(failure), random_(seed) {}
  ~LimitMover() override { end(); }

  void on_begin(const run::RunStart& start) override {
    stop_ = false;
    thread_ = std::thread([this, &runtime = start.runtime] { move(runtime); });
  }
  void on_trained() override { end(); }
  /// Ends the thread; where the run has thrown before it was trained, too.
  void end() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void move(Runtime& runtime) {
    constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
    const Device cpu = parse_device("cpu");
    try {
      while (!stop_) {
        if (random_() % 8 == 0) {
          try {
            runtime.set_limit(cpu, 1);
            throw Error("a limit below live memory was accepted");
          } catch (const OutOfMemory&) {
            ++counts_.refusals;
          }
        } else {
          runtime.set_limit(cpu, (256 + random_() % 1024) * kMiB);
          ++counts_.limit_changes;
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200 + random_() % 5000));
      }
    } catch (const std::exception& error) {
      failure_.note(error.what());
    }
  }

  Counts& counts_;
  Failure& failure_;
  std::mt19937_64 random_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// Throws at about one of eight reports of progress.
class Thrower : public Callback {
 public:
  Thrower(Counts& counts, std::uint64_t seed) : counts_(counts), random_(seed) {}
  bool observes() const override { return true; }
  void on_progress(const ProgressEvent& /*event*/) override {
    if (random_() % 8 != 0) return;
    ++counts_.thrown;
    throw Thrown();
  }

 private:
  Counts& counts_;
  std::mt19937_64 random_;
};

/// Sends requests one after another, until `stop`.
void ask(int port, std::uint64_t seed, const std::atomic<bool>& stop, Counts& counts) {
  std::mt19937_64 random(seed);
  const auto sound = [&](std::string_view method, std::string_view path) {
    cli::HttpClient client(port);
    ++counts.requests;
    client.send(fmt::format("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n", method, path, port));
    ++(client.receive(1 << 16).starts_with("HTTP/1.1 ") ? counts.answers : counts.unanswered);
  };
  const auto wrong = [&](std::string_view text) {  // a server may close such a connection without a word
    cli::HttpClient client(port);
    client.send(text);
    if (random() % 2 == 0) (void)client.receive(64, std::chrono::milliseconds(20));
  };
  while (!stop) {
    switch (random() % 8) {
      case 0:
        wrong("POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n" + std::string(5000, 'x'));
        break;
      case 1:
        wrong("GET /data.json HT");
        break;
      case 2:
        wrong(std::string(20000, 'a'));
        break;
      case 3:
        sound("HEAD", "/");
        break;
      case 4:
        sound("GET", "/");
        break;
      default:
        sound("GET", fmt::format("/data.json?seen={}", random() % 100));
    }
  }
}

class Stress {
 public:
  Stress(fs::path folder, std::uint64_t seed)
      : folder_(std::move(folder)), seed_(seed), config_(written_config(folder_)), thrower_(counts_, seed + 100) {
    run::train(config_, {.threads = 2, .folder = folder_ / "undisturbed"});
    weights_ = read_file(folder_ / "undisturbed/weights.safetensors");
  }

  int run(double seconds) {
    cli::RunServer server(0);
    std::atomic<bool> stop = false;
    std::vector<std::thread> clients;
    for (std::uint64_t i = 0; i < 4; ++i)
      clients.emplace_back([&, i] { ask(server.port(), seed_ + i, stop, counts_); });
    try {
      const auto end = Clock::now() + std::chrono::duration<double>(seconds);
      while (Clock::now() < end && !failure_.failed()) one_run(server);
    } catch (const std::exception& error) {
      failure_.note(error.what());
    }
    stop = true;
    for (std::thread& client : clients) client.join();
    return report();
  }

 private:
  /// Trains one run to its end; it is resumed as often as a callback has thrown.
  void one_run(cli::RunServer& server) {
    const fs::path folder = folder_ / fmt::format("run-{}", counts_.runs % 2);
    fs::remove_all(folder);
    LimitMover mover(counts_, failure_, seed_ + static_cast<std::uint64_t>(counts_.runs));
    Callback* const callbacks[] = {&thrower_};
    for (bool done = false; !done;) {
      try {
        if (fs::exists(folder / "config.yaml")) {
          const run::RunDirectory begun = run::RunDirectory::open(folder);
          server.follow(folder);
          run::train(run::read_run_config(begun.config(), {}), {.threads = 2}, callbacks,
                     {.observer = &mover, .resume = &begun});
        } else {
          server.follow(folder);
          run::train(config_, {.threads = 2, .folder = folder, .overwrite = true}, callbacks, {.observer = &mover});
        }
        done = true;
      } catch (const Thrown&) {
        mover.end();
      }
    }
    ++counts_.runs;
    if (read_file(folder / "weights.safetensors") != weights_) ++counts_.mismatches;
  }

  static run::RunConfig written_config(const fs::path& folder) {
    std::ofstream(folder / "stress.yaml") << kConfig;
    return run::read_run_config(folder / "stress.yaml", {});
  }

  int report() const {
    const bool ok = !failure_.failed() && counts_.mismatches == 0 && counts_.unanswered == 0 && counts_.runs > 0;
    const nlohmann::ordered_json json = {{"runs", counts_.runs.load()},
                                         {"thrown", counts_.thrown.load()},
                                         {"other_weights", counts_.mismatches.load()},
                                         {"limit_changes", counts_.limit_changes.load()},
                                         {"limits_refused", counts_.refusals.load()},
                                         {"requests", counts_.requests.load()},
                                         {"answers", counts_.answers.load()},
                                         {"unanswered", counts_.unanswered.load()},
                                         {"error", failure_.text()},
                                         {"ok", ok}};
    fmt::print("{}\n", json.dump());
    return ok ? 0 : 1;
  }

  fs::path folder_;
  std::uint64_t seed_;
  run::RunConfig config_;
  std::string weights_;
  Counts counts_;
  Failure failure_;
  Thrower thrower_;
};

int run_stress(int argc, char** argv) {
  double seconds = 3;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--seconds")
      seconds = std::stod(value);
    else if (flag == "--seed")
      seed = std::stoull(value);
    else
      throw std::runtime_error("unknown flag " + flag);
  }
  const fs::path folder = make_temporary_folder("bantam-serve-stress-");
  int code = 1;
  try {
    code = Stress(folder, seed).run(seconds);
  } catch (const std::exception& error) {
    fmt::print(stderr, "serve_stress: {}\n", error.what());
  }
  fs::remove_all(folder);
  return code;
}

}  // namespace
}  // namespace bantam::stress

int main(int argc, char** argv) { return bantam::stress::run_stress(argc, argv); }
