// Recorded updates: slices in order within their update, updates end to end, every kernel call in one of them.
#include "bantam/run/explain/step_recording.h"

#include <set>

#include "bantam/base/error.h"
#include "bantam/engine/step/random_batch.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::run::step_recording_test {
namespace {

using kernels::KernelPhase;

class StepRecordingTest : public testing::EngineTest {
 protected:
  StepRecording record(const RecordingOptions& options) {
    Graph graph({32, 32, 16});
    graph.add("conv", conv2d({.filters = 32, .padding = Padding::same(), .bias = false}));
    graph.add("norm", batch_norm({.activation = {Activation::relu}}));
    graph.add("pool", global_average_pool());
    graph.add("head", dense({.units = 5}));
    Model model(runtime(), device(), graph, {.precision = parse_precision("auto", device())});
    Optimizer optimizer(model, {});
    TrainingStep step(model, optimizer, {});
    step.prepare({.batches = {64}});
    StepRecording recording =
        record_updates(step, random_batch(model, 64, philox_key(1, RandomPurpose::dataset)), options);
    EXPECT_EQ(runtime().exec(device()).log, nullptr) << "no log stays behind";
    EXPECT_EQ(step.unsynchronised_metrics(), 0);
    return recording;
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(StepRecordingTest);

TEST_P(StepRecordingTest, DividesTheTimeOfEachUpdate) {
  const StepRecording recording = record({.warm_ups = 2, .updates = 4});
  ASSERT_EQ(recording.updates.size(), 4u);
  std::int64_t end = 0;
  for (const RecordedUpdate& update : recording.updates) {
    EXPECT_EQ(update.begin_ns, end) << "updates follow each other";
    EXPECT_GT(update.end_ns, update.begin_ns);
    std::int64_t covered = update.begin_ns;
    std::set<std::pair<std::string, KernelPhase>> seen;
    for (const StepSlice& slice : update.slices) {
      EXPECT_GE(slice.begin_ns, covered) << slice.kernel;
      EXPECT_GE(slice.end_ns, slice.begin_ns) << slice.kernel;
      covered = slice.end_ns;
      seen.insert({slice.owner, slice.phase});
    }
    EXPECT_LE(covered, update.end_ns);
    for (const char* layer : {"conv", "norm", "head"}) {
      EXPECT_TRUE(seen.contains({layer, KernelPhase::forward})) << layer;
      EXPECT_TRUE(seen.contains({layer, KernelPhase::backward})) << layer;
    }
    EXPECT_TRUE(seen.contains({"optimizer", KernelPhase::update}));
    end = update.end_ns;
  }
  EXPECT_GT(recording.plain_seconds, 0);
}

TEST_P(StepRecordingTest, EachUpdateHasTheSameCallsAndWork) {
  const StepRecording recording = record({.accumulate = 2, .warm_ups = 2, .updates = 3});
  const auto sums = [](const RecordedUpdate& update) {
    std::int64_t calls = 0, bytes = 0;
    for (const StepSlice& slice : update.slices) calls += slice.begins_call ? 1 : 0, bytes += slice.work.bytes;
    return std::pair(calls, bytes);
  };
  ASSERT_FALSE(recording.updates.empty());
  EXPECT_GT(sums(recording.updates[0]).second, 0);
  for (const RecordedUpdate& update : recording.updates) EXPECT_EQ(sums(update), sums(recording.updates[0]));
}

TEST_P(StepRecordingTest, SaysHowItMeasured) {
  const StepRecording recording = record({.warm_ups = 1, .updates = 2});
  if (device().is_cpu()) {
    EXPECT_EQ(recording.method, RecordingMethod::host_clock);
    EXPECT_TRUE(recording.why_not_traced.empty());
    EXPECT_FALSE(recording.threads.empty()) << "the runtime has two threads";
    return;
  }
  if (!recording.why_not_traced.empty()) {
    EXPECT_EQ(recording.method, RecordingMethod::device_events);
    GTEST_SKIP() << recording.why_not_traced;  // no CUPTI here, or a tool such as compute-sanitizer has it already
  }
  EXPECT_EQ(recording.method, RecordingMethod::driver_trace);
  EXPECT_TRUE(recording.threads.empty());
  EXPECT_EQ(recording.updates_a_launch, 2) << "small batches: both in one launch";
  for (const StepSlice& slice : recording.updates[0].slices) EXPECT_FALSE(slice.device_kernel.empty()) << slice.kernel;
}

/// What a GPU without CUPTI does, on every one.
TEST_P(StepRecordingTest, EventsTimeTheSameCalls) {
  const StepRecording traced = record({.warm_ups = 2, .updates = 2});
  const StepRecording timed = record({.warm_ups = 2, .updates = 2, .driver_trace = false});
  EXPECT_EQ(timed.method, device().is_cuda() ? RecordingMethod::device_events : RecordingMethod::host_clock);
  const auto calls = [](const StepRecording& recording) {
    std::vector<std::string> kernels;
    for (const StepSlice& slice : recording.updates[0].slices)
      if (slice.begins_call && !slice.kernel.empty()) kernels.push_back(slice.owner + " " + slice.kernel);
    return kernels;
  };
  EXPECT_EQ(calls(traced), calls(timed));
  double seconds = 0;
  for (const RecordedUpdate& update : timed.updates)
    seconds += 1e-9 * static_cast<double>(update.end_ns - update.begin_ns);
  EXPECT_GT(seconds, 0);
}

TEST(StepRecording, FiguresAreOfTheFasterHalfWhereTheMachineIsShared) {
  StepRecording recording{
      .updates = {{.begin_ns = 0, .end_ns = 30}, {.begin_ns = 30, .end_ns = 40}, {.begin_ns = 40, .end_ns = 60}}};
  const std::vector<const RecordedUpdate*> typical = recording.typical_updates();
  ASSERT_EQ(typical.size(), 2u);
  EXPECT_EQ(typical[0], &recording.updates[1]);
  EXPECT_EQ(typical[1], &recording.updates[2]);
  recording.method = RecordingMethod::driver_trace;
  EXPECT_EQ(recording.typical_updates().size(), 3u);
}

TEST_P(StepRecordingTest, RefusesMoreThanTheMetricsHaveRoomFor) {
  EXPECT_THROW((void)record({.warm_ups = 150, .updates = 100}), Error);
  EXPECT_THROW((void)record({.updates = 0}), Error);
}

}  // namespace
}  // namespace bantam::run::step_recording_test
