// Copies of a state: of their moment, readable as state and as weights.
#include "bantam/engine/train/state_snapshot.h"

#include <filesystem>

#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::state_snapshot_test {
namespace {

using testing::EngineTest;
namespace fs = std::filesystem;

class StateSnapshotTest : public EngineTest {
 protected:
  StateSnapshotTest() { fs::create_directories(folder_); }
  ~StateSnapshotTest() override { fs::remove_all(folder_); }
  fs::path file(const char* name) const { return folder_ / name; }
  fs::path folder_ = fs::path(::testing::TempDir()) / ("state_snapshot" + std::to_string(::getpid()));
};
BANTAM_INSTANTIATE_ON_DEVICES(StateSnapshotTest);

struct Trained {
  Trained(Runtime& runtime, Device device, std::uint64_t seed)
      : model(runtime, device, testing::small_network(), {.precision = {PrecisionKind::mixed_float16}, .seed = seed}),
        optimizer(model, {}),
        step(model, optimizer, {}) {
    model.register_state(registry);
    optimizer.register_state(registry);
    registry.add_counter(
        "updates", [this] { return updates; }, [this](std::int64_t value) { updates = value; });
    registry.add_numbers(
        "sums", [this] { return sums; }, [this](const std::vector<double>& numbers) { sums = numbers; });
  }
  void train(int first, int steps) {
    for (int i = first; i < first + steps; ++i)
      step.step(testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, i * 8, 8));
    updates += steps;
    sums.push_back(0.1 * first);
  }
  std::vector<float> weights() {
    return to_host<float>(model.parameters().master(), model.runtime().stream(model.device()));
  }
  Model model;
  Optimizer optimizer;
  TrainingStep step;
  StateRegistry registry;
  std::int64_t updates = 0;
  std::vector<double> sums;
};

TEST_P(StateSnapshotTest, IsOfItsMoment) {
  Trained run(runtime(), device(), 1);
  StateSnapshot snapshot(run.registry, runtime(), device());
  for (int round = 0; round < 2; ++round) {  // the memory is used twice
    run.train(10 * round, 2);
    const std::vector<float> then = run.weights();
    const std::int64_t updates = run.updates;
    const std::vector<double> sums = run.sums;
    save_state(run.registry, runtime().stream(device()), file("then"));
    snapshot.copy();
    snapshot.read_host();
    run.train(50, 2);  // goes on while the copy is under way
    snapshot.wait();
    EXPECT_TRUE(snapshot.done());
    ASSERT_NE(run.weights(), then);
    AtomicFile written(file("state"));
    snapshot.write(written);
    written.commit();
    EXPECT_EQ(read_file(file("state")), read_file(file("then"))) << "the bytes of a state that waits for the device";
    Trained other(runtime(), device(), 2);
    load_state(other.registry, runtime().stream(device()), file("state"));
    EXPECT_EQ(other.weights(), then);
    EXPECT_EQ(other.updates, updates);
    EXPECT_EQ(other.sums, sums);
  }
}

TEST_P(StateSnapshotTest, ItsWeightsAreAModels) {
  Trained run(runtime(), device(), 1);
  run.train(0, 2);
  StateSnapshot snapshot(run.registry, runtime(), device());
  snapshot.copy();
  snapshot.read_host();
  snapshot.wait();
  AtomicFile written(file("weights"));
  snapshot.write_weights(written);
  written.commit();
  save_weights(run.model, file("expected"));
  EXPECT_EQ(read_file(file("weights")), read_file(file("expected")));
  Trained other(runtime(), device(), 2);
  load_weights(other.model, file("weights"));
  EXPECT_EQ(other.weights(), run.weights());
  EXPECT_EQ(other.updates, 0);
}

TEST_P(StateSnapshotTest, ItsMemoryIsForAllTensors) {
  Trained run(runtime(), device(), 1);
  std::uint64_t bytes = 0;
  for (const StateEntry& entry : run.registry.tensors()) bytes += entry.tensor.bytes();
  EXPECT_GE(StateSnapshot::bytes_of(run.registry), bytes);
  EXPECT_LE(StateSnapshot::bytes_of(run.registry), bytes + 64 * (run.registry.tensors().size() + 1));
  Model meta(runtime(), Device::meta_of(device()), testing::small_network(), {});
  StateRegistry registry;
  meta.register_state(registry);
  EXPECT_THROW(StateSnapshot(registry, runtime().stream(device())), DeviceError);
}

}  // namespace
}  // namespace bantam::state_snapshot_test
