// Models in training: accumulation, running statistics, the meta stand-in.
#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::model_test {
namespace {

using testing::EngineTest;

class ModelTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(ModelTest);

/// A model with its optimizer and step, on small_network.
struct Trained {
  Trained(Runtime& runtime, Device device, ModelOptions options, bool norms = true,
          OptimizerOptions optimizer_options = {})
      : model(runtime, device, testing::small_network(norms), options),
        optimizer(model, optimizer_options),
        step(model, optimizer, {}) {}
  Batch batch(std::int64_t first, std::int64_t samples) {
    return testing::make_batch(model.context(Pass::train), {8, 8, 3}, 5, first, samples);
  }
  std::vector<float> floats(const Tensor& tensor) {
    return to_host<float>(tensor, model.runtime().stream(model.device()));
  }

  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

const PrecisionKind kPrecisions[] = {PrecisionKind::float32, PrecisionKind::mixed_float16,
                                     PrecisionKind::mixed_bfloat16};

TEST_P(ModelTest, RecomputeTellsTheParameterHookAsOften) {
  std::vector<int> heard;
  for (const RecomputeOptions::Kind kind : {RecomputeOptions::Kind::none, RecomputeOptions::Kind::all}) {
    Trained run(runtime(), device(), {.seed = 3, .recompute = {.kind = kind}});
    Tape tape;
    heard.push_back(0);
    tape.set_parameter_hook([&](Parameter&) { ++heard.back(); });
    Context ctx = run.model.context(Pass::train);
    ctx.tape = &tape;
    ctx.random.update = run.optimizer.updates();
    const Batch batch = run.batch(0, 8);
    const Tensor loss =
        ops::softmax_cross_entropy(ctx, run.model.forward(ctx, batch.at(kImages)), batch.at(kLabels)).loss;
    (void)tape.backward(ctx, loss, run.optimizer.loss_scale());
  }
  EXPECT_EQ(heard[0], 12);
  EXPECT_EQ(heard[1], 12);
}

TEST_P(ModelTest, AFailedMicroBatchHasNoEffect) {
  std::vector<std::vector<float>> weights;
  for (const bool fails : {false, true}) {
    Runtime fresh({.threads = 2});
    Trained run(fresh, device(), {.seed = 3});
    run.step.step(run.batch(0, 8));
    const std::uint64_t pool = fresh.allocator(device()).stats().pool_bytes;
    if (fails) {
      const Batch large = run.batch(8, 8192);  // activations of 16 MiB each: more than there will be
      fresh.allocator(device()).set_limit(fresh.allocator(device()).stats().pool_bytes + (12u << 20));
      run.step.micro_batch(run.batch(9000, 8), 0, 8200);  // half of an effective batch is there already
      EXPECT_THROW(run.step.micro_batch(large, 8, 8200), OutOfMemory);
      fresh.allocator(device()).set_limit(0);
    }
    EXPECT_GT(pool, 0u);
    run.step.step(run.batch(16, 8));
    const std::vector<Metrics> metrics = run.step.read_metrics();
    ASSERT_EQ(metrics.size(), 2u);
    EXPECT_EQ(metrics[1].samples, 8);
    weights.push_back(run.floats(run.model.parameters().master()));
    weights.push_back(run.floats(run.model.buffers().current()));
  }
  EXPECT_EQ(weights[0], weights[2]);
  EXPECT_EQ(weights[1], weights[3]);
}

TEST_P(ModelTest, LearningRateAndDecayGroups) {
  const auto after = [&](OptimizerOptions options, float rate) {
    Runtime fresh({.threads = 2});
    Trained run(fresh, device(), {.seed = 3}, true, options);
    run.optimizer.set_learning_rate(rate);
    run.step.step(run.batch(0, 8));
    return std::pair(run.floats(run.model.parameters().find("head/weight")->master()),
                     run.floats(run.model.parameters().find("head/bias")->master()));
  };
  const OptimizerOptions plain{.rule = adamw({.learning_rate = 1.0f, .weight_decay = 0.0f})},
      decayed{.rule = adamw({.learning_rate = 1.0f, .weight_decay = 0.5f})},
      weights_only{.rule = decayed.rule, .decay_biases = false};
  Runtime fresh;
  Trained start(fresh, device(), {.seed = 3});
  EXPECT_EQ(after(plain, 0.0f).first, start.floats(start.model.parameters().find("head/weight")->master()));
  EXPECT_NE(after(plain, 1e-2f).first, after(decayed, 1e-2f).first);
  EXPECT_EQ(after(decayed, 1e-2f).first, after(weights_only, 1e-2f).first);
  EXPECT_EQ(after(plain, 1e-2f).second, after(weights_only, 1e-2f).second);
  EXPECT_THROW(start.optimizer.set_learning_rate(-1.0f), ConfigError);
}

TEST_P(ModelTest, TheSameSeedMakesTheSameBitsOnAnyNumberOfThreads) {
  std::vector<std::vector<float>> weights;
  for (const int threads : {1, 2, 3}) {
    Runtime fresh({.threads = threads});
    Trained run(fresh, device(), {.seed = 5});
    for (int i = 0; i < 3; ++i) run.step.step(run.batch(i * 16, 16));
    weights.push_back(run.floats(run.model.parameters().master()));
  }
  EXPECT_EQ(weights[0], weights[1]);
  EXPECT_EQ(weights[0], weights[2]);
  Runtime fresh;
  Trained other(fresh, device(), {.seed = 6});
  for (int i = 0; i < 3; ++i) other.step.step(other.batch(i * 16, 16));
  EXPECT_NE(weights[0], other.floats(other.model.parameters().master()));
}

TEST_P(ModelTest, FourMicroBatchesComputeTheGradientOfOneLargeBatch) {
  // No batch norm (its statistics are a micro-batch's own); dropout counts samples in the effective batch, so masks
  // agree.
  std::vector<std::vector<float>> gradients;
  for (const int micro_batches : {1, 4}) {
    Runtime fresh({.threads = 2});
    Trained run(fresh, device(), {.seed = 9}, false);
    const std::int64_t size = 64 / micro_batches;
    for (int i = 0; i < micro_batches; ++i) run.step.micro_batch(run.batch(i * size, size), i * size, 64);
    gradients.push_back(run.floats(run.model.parameters().gradient()));
  }
  EXPECT_LE(testing::relative_difference(gradients[1], gradients[0]), 1e-5);
  double norm = 0;
  for (const float g : gradients[0]) norm += std::abs(static_cast<double>(g));
  EXPECT_GT(norm, 0.1);
}

TEST_P(ModelTest, TheDirectionalDerivativeOfTheLossIsTheGradient) {
  Runtime fresh({.threads = 2});
  Trained run(fresh, device(), {.seed = 4});
  const Batch batch = run.batch(0, 16);
  run.step.micro_batch(batch, 0, 16);
  const std::vector<float> gradient = run.floats(run.model.parameters().gradient());
  const std::vector<float> weights = run.floats(run.model.parameters().master());
  double norm = 0;
  for (const float g : gradient) norm += static_cast<double>(g) * static_cast<double>(g);
  norm = std::sqrt(norm);
  const auto loss_at = [&](double t) {  // along the gradient's own direction the derivative is its norm
    std::vector<float> moved = weights;
    for (std::size_t i = 0; i < moved.size(); ++i)
      moved[i] += static_cast<float>(t * static_cast<double>(gradient[i]) / norm);
    const Tensor& master = run.model.parameters().master();
    copy_bytes(master.data(), moved.data(), master.bytes(), run.model.runtime().stream(device()));
    Context context = run.model.context(Pass::recompute);  // batch statistics and dropout, nothing moved
    context.random.update = run.optimizer.updates();
    const Tensor logits = run.model.forward(context, batch.at(kImages));
    return static_cast<double>(run.floats(ops::softmax_cross_entropy(context, logits, batch.at(kLabels)).loss)[0]);
  };
  // relu and max pooling have corners, so the step is small; float32 losses of order 1 carry about 1e-7, so 1e-7/step
  // of noise.
  constexpr double kStep = 2e-3;
  EXPECT_NEAR((loss_at(kStep) - loss_at(-kStep)) / (2 * kStep), norm, 0.02 * norm);
}

TEST_P(ModelTest, RunningStatisticsMoveOncePerUpdateAndNotForSkippedOnes) {
  Runtime fresh({.threads = 2});
  Trained run(fresh, device(), {.seed = 3, .recompute = {.kind = RecomputeOptions::Kind::all}});
  const std::vector<float> start = run.floats(run.model.buffers().current());
  Batch batch = run.batch(0, 8);
  run.step.micro_batch(batch, 0, 8);
  EXPECT_EQ(run.floats(run.model.buffers().current()), start);  // unchanged until the update
  run.step.update();
  const std::vector<float> once = run.floats(run.model.buffers().current());
  EXPECT_NE(once, start);
  const std::vector<float> infinite(static_cast<std::size_t>(batch.at(kImages).elements()),
                                    std::numeric_limits<float>::infinity());
  batch.tensors.set(kImages, run.model.context(Pass::train).upload(batch.at(kImages).shape(), infinite.data()));
  const std::vector<float> weights = run.floats(run.model.parameters().master());
  run.step.step(batch);
  EXPECT_EQ(run.optimizer.control().skipped, 1);
  EXPECT_EQ(run.optimizer.control().updates, 1);
  EXPECT_EQ(run.floats(run.model.buffers().current()), once);
  EXPECT_EQ(run.floats(run.model.parameters().master()), weights);
  run.step.step(run.batch(8, 8));  // and training goes on
  EXPECT_EQ(run.optimizer.control().updates, 2);
  for (const float v : run.floats(run.model.buffers().current())) ASSERT_TRUE(std::isfinite(v));
}

TEST_P(ModelTest, TrainingLearnsInEveryPrecision) {
  for (const PrecisionKind kind : kPrecisions) {
    Runtime fresh({.threads = 2});
    Trained run(fresh, device(), {.precision = {kind}, .seed = 3}, true, {.rule = adam({.learning_rate = 3e-3f})});
    std::vector<double> losses;
    for (int i = 0; i < 40; ++i) {
      run.step.step(run.batch((i % 4) * 32, 32));
      losses.push_back(run.step.read_metrics().at(0).loss);
    }
    EXPECT_GT(losses.front(), 1.2);
    EXPECT_LT(losses.back(), 0.5 * losses.front()) << to_string(Precision{kind});
    run.step.evaluate(run.batch(0, 64));
    const Metrics metrics = run.step.read_evaluation();
    EXPECT_EQ(metrics.samples, 64);
    EXPECT_GT(metrics.accuracy, 0.6);
  }
}

TEST_P(ModelTest, TheMetaStandInMakesTheSameAllocations) {
  for (const PrecisionKind kind : {PrecisionKind::float32, PrecisionKind::mixed_float16}) {
    std::vector<MemoryStats> stats;
    for (const Device where : {device(), Device::meta_of(device())}) {
      Runtime fresh({.threads = 2});
      Trained run(fresh, where, {.precision = {kind}, .seed = 3});
      for (int i = 0; i < 2; ++i) run.step.step(run.batch(0, 8));
      stats.push_back(fresh.allocator(where).stats());
    }
    EXPECT_EQ(stats[0].peak_bytes, stats[1].peak_bytes);
    EXPECT_EQ(stats[0].by_category_at_peak.bytes, stats[1].by_category_at_peak.bytes);
    EXPECT_EQ(stats[0].allocations, stats[1].allocations);
  }
}

TEST_P(ModelTest, AStepReleasesAllItsMemory) {
  Runtime fresh({.threads = 2});
  Trained run(fresh, device(), {.seed = 3});
  run.step.step(run.batch(0, 8));
  const MemoryStats first = fresh.allocator(device()).stats();
  for (int i = 0; i < 5; ++i) run.step.step(run.batch(i, 8));
  const MemoryStats last = fresh.allocator(device()).stats();
  EXPECT_EQ(first.in_use_bytes, last.in_use_bytes);
  EXPECT_EQ(first.peak_bytes, last.peak_bytes);
  EXPECT_EQ(first.pool_bytes, last.pool_bytes);
  EXPECT_EQ(fresh.allocator(device()).check_invariants(), "");
}

TEST_P(ModelTest, WrongInputsAreNamed) {
  Trained run(runtime(), device(), {.precision = {PrecisionKind::mixed_float16}});
  const Context context = run.model.context(Pass::evaluate);
  EXPECT_THROW((void)run.model.forward(context, testing::random_tensor(context, {1, 9, 9, 3}, 1)), ShapeError);
  EXPECT_THROW((void)run.model.forward(context, context.allocate({1, 8, 8, 3}, DType::float32)), DTypeError);
  EXPECT_THROW(run.step.update(), Error);
  const Context meta = Context::make(runtime(), Device::meta_of(device()), context.precision);
  EXPECT_THROW((void)run.model.forward(context, meta.allocate({1, 8, 8, 3}, DType::float16)), DeviceError);
  run.step.micro_batch(run.batch(0, 8), 0, 8);
  EXPECT_THROW((void)run.step.read_metrics(), Error);
}

}  // namespace
}  // namespace bantam::model_test
