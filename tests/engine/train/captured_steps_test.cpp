// Captured steps without a CUDA device: names of modes, what is warmed up, and where metrics go after a loaded state.
#include "bantam/engine/train/captured_steps.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/engine/train/safetensors.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::captured_steps_test {
namespace {

TEST(StepModeTest, what_cannot_be_captured_is_planned) {
  const Device stand_in = Device::meta_of(Device::cuda(0));
  for (const char* text : {"auto", "captured"}) {
    EXPECT_EQ(parse_step_mode(text, Device::cpu()), StepMode::planned) << text;
    EXPECT_EQ(parse_step_mode(text, Device::cuda(0)), StepMode::captured) << text;
    EXPECT_EQ(parse_step_mode(text, stand_in), StepMode::captured) << text;
  }
  EXPECT_EQ(parse_step_mode("planned", Device::cuda(0)), StepMode::planned);
  EXPECT_EQ(parse_step_mode("eager", Device::cuda(0)), StepMode::eager);
  EXPECT_THROW((void)parse_step_mode("graph", Device::cuda(0)), ConfigError);
}

/// Batches of a stand-in; counts those that were asked for.
class CountedBatches : public DeviceBatches {
 public:
  CountedBatches(const Model& model, std::int64_t left) : batch_(allocate_batch(model, 4)), left_(left) {}
  std::int64_t left() const override { return left_; }
  std::int64_t most_at_once() const override { return 8; }
  Batch make(const Context&, std::int64_t, std::int64_t) override {
    ++made;
    return batch_;
  }
  void advance(std::int64_t count) override { left_ -= count; }
  std::int64_t made = 0;

 private:
  Batch batch_;
  std::int64_t left_;
};

TEST(CapturedStepsTest, the_warm_up_uses_no_batches_that_are_not_there) {
  Runtime runtime({.threads = 1});
  Model model(runtime, Device::meta_of(Device::cuda(0)), testing::small_network(), {.seed = 2});
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  CountedBatches enough(model, 2), too_few(model, 1), none(model, 0);
  const CapturedSteps warm(step, enough, 2), cold(step, too_few, 2), at_the_end(step, none, 1);
  EXPECT_EQ(enough.made, 2);
  EXPECT_EQ(too_few.made, 0);
  EXPECT_EQ(none.made, 0);
}

TEST(CapturedStepsTest, a_damaged_state_keeps_metrics_in_their_ring) {
  Runtime runtime({.threads = 1});
  Model model(runtime, Device::cpu(), testing::small_network(), {.seed = 2});
  Optimizer optimizer(model, {});
  StateRegistry state;
  optimizer.register_state(state);
  const auto entry = std::ranges::find(state.tensors(), "optimizer/control", &StateEntry::name);
  const std::filesystem::path file =
      std::filesystem::path(::testing::TempDir()) / ("captured_steps" + std::to_string(::getpid()));
  for (const std::int32_t slot : {-1, kernels::kMetricSlots, 17}) {
    kernels::UpdateControl control = optimizer.control();
    control.metric_slot = slot;
    std::memcpy(entry->tensor.data(), &control, sizeof(control));
    save_state(state, runtime.stream(Device::cpu()), file);
    load_state(state, runtime.stream(Device::cpu()), file);
    EXPECT_EQ(optimizer.metric_slot(), std::clamp(slot, 0, kernels::kMetricSlots - 1));
    EXPECT_EQ(optimizer.control().metric_slot, optimizer.metric_slot());
  }
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace bantam::captured_steps_test
