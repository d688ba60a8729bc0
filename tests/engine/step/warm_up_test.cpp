// A warm-up changes nothing: not a bit of weights, state, statistics, metrics, or of what comes after it.
#include <cstring>

#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/step/training_step.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing::warm_up_test {
namespace {

/// A model in training, and everything about it that a warm-up could change.
struct TrainedModel {
  TrainedModel(Runtime& runtime, Device device, OptimizerOptions options, LossOptions loss = {},
               std::vector<ParameterGroup> groups = {})
      : model(runtime, device, small_network(), {.seed = 3, .groups = std::move(groups)}),
        optimizer(model, options),
        step(model, optimizer, std::move(loss)) {
    model.register_state(state);
    optimizer.register_state(state);
  }
  Batch batch(std::int64_t first, std::int64_t size) {
    const Context context = Context::make(model.runtime(), model.device());
    return make_batch(context, model.graph().input_shape(), 5, first, size);
  }
  std::vector<float> bits() {
    const Stream stream = model.runtime().stream(model.device());
    std::vector<float> all;
    const auto add = [&](const Tensor& tensor) {
      const std::vector<float> values = to_host_floats(tensor, stream);
      all.insert(all.end(), values.begin(), values.end());
    };
    add(model.parameters().master());
    add(model.buffers().current());
    add(model.buffers().next());
    for (const StateEntry& entry : state.tensors())
      if (entry.tensor.dtype() == DType::float32) add(entry.tensor);
    const kernels::UpdateControl control = optimizer.control();
    const auto* bytes = reinterpret_cast<const unsigned char*>(&control);
    all.insert(all.end(), bytes, bytes + sizeof(control));
    return all;
  }

