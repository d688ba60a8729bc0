// The libraries leave the process as it is: no byte on standard output or error unless a log sink is set, and signal
// handlers, locale, folder, environment, floating-point state and umask stay, whether training ends well or fails.
#include <array>
#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xmmintrin.h>

#include "bantam/base/atomic_file.h"
#include "tests/public/small_training.h"

namespace bantam::silence_test {
namespace {

/// What is written to file descriptors 1 and 2 while the object lives.
class Captured {
 public:
  Captured() : file_("silence") {
    std::fflush(nullptr);
    const int to = open(file_.path().c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      saved_[static_cast<std::size_t>(stream)] = dup(stream);
      dup2(to, stream);
    }
    close(to);
  }
  ~Captured() { end(); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  std::string end() {
    std::fflush(nullptr);
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
      int& saved = saved_[static_cast<std::size_t>(stream)];
      if (saved < 0) continue;
      dup2(saved, stream);
      close(saved);
      saved = -1;
    }
    return std::filesystem::exists(file_.path()) ? read_file(file_.path()) : "";
  }

 private:
  testing::ScratchPath file_;
  std::array<int, 3> saved_{-1, -1, -1};
};

/// What a library could change behind its user's back.
struct ProcessState {
  std::vector<void*> handlers;
  std::string locale = std::setlocale(LC_ALL, nullptr), folder = std::filesystem::current_path().string();
  std::vector<std::string> environment;
  int rounding = std::fegetround();
  unsigned flush_to_zero = _mm_getcsr() & 0x8040u;  // FTZ and DAZ
  mode_t mask = 0;
  bool operator==(const ProcessState&) const = default;
};

ProcessState process_state() {
  ProcessState state;
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0) state.handlers.push_back(reinterpret_cast<void*>(now.sa_handler));
  }
  for (char** variable = environ; *variable != nullptr; ++variable) state.environment.emplace_back(*variable);
  state.mask = umask(0);
  umask(state.mask);
  return state;
}

run::Config config(const std::vector<std::string>& overrides = {}) {
  return run::Config::from_text(testing::kSmallRun, "silence.yaml", overrides);
}

/// Training that ends well, and every way to fail that a program meets: each must throw.
void use_everything() {
  const testing::ScratchPath folder("silence_run");
  run::plan(config());
  run::train(config(), {.threads = 2, .folder = folder.path(), .overwrite = true});
  EXPECT_THROW(run::resume(folder.path() / "nothing"), DataError);
  EXPECT_THROW(config({"train.epoch=3"}), ConfigError);
  EXPECT_THROW(run::train(config({"data.format=idx", "data.path=/nonexistent"}), {.folder = folder.path() / "x"}),
               Error);
  // The learning rate is far too high: the loss is soon not finite.
  EXPECT_THROW(run::train(config({"train.optimizer.adam.learning_rate=1e30", "train.epochs=20"}),
                          {.folder = folder.path() / "diverges"}),
               NotFiniteError);
  Runtime tight({.limits = {{"cpu", 64u << 10}}});
  EXPECT_THROW(testing::train_small(tight, Device::cpu(), 1), OutOfMemory);
  Runtime runtime;
  Model model(runtime, Device::cpu(), testing::small_network(), {.seed = 1});
  EXPECT_THROW(load_weights(model, folder.path() / "missing.safetensors"), DataError);
  EXPECT_THROW(runtime.allocator(Device::cuda(77)), DeviceError);
}

TEST(Silence, ThisTestHearsWhatIsPrinted) {
  Captured captured;
  std::fputs("out", stdout);
  std::fputs("err", stderr);
  const std::string heard = captured.end();
  EXPECT_NE(heard.find("out"), std::string::npos);
  EXPECT_NE(heard.find("err"), std::string::npos);
}

TEST(Silence, NothingIsPrintedAndTheProcessStaysAsItIs) {
  const ProcessState before = process_state();
  Captured captured;
  use_everything();
  EXPECT_EQ(captured.end(), "");
  const ProcessState after = process_state();
  EXPECT_EQ(after.handlers, before.handlers);
  EXPECT_EQ(after.environment, before.environment);
  EXPECT_TRUE(after == before);
}

TEST(Silence, ALogSinkHearsWhatWouldBeSaid) {
  struct OnHost : Layer {  // a layer that cannot be planned beforehand: the log says so
    std::string_view kind() const override { return "on_host"; }
    Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
    std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
      struct Bound : BoundLayer {
        Tensor forward(const Context&, std::span<Tensor> inputs) override { return inputs[0]; }
      };
      return std::make_unique<Bound>();
    }
  };
  std::vector<std::string> lines;
  Captured captured;
  {
    Runtime runtime({.log = [&](std::string_view line) { lines.emplace_back(line); }});
    Graph graph({4});
    graph.add("own", std::make_shared<OnHost>());
    graph.add(dense({.units = 2}));
    Model model(runtime, Device::cpu(), graph, {.seed = 1});
    Optimizer optimizer(model, {});
    TrainingStep(model, optimizer, {}).prepare({.batches = {4}});
  }
  EXPECT_EQ(captured.end(), "");
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines[0].find("own"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace bantam::silence_test
