// Only bantam::Error and std::bad_alloc leave public calls, whichever allocation fails: the n-th operator new, and the
// n-th request to a device's source of memory, each for many n. Afterwards nothing is live that was not before, and the
// same training has the bits that it always has. Every n where BANTAM_EVERY_ALLOCATION is set (nightly).
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <typeinfo>
#include <vector>

#include <gtest/gtest.h>

#include "tests/public/fail_each.h"
#include "tests/public/small_training.h"

#if defined(__SANITIZE_ADDRESS__)
// oneDNN 2.6 loses what it had made of a primitive where an allocation of its own fails: not ours to free.
extern "C" __attribute__((visibility("default"))) const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libdnnl"; }
#endif

namespace bantam::failing_memory_test {
namespace {

using testing::Ended;
using testing::ended;
using testing::Left;

/// Throws nothing itself: what leaves `work` is judged.
void fail_each(const char* name, int trials, const std::function<void()>& work, Left left = Left::nothing) {
  testing::fail_each(
      name, trials, [&](std::string& what) { return testing::ended(work, what); }, left);
}

/// Trains two updates in a runtime of its own; throws where they have not the bits of the first time.
std::function<void()> training(const Graph& graph) {
  return [graph, expected = std::make_shared<std::vector<float>>()] {
    Runtime runtime({.threads = 1});
    const std::vector<float> weights = testing::train_network(runtime, Device::cpu(), graph, 2, 1);
    if (expected->empty()) *expected = weights;
    if (weights != *expected) throw std::logic_error("other bits");
  };
}

/// A network in which nothing is oneDNN's.
Graph own_kernels() {
  Graph graph({8, 8, 2});
  graph.add("depthwise", depthwise_conv2d({.padding = Padding::same()}));
  graph.add("norm", batch_norm({.activation = {Activation::relu}}));
  graph.add("pool", max_pool());
  graph.add("flat", flatten());
  graph.add("head", dense({.units = 3}));
  return graph;
}

TEST(FailingMemory, MakingAndTraining) { fail_each("make and train", 500, training(own_kernels())); }

TEST(FailingMemory, TrainingWithConvolutions) {
  fail_each("convolutions", 500, training(testing::small_network()), Left::anything);
}

TEST(FailingMemory, Configurations) {
  fail_each("read and plan", 300, [] {
    const run::Config config = run::Config::from_text(testing::kSmallRun, "memory.yaml");
    run::plan(config);
  });
}

TEST(FailingMemory, Files) {
  const testing::ScratchPath file("failing_memory");
  Runtime runtime({.threads = 1});
  Model model(runtime, Device::cpu(), testing::small_network(), {.seed = 1});
  fail_each("save and load", 300, [&] {
    save_weights(model, file.path());
    load_weights(model, file.path());
  });
}

TEST(FailingMemory, Predictors) {
  const testing::ScratchPath file("failing_predictor");
  Runtime runtime({.threads = 1});
  {
    Model model(runtime, Device::cpu(), own_kernels(), {.seed = 1});
    save_weights(model, file.path());
  }
  const SafetensorsFile weights = read_safetensors(file.path());
  fail_each("predict", 300, [&] {
    Predictor predictor(runtime, Device::cpu(), own_kernels(), weights, {.most_batch = 4});
    std::vector<float> inputs(5 * 128), outputs(5 * 3);
    predictor.predict(inputs, outputs);
  });
}

TEST(FailingMemory, WholeRuns) {
  const testing::ScratchPath folder("failing_run");
  // Other threads save and log: what they allocate is freed, but not at once.
  fail_each(
      "train a run", 150,
      [&] {
        std::filesystem::remove_all(folder.path());
        run::train(run::Config::from_text(testing::kSmallRun, "memory.yaml"), {.threads = 1, .folder = folder.path()});
      },
      Left::anything);
}

/// Host memory of which the n-th request and all after it are refused.
class Refusing : public RegionSource {
 public:
  explicit Refusing(int& left) : left_(left) {}
  const char* name() const override { return "refusing"; }
  void* acquire(std::size_t bytes) override { return left_-- <= 0 ? nullptr : inner_->acquire(bytes); }
  void release(void* address, std::size_t bytes) noexcept override { inner_->release(address, bytes); }

 private:
  int& left_;
  std::unique_ptr<RegionSource> inner_ = make_host_source();
};

TEST(FailingMemory, SourcesOfDevices) {
  Runtime undisturbed;
  const std::vector<float> expected = testing::train_small(undisturbed, Device::cpu(), 3);
  int refused = 0;
  for (int granted = 0; refused == granted; ++granted) {  // until all requests are granted
    int left = granted;
    Runtime runtime({.source = [&](Device) { return std::make_unique<Refusing>(left); }});
    std::string what;
    const Ended end = ended([&] { testing::train_small(runtime, Device::cpu(), 3); }, what);
    ASSERT_TRUE(end == Ended::well || end == Ended::error) << granted << " requests granted: " << what;
    if (end == Ended::error) {
      ++refused;
      EXPECT_EQ(runtime.memory_report(Device::cpu()).stats.in_use_bytes, 0u) << granted << " requests granted";
    }
    left = std::numeric_limits<int>::max();
    EXPECT_EQ(testing::train_small(runtime, Device::cpu(), 3), expected) << "after " << granted << " requests";
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace bantam::failing_memory_test
