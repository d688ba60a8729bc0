// A short run on fake memory, in the trainer's order.
#include "bantam/engine/dry_run.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "bantam/base/error.h"
#include "bantam/engine/trainer.h"

namespace bantam {
namespace {

constexpr std::int64_t kLastUpdates = 2;  // of an epoch: a full one, which the short one follows

/// The beginning and the end of another source's epochs, with nothing between them.
class ShortEpochs : public BatchSource {
 public:
  /// `first` batches, then those from the last multiple of `multiple` on that leaves at least `last` multiples.
  ShortEpochs(BatchSource& source, std::int64_t first, std::int64_t last, std::int64_t multiple)
      : source_(source), first_(std::min(first * multiple, source.batches_per_epoch())) {
    const std::int64_t multiples = (source.batches_per_epoch() + multiple - 1) / multiple;
    resume_ = std::clamp((multiples - last) * multiple, first_, source.batches_per_epoch());
  }

  Shape image_shape() const override { return source_.image_shape(); }
  std::int64_t classes() const override { return source_.classes(); }
  std::int64_t batch_size() const override { return source_.batch_size(); }
  std::int64_t batches_per_epoch() const override { return first_ + source_.batches_per_epoch() - resume_; }
  std::int64_t size_of(std::int64_t index) const override { return source_.size_of(place(index)); }
  void start(std::int64_t epoch, std::int64_t first_batch) override {
    epoch_ = epoch;
    next_ = first_batch;
    source_.start(epoch, place(first_batch));
  }
  bool next(const Context& context, Batch& batch) override {
    if (next_ == first_ && resume_ > first_) source_.start(epoch_, resume_);
    ++next_;
    return source_.next(context, batch);
  }

 private:
  std::int64_t place(std::int64_t index) const { return index < first_ ? index : index - first_ + resume_; }

  BatchSource& source_;
  std::int64_t first_, resume_;  // batches before the gap, and the first one behind it
  std::int64_t epoch_ = 0, next_ = 0;
};

/// As `bantam train` makes and runs its parts, in their order.
void run(Runtime& runtime, const Graph& graph, const DryRunOptions& options) {
  const Device device = Device::meta_of(options.device);
  const RunSources sources = options.open(runtime, device);
  Model model(runtime, device, graph, options.model);
  Optimizer optimizer(model, options.optimizer);
  TrainingStep step(model, optimizer, options.loss);
  ShortEpochs train(*sources.train, options.updates, kLastUpdates, options.accumulate);
  std::optional<ShortEpochs> validation;
  if (sources.validation != nullptr && options.evaluate)
    validation.emplace(*sources.validation, kLastUpdates, kLastUpdates, 1);
  Trainer(step, train, validation ? &*validation : nullptr, {.epochs = 2, .accumulate = options.accumulate}).run();
}

}  // namespace

DryRun dry_run(const Graph& graph, const DryRunOptions& options) {
  if (!options.open || options.accumulate < 1 || options.updates < 1)
    throw Error("dry run: sources, and an accumulation and updates of at least 1 are needed");
  const Device device = Device::meta_of(options.device);
  RuntimeOptions runtime_options{.threads = 1};
  if (options.limit_bytes > 0) runtime_options.limits[to_string(device)] = options.limit_bytes;
  Runtime runtime(std::move(runtime_options));
  DryRun result;
  try {
    run(runtime, graph, options);
  } catch (const OutOfMemory&) {
    result.fits = false;
  }
  const MemoryStats stats = runtime.allocator(device).stats();
  result.peak_bytes = stats.peak_bytes;
  result.peak_pool_bytes = stats.peak_pool_bytes;
  return result;
}

}  // namespace bantam
