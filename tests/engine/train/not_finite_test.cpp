// An update that is not finite ends a run: what the error names, and that nothing has changed.
#include "bantam/engine/train/not_finite.h"

#include <limits>

#include "bantam/base/error.h"
#include "bantam/engine/train/trainer.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::not_finite_test {
namespace {

using testing::EngineTest;
using testing::MemorySource;

class NotFiniteTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(NotFiniteTest);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Trained {
  Trained(Runtime& runtime, Device device, Graph graph, const OptimizerOptions& options = {},
          const ModelOptions& model_options = {.seed = 2})
      : model(runtime, device, std::move(graph), model_options),
        optimizer(model, options),
        step(model, optimizer, {}) {}
  /// Weights and running statistics.
  std::vector<std::vector<float>> state() {
    const Stream stream = model.runtime().stream(model.device());
    std::vector<std::vector<float>> all = {to_host<float>(model.parameters().master(), stream)};
    if (model.buffers().elements() > 0) all.push_back(to_host<float>(model.buffers().current(), stream));
    return all;
  }
  Model model;
  Optimizer optimizer;
  TrainingStep step;
};

std::string error_of(Trainer& trainer) {
  try {
    (void)trainer.run();
  } catch (const NotFiniteError& error) {
    return error.what();
  }
  return "no error";
}

/// One pixel of one sample is no number. Samples have numbers: 100 and their place in the epoch, or none.
class PoisonedSource : public MemorySource {
 public:
  PoisonedSource(std::int64_t epoch, std::int64_t batch, std::int64_t row, bool numbered = true)
      : MemorySource({8, 8, 3}, 5, 64, 8), at_epoch_(epoch), at_batch_(batch), row_(row), numbered_(numbered) {}
  void start(std::int64_t epoch, std::int64_t first) override {
    epoch_ = epoch;
    MemorySource::start(epoch, first);
  }
  bool next(const Context& context, Batch& batch) override {
    if (!MemorySource::next(context, batch)) return false;
    if (epoch_ != at_epoch_ || batch.index != at_batch_) return true;
    const Tensor images = batch.at(kImages);
    std::vector<float> values = to_host_floats(images, context.stream);
    values[static_cast<std::size_t>(row_ * 8 * 8 * 3 + 7)] = std::numeric_limits<float>::quiet_NaN();
    batch.tensors.set(kImages, ops::cast(context, context.upload(images.shape(), values.data()), images.dtype()));
    return true;
  }
  std::vector<std::int64_t> sample_numbers(std::int64_t, std::int64_t index) override {
    std::vector<std::int64_t> numbers;
    for (std::int64_t i = 0; numbered_ && i < size_of(index); ++i) numbers.push_back(100 + index * 8 + i);
    return numbers;
  }

 private:
  std::int64_t epoch_ = 0, at_epoch_, at_batch_, row_;
  bool numbered_;
};

TEST_P(NotFiniteTest, NamesTheUpdateAndTheSampleAndChangesNothing) {
  for (const StepMode mode : {StepMode::eager, StepMode::planned}) {
    Trained spoilt(runtime(), device(), testing::small_network()), sound(runtime(), device(), testing::small_network());
    PoisonedSource poisoned(1, 5, 3);
    MemorySource clean({8, 8, 3}, 5, 64, 8);
    Trainer trainer(spoilt.step, poisoned, nullptr, {.epochs = 3, .accumulate = 2, .mode = mode});
    EXPECT_EQ(error_of(trainer),
              "the gradients of update 3 of epoch 2 are not finite: first not finite is 'images' of the data in sample "
              "143 of the data set; weights are those before it; lower the learning rate, or clip");
    EXPECT_EQ(trainer.so_far().epoch, 1);
    EXPECT_EQ(trainer.so_far().update, 3);
    EXPECT_EQ(trainer.position().update, 3);
    (void)Trainer(sound.step, clean, nullptr, {.epochs = 3, .accumulate = 2, .mode = mode, .max_updates = 6}).run();
    EXPECT_EQ(spoilt.state(), sound.state());
    EXPECT_EQ(spoilt.optimizer.control().updates, 6);
    EXPECT_EQ(spoilt.optimizer.control().skipped, 1);
  }
}

TEST_P(NotFiniteTest, WithoutNumbersItNamesPlaces) {
  Trained run(runtime(), device(), testing::small_network());
  PoisonedSource poisoned(0, 3, 3, false);  // the second batch of the second update
  Trainer trainer(run.step, poisoned, nullptr, {.accumulate = 2});
  EXPECT_NE(error_of(trainer).find("'images' of the data in place 11 of the update's batch"), std::string::npos);
  Trained silent(runtime(), device(), testing::small_network());
  Trainer brief(silent.step, poisoned, nullptr, {.accumulate = 2, .diagnose = false});
  const std::string text = error_of(brief);
  EXPECT_NE(text.find("update 2 of epoch 1"), std::string::npos) << text;
  EXPECT_NE(text.find("places 0, 1, 2, 3, 4, 5, 6, 7, … (16 in all)"), std::string::npos) << text;
}

/// Its third batch has a label in row 3 that is no class.
class MislabelledSource : public MemorySource {
 public:
  explicit MislabelledSource(std::int32_t label) : MemorySource({8, 8, 3}, 5, 64, 8), label_(label) {}
  bool next(const Context& context, Batch& batch) override {
    if (!MemorySource::next(context, batch)) return false;
    if (batch.index != 2) return true;
    std::vector<std::int32_t> labels = to_host<std::int32_t>(batch.at(kLabels), context.stream);
    labels[3] = label_;
    batch.tensors.set(kLabels, context.upload({8}, labels.data()));
    return true;
  }