  Model model;
  Optimizer optimizer;
  TrainingStep step;
  StateRegistry state;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class WarmUpTest : public EngineTest {
 protected:
  void expect_nothing_changes(OptimizerOptions options, const LossOptions& loss = {},
                              const std::vector<ParameterGroup>& groups = {}) {
    TrainedModel plain(runtime(), device(), options, loss, groups), warmed(runtime(), device(), options, loss, groups);
    warmed.step.warm_up(6, true);
    for (std::int64_t update = 0; update < 3; ++update) {
      for (TrainedModel* run : {&plain, &warmed}) {
        run->step.evaluate(run->batch(100, 4));  // sums that are not read yet
        run->step.micro_batch(run->batch(update * 8, 4), 0, 8);
        run->step.micro_batch(run->batch(update * 8 + 4, 4), 4, 8);
        run->step.update();
      }
      const std::vector<float> before = warmed.bits();
      warmed.step.warm_up(4, update == 1);
      EXPECT_TRUE(same_bits(before, warmed.bits())) << "update " << update;
    }
    EXPECT_TRUE(same_bits(plain.bits(), warmed.bits()));
    const auto metrics = plain.step.read_metrics(), again = warmed.step.read_metrics();
    ASSERT_EQ(metrics.size(), 3u);
    ASSERT_EQ(again.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(metrics[i].loss, again[i].loss);
      EXPECT_EQ(metrics[i].samples, again[i].samples);
    }
    const Metrics evaluation = plain.step.read_evaluation(), same = warmed.step.read_evaluation();
    EXPECT_EQ(evaluation.samples, 12);
    EXPECT_EQ(evaluation.loss, same.loss);
    EXPECT_EQ(evaluation.samples, same.samples);
  }
};
BANTAM_INSTANTIATE_ON_DEVICES(WarmUpTest);

TEST_P(WarmUpTest, ChangesNothingUnderAdam) {
  expect_nothing_changes({.rule = adam({.learning_rate = 0.01f}), .clip_norm = 1.0f});
}

TEST_P(WarmUpTest, ChangesNothingOfEvaluationsWithViews) {
  expect_nothing_changes({.rule = adam({.learning_rate = 0.01f})}, {.views = EvaluationViews{.share = 0.5}});
  expect_nothing_changes({.rule = adam({.learning_rate = 0.01f})},
                         {.views = EvaluationViews{.padding = 1, .crops = {{0, 1}}}});
}

TEST_P(WarmUpTest, ChangesNothingUnderMomentum) {
  expect_nothing_changes({.rule = sgd({.learning_rate = 0.01f, .momentum = 0.9f, .nesterov = true})});
}

TEST_P(WarmUpTest, ChangesNothingOfAveragesAndMasks) {
  expect_nothing_changes({.rule = adam({.learning_rate = 0.01f}),
                          .ema = EmaOptions{.decay = 0.5},
                          .prune = PruneOptions{.end = 3, .frequency = 1}});
}

TEST_P(WarmUpTest, ChangesNothingUnderRulesWithNorms) {
  expect_nothing_changes({.rule = lamb({.learning_rate = 0.01f}), .clip_value = 0.1f});
  expect_nothing_changes({.rule = muon({.learning_rate = 0.01f, .momentum = 0.9f})});
}

// The check for gradients that are not finite leaves out what is frozen for now, here the first parameters.
TEST_P(WarmUpTest, ChangesNothingWhereTheFirstParametersAreFrozenForNow) {
  const std::vector<ParameterGroup> first = {{.match = "stem*", .freeze = true, .frozen_updates = 2}},
                                    all = {{.match = "*", .freeze = true, .frozen_updates = 2}};
  expect_nothing_changes({.rule = adam({.learning_rate = 0.01f, .weight_decay = 0.01f})}, {}, first);
  expect_nothing_changes({.rule = sgd({.learning_rate = 0.01f, .weight_decay = 0.01f, .momentum = 0.9f})}, {}, first);
  expect_nothing_changes({.rule = muon({.learning_rate = 0.01f, .momentum = 0.9f})}, {}, first);
  expect_nothing_changes({.rule = adam({.learning_rate = 0.01f}), .prune = PruneOptions{.end = 3, .frequency = 1}}, {},
                         all);
}

TEST_P(WarmUpTest, IsRefusedWithinAnUpdateAndReleasesItsMemory) {
  TrainedModel run(runtime(), device(), {});
  const std::uint64_t before = runtime().allocator(device()).stats().in_use_bytes;
  run.step.warm_up(4, false);
  EXPECT_EQ(runtime().allocator(device()).stats().in_use_bytes, before);
  const Batch batch = run.batch(0, 4);
  run.step.micro_batch(batch, 0, 4);
  EXPECT_THROW(run.step.warm_up(4, false), Error);
  run.step.update();
}

// What is left of the pool decides which micro_batch is warmed up; whatever it is, nothing changes, and none is no
// error.
TEST_P(WarmUpTest, RunsTheLargestMicroBatchThatFits) {
  const std::int64_t batch = device().is_cuda() ? 4096 : 64;
  const std::uint64_t pool = device().is_cuda() ? 1024u << 20 : 16u << 20;
  Runtime crowded({.threads = 2, .budgets = {{to_string(device()), pool}}});
  BfcAllocator& memory = crowded.allocator(device());
  TrainedModel run(crowded, device(), {.rule = adam({.learning_rate = 0.01f})});
  const std::vector<float> before = run.bits();
  const std::uint64_t resting = memory.stats().in_use_bytes;
  memory.reset_peak();
  EXPECT_EQ(warm_up_what_fits(run.step, batch, false), batch);
  const std::uint64_t need = memory.stats().peak_bytes - resting;
  const auto keep_free = [&](std::uint64_t bytes) {
    memory.trim();
    return Context::make(crowded, device()).allocate({static_cast<std::int64_t>(pool - resting - bytes)}, DType::uint8);
  };
  {
    const Tensor ballast = keep_free(need * 7 / 10);
    EXPECT_THROW(run.step.warm_up(batch, false), OutOfMemory) << "the ballast does make a difference";
    const std::int64_t micro_batch = warm_up_what_fits(run.step, batch, false);
    EXPECT_GT(micro_batch, 0);
    EXPECT_LT(micro_batch, batch);
    EXPECT_EQ(batch % micro_batch, 0);
  }
  {
    const Tensor ballast = keep_free(512);
    EXPECT_EQ(warm_up_what_fits(run.step, batch, true), 0);
  }
  EXPECT_EQ(memory.stats().in_use_bytes, resting);
  EXPECT_TRUE(same_bits(before, run.bits()));
  run.step.step(run.batch(0, 8));
  EXPECT_EQ(run.step.read_metrics().size(), 1u);
}

}  // namespace
}  // namespace bantam::testing::warm_up_test
