// Train with Trainer: batches of the program's own (a BatchSource), a schedule, epochs with an evaluation after each,
// callbacks that hear of them and stop, all within the memory that was planned. The network learns whether a point of
// the plane lies in a ring.
#include <cmath>
#include <cstdio>
#include <numbers>

#include "bantam/bantam.h"

using namespace bantam;

namespace {

// Points in [-1, 1)²: class 1 where the distance from the origin is in (0.4, 0.8). Batch b of epoch e is a pure
// function of (seed, e, b), so a resumed run sees what an undisturbed one would have seen.
class Points : public BatchSource {
 public:
  Points(std::int64_t batches, std::uint64_t seed) : batches_(batches), seed_(seed) {}
  std::vector<TensorFacts> tensors() const override {
    return {{.name = std::string(kImages), .shape = {2}},
            {.name = std::string(kLabels), .shape = {}, .dtype = DType::int32, .classes = 2}};
  }
  std::int64_t batch_size() const override { return kBatch; }
  std::int64_t batches_per_epoch() const override { return batches_; }
  std::int64_t size_of(std::int64_t) const override { return kBatch; }
  void start(std::int64_t epoch, std::int64_t first) override { epoch_ = epoch, next_ = first; }
  bool next(const Context& context, Batch& batch) override {
    if (next_ == batches_) return false;
    const auto number = static_cast<std::uint64_t>(epoch_ * batches_ + next_);
    PhiloxSequence random(philox_key(seed_, RandomPurpose::dataset, number));
    std::vector<float> points(2 * kBatch);
    std::vector<std::int32_t> labels(kBatch);
    for (float& value : points) value = random.uniform(-1.0f, 1.0f);
    for (std::size_t i = 0; i < kBatch; ++i) {
      const float radius = std::hypot(points[2 * i], points[2 * i + 1]);
      labels[i] = radius > 0.4f && radius < 0.8f ? 1 : 0;
    }
    const Tensor images = ops::cast(context, context.upload({kBatch, 2}, points.data()), context.precision.compute());
    batch = {.tensors = {{kImages, images}, {kLabels, context.upload({kBatch}, labels.data())}},
             .size = kBatch,
             .index = next_++};
    return true;
  }

 private:
  static constexpr std::int64_t kBatch = 64;
  std::int64_t batches_, epoch_ = 0, next_ = 0;
  std::uint64_t seed_;
};

struct EpochLines : Callback {
  bool observes() const override { return true; }  // it only looks on: updates need not wait for it
  void on_epoch_end(const EpochEvent& event) override {
    if (event.epoch % 5 != 4) return;
    std::printf("epoch %2lld  loss %.4f  validation accuracy %.3f\n", static_cast<long long>(event.epoch + 1),
                event.train.loss, event.validation.accuracy);
  }
};

// Ends the run once the validation samples are good enough. A stop is heard within one batch, also from another thread.
struct GoodEnough : Callback {
  explicit GoodEnough(Trainer& trainer) : trainer(trainer) {}
  void on_epoch_end(const EpochEvent& event) override {
    if (event.validation.accuracy >= 0.985) trainer.request_stop();
  }
  Trainer& trainer;
};

// From the optimizer's learning rate to 0 along half a cosine.
Schedule cosine(const ScheduleFacts& run) {
  return [run](std::int64_t update) {
    const auto done = static_cast<float>(update) / static_cast<float>(run.updates);
    return run.learning_rate * 0.5f * (1 + std::cos(std::numbers::pi_v<float> * done));
  };
}

}  // namespace

int main() {
  Graph graph({2});
  graph.add(dense({.units = 32, .activation = {Activation::relu}}));
  graph.add(dense({.units = 32, .activation = {Activation::relu}}));
  graph.add(dense({.units = 2}));
  Points data(32, 1), validation(16, 2);
  const OptimizerOptions options{.rule = adam({.learning_rate = 5e-3f}), .schedules = {.learning_rate = cosine}};
  const StepPlan plan =
      plan_step(graph, for_sources({.optimizer = options, .device = Device::cpu()}, data, &validation));
  Runtime runtime({.limits = {{"cpu", plan.pool_bytes}}});
  Model model(runtime, Device::cpu(), graph, {.seed = 1});
  Optimizer optimizer(model, options);
  TrainingStep step(model, optimizer, {});
  Trainer trainer(step, data, &validation, {.epochs = 40, .stop_early = EarlyStopOptions{.patience = 8}});
  EpochLines lines;
  trainer.add(lines);
  GoodEnough good_enough(trainer);
  trainer.add(good_enough);
  const TrainResult result = trainer.run();
  std::printf("%lld epochs: %s\n", static_cast<long long>(result.epochs),
              result.stopped         ? "good enough"
              : result.stopped_early ? "the validation loss did not fall any more"
                                     : "all of them");
  return result.validation.accuracy > 0.9 ? 0 : 1;
}