 private:
  std::int32_t label_;
};

TEST_P(NotFiniteTest, NamesALabelThatIsNoClass) {
  for (const auto& [label, what] : {std::pair(9, "not below 5"), std::pair(-1, "negative")}) {
    Trained run(runtime(), device(), testing::small_network());
    MislabelledSource data(label);
    Trainer trainer(run.step, data, nullptr, {.accumulate = 2});
    EXPECT_EQ(error_of(trainer), "the gradients of update 2 of epoch 1 are not finite: label " + std::to_string(label) +
                                     " of place 3 of the update's batch ('labels') is " + what +
                                     "; weights are those before it; correct the data");
  }
}

TEST_P(NotFiniteTest, ABatchThatIsNotAsLargeAsItSaysIsRefused) {
  Trained run(runtime(), device(), testing::small_network());
  const Batch sound = testing::make_batch(run.model.context(Pass::train), {8, 8, 3}, 5, 0, 8);
  for (const std::int64_t size : {0, 7, 9}) {
    Batch batch = sound;
    batch.size = size;
    EXPECT_THROW(run.step.micro_batch(batch, 0, 8), ShapeError) << size;
    EXPECT_THROW(run.step.evaluate(batch), ShapeError) << size;
  }
  run.step.step(sound);
  EXPECT_TRUE(std::isfinite(run.step.read_metrics().back().loss)) << "nothing of those stays";
}

/// What a layer does once it has been called often enough.
struct Fault {
  std::int64_t calls_before = 0, calls = 0;
  std::int64_t output_row = -1, gradient_row = -1;
};

Tensor with_infinity(const Context& context, const Tensor& x, std::int64_t row) {
  std::vector<float> values = to_host_floats(x, context.stream);
  if (row >= 0) values[static_cast<std::size_t>(row * x.elements() / x.shape()[0])] = kInfinity;
  return ops::cast(context, context.upload(x.shape(), values.data(), Category::activation), x.dtype());
}

/// x, until it is faulty.
class Faulty : public Layer {
 public:
  explicit Faulty(std::shared_ptr<Fault> fault) : fault_(std::move(fault)) {}
  std::string_view kind() const override { return "faulty"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return inputs[0]; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    struct Bound : BoundLayer {
      std::shared_ptr<Fault> fault;
      Tensor forward(const Context& context, std::span<Tensor> inputs) override {
        const bool faulty = ++fault->calls > fault->calls_before;
        const std::int64_t row = faulty ? fault->gradient_row : -1;
        Context silent = context;
        silent.tape = nullptr;
        Tensor y = with_infinity(silent, inputs[0], faulty ? fault->output_row : -1);
        if (records(context, {&inputs[0]}))
          context.tape->record(context, y,
                               [x = ValueRef(inputs[0]), row](const Context& ctx, Tensor dy, GradientStore& store) {
                                 store.add(ctx, x, with_infinity(ctx, dy, row));
                               });
        return y;
      }
    };
    auto bound = std::make_unique<Bound>();
    bound->fault = fault_;
    return bound;
  }

