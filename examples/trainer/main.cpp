// Train with Trainer: batches of the program's own (a BatchSource), epochs with an evaluation after each, and a
// callback that hears of them. The network learns whether a point of the plane lies in a ring.
#include <cmath>
#include <cstdio>

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

}  // namespace

int main() {
  Runtime runtime;
  Graph graph({2});
  graph.add(dense({.units = 32, .activation = {Activation::relu}}));
  graph.add(dense({.units = 32, .activation = {Activation::relu}}));
  graph.add(dense({.units = 2}));
  Model model(runtime, Device::cpu(), graph, {.seed = 1});
  Optimizer optimizer(model, {.learning_rate = 5e-3f});
  TrainingStep step(model, optimizer, {});
  Points data(32, 1), validation(16, 2);
  Trainer trainer(step, data, &validation, {.epochs = 20});
  EpochLines lines;
  trainer.add(lines);
  const TrainResult result = trainer.run();
  return result.validation.accuracy > 0.9 ? 0 : 1;
}
