// Training on batches that a program makes, one after another, with the configuration's schedules.
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "bantam/capi/batches.h"
#include "bantam/capi/events.h"
#include "bantam/capi/handles.h"
#include "bantam/capi/status.h"
#include "bantam/engine/train/trainer.h"

using namespace bantam;
using namespace bantam::capi;

namespace {

constexpr std::size_t kMostArrays = 8;

/// The caller's `next`, as a source of batches.
class ProgramBatches : public BatchSource {
 public:
  ProgramBatches(const bantam_batches& given, const char* what, TrainingStep& step)
      : given_(read_struct(&given, what)), what_(what), step_(step) {
    if (given_.next == nullptr) throw BadArgument(fmt::format("{}.next is null", what));
    if (given_.batches < 1 || given_.batch_size < 1)
      throw BadArgument(fmt::format("{}: batches and batch_size must be at least 1", what));
    if (given_.last_batch_size == 0) given_.last_batch_size = given_.batch_size;
    if (given_.last_batch_size < 1 || given_.last_batch_size > given_.batch_size)
      throw BadArgument(fmt::format("{}: last_batch_size must be from 1 to batch_size", what));
  }

  /// Names the arrays that the step reads; the shape and type of a batch are compared with them when it comes.
  std::vector<TensorFacts> tensors() const override {
    const Graph& graph = step_.model().graph();
    std::vector<TensorFacts> facts = targets_of(step_.loss(), graph.output_shape());
    facts.insert(facts.begin(), {.name = std::string(kImages), .shape = graph.input_shape(), .dtype = {}});
    return facts;
  }
  std::int64_t batch_size() const override { return given_.batch_size; }
  std::int64_t batches_per_epoch() const override { return given_.batches; }
  std::int64_t size_of(std::int64_t index) const override {
    return index + 1 < given_.batches ? given_.batch_size : given_.last_batch_size;
  }
  void start(std::int64_t epoch, std::int64_t first_batch) override {
    epoch_ = epoch;
    next_ = first_batch;
  }
  bool next(const Context& context, Batch& batch) override {
    if (next_ >= given_.batches) return false;
    bantam_array arrays[kMostArrays] = {};
    std::size_t count = 0;
    if (const std::int32_t status = given_.next(given_.user, epoch_, next_, arrays, &count); status != 0)
      throw DataError(fmt::format("{}, batch {} of epoch {}: {}", what_, next_, epoch_ + 1,
                                  callback_error(fmt::format("the program's callback returned {}", status))));
    if (count > kMostArrays) throw BadArgument(fmt::format("{}: at most {} arrays a batch", what_, kMostArrays));
    const std::vector<HostArray> read = read_arrays(arrays, count);
    if (read[0].samples() != size_of(next_))
      throw DataError(fmt::format("{}, batch {} of epoch {} has {} samples; expected {}", what_, next_, epoch_ + 1,
                                  read[0].samples(), size_of(next_)));
    batch = uploaded(read, step_, context, what_);
    batch.index = next_++;
    return true;
  }

 private:
  bantam_batches given_;
  const char* what_;
  TrainingStep& step_;
  std::int64_t epoch_ = 0, next_ = 0;
};

/// Schedules are the optimizer's, which Trainer applies.
TrainerOptions trainer_options(const run::RunConfig& config) {
  const run::TrainConfig& train = config.train;
  return {.epochs = train.epochs,
          .updates = train.updates,
          .accumulate = train.accumulate,
          .evaluate = train.evaluate,
          .evaluate_every = train.evaluate_every,
          .mode = train.mode,
          .on_oom = config.memory.on_oom,
          .stop_early = train.stop_early,
          .max_updates = train.max_updates};
}

bantam_train_result trained(bantam_model& model, const bantam_batches& train, const bantam_batches* validation,
                            Events& events) {
  TrainingStep& step = training(model, "bantam_model_train").step();
  ProgramBatches batches(train, "train", step);
  std::unique_ptr<ProgramBatches> evaluated;
  if (validation != nullptr) evaluated = std::make_unique<ProgramBatches>(*validation, "validation", step);
  TrainerOptions options = trainer_options(model.config);
  options.stop = [&] { return events.stops(); };
  Trainer trainer(step, batches, evaluated.get(), std::move(options));
  bantam_engine engine{model.runtime};
  engine.live.lend();
  events.set_engine(&engine);
  trainer.add(events);
  events.begin(model.config.train.epochs);
  bantam_train_result result = result_of(trainer.run());
  events.set_engine(nullptr);
  const MemoryStats memory = model.runtime->allocator(model.config.device).stats();
  result.parameters = model.parameters;
  result.peak_bytes = memory.peak_bytes;
  result.pool_bytes = memory.peak_pool_bytes;
  return result;
}

}  // namespace

bantam_status bantam_model_train(bantam_model* model, const bantam_batches* train, const bantam_batches* validation,
                                 bantam_on_event on_event, void* user, bantam_train_result* result) {
  return guarded([&] {
    bantam_model& asked = required(model, "model");
    if (asked.accumulated > 0)
      throw BadArgument("bantam_model_train: an effective batch is under way: end it with bantam_model_update");
    check_struct(result, "result");
    Events events(on_event, user);
    write_struct(result, trained(asked, required(train, "train"), validation, events), "result");
  });
}