 private:
  std::shared_ptr<Fault> fault_;
};

Graph faulty_network(const std::shared_ptr<Fault>& fault) {
  Graph graph({8, 8, 3});
  graph.add("conv", conv2d({.filters = 8, .kernel = {3, 3}}));
  graph.add("own", std::make_shared<Faulty>(fault));
  graph.add("pool", global_average_pool());
  graph.add("head", dense({.units = 5}));
  return graph;
}

TEST_P(NotFiniteTest, NamesTheFirstLayerWhoseOutputIsNotFinite) {
  for (const auto kind : {RecomputeOptions::Kind::none, RecomputeOptions::Kind::all}) {
    const auto fault = std::make_shared<Fault>(Fault{.calls_before = 3, .output_row = 5});
    Trained run(runtime(), device(), faulty_network(fault), {}, {.seed = 2, .recompute = {.kind = kind}});
    MemorySource train({8, 8, 3}, 5, 64, 8);
    Trainer trainer(run.step, train, nullptr, {.mode = StepMode::eager});
    const std::string text = error_of(trainer);
    EXPECT_NE(text.find("first not finite is the output of layer 'own' (faulty) in place 5 of the update's batch"),
              std::string::npos)
        << text;
  }
}

TEST_P(NotFiniteTest, NamesTheLayerAtWhichGradientsStopBeingFinite) {
  const auto fault = std::make_shared<Fault>(Fault{.calls_before = 2, .gradient_row = 1});
  Trained run(runtime(), device(), faulty_network(fault));
  MemorySource train({8, 8, 3}, 5, 64, 8);
  Trainer trainer(run.step, train, nullptr, {.mode = StepMode::eager});
  const std::string text = error_of(trainer);
  EXPECT_NE(text.find("update 3 of epoch 1"), std::string::npos) << text;
  EXPECT_NE(text.find("first not finite is the gradient of the output of layer 'conv' (conv2d) in place 1 of"),
            std::string::npos)
      << text;
}

TEST_P(NotFiniteTest, WithALossScaleSomeUpdatesMayBeSkipped) {
  const OptimizerOptions options{.rule = sgd({.learning_rate = 1e30f}), .initial_loss_scale = 64};
  Trained run(runtime(), device(), testing::small_network(), options,
              {.precision = {PrecisionKind::mixed_float16}, .seed = 2});
  MemorySource train({8, 8, 3}, 5, 800, 8);
  Trainer trainer(run.step, train, nullptr, {.max_skipped_in_a_row = 4});
  const std::string text = error_of(trainer);
  EXPECT_NE(text.find("gradients were not finite in the last 4 updates (loss scale 8)"), std::string::npos) << text;
  EXPECT_NE(text.find("first not finite is "), std::string::npos) << text;
  EXPECT_EQ(run.optimizer.control().skipped_in_a_row, 4);
  EXPECT_THROW((void)Trainer(run.step, train, nullptr, {.max_skipped_in_a_row = 4}).run(), NotFiniteError)
      << "counted from the beginning, not halted at once";
  EXPECT_EQ(run.optimizer.control().skipped, 8);
}

TEST_P(NotFiniteTest, LookingIntoAStepChangesNothing) {
  Trained looked(runtime(), device(), testing::small_network()), plain(runtime(), device(), testing::small_network());
  MemorySource train({8, 8, 3}, 5, 64, 8);
  for (Trained* run : {&looked, &plain}) {
    run->step.prepare({.batches = {8}});
    const Context context = run->model.context(Pass::train);
    train.start(0, 0);
    for (int i = 0; i < 3; ++i) {
      Batch batch;
      ASSERT_TRUE(train.next(context, batch));
      NotFiniteSearch search(run->step);
      if (run == &looked) run->step.look_into(search.hooks(), 1, [&] { run->step.micro_batch(batch, 0, 8); });
      EXPECT_EQ(search.what(), "");
      run->step.step(batch);
    }
  }
  EXPECT_EQ(looked.state(), plain.state());
  const std::vector<Metrics> a = looked.step.read_metrics(), b = plain.step.read_metrics();
  ASSERT_EQ(a.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(a[i].loss, b[i].loss);
}

}  // namespace
}  // namespace bantam::not_finite_test
