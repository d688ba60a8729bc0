// A short run on fake memory, in the trainer's order.
#include "bantam/engine/rehearsal.h"

#include <algorithm>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr std::int64_t kLastUpdates = 2;  // of an epoch: a full one, which the short one follows
constexpr std::int64_t kEvaluated = 2;    // full batches of an evaluation, and as many at its end

/// The parts of a run, made in the order of `bantam train`.
class RehearsedRun {
 public:
  RehearsedRun(Runtime& runtime, const Graph& graph, const RehearsalOptions& options)
      : options_(options),
        device_(Device::meta_of(options.device)),
        sources_(options.open(runtime, device_)),
        model_(runtime, device_, graph, options.model),
        optimizer_(model_, options.optimizer),
        step_(model_, optimizer_, options.loss) {}

  void run() {
    BatchSource& train = *sources_.train;
    const std::int64_t updates = (train.batches_per_epoch() + options_.accumulate - 1) / options_.accumulate;
    updates_from(0, 0, std::min(options_.updates, updates));
    if (updates > options_.updates) updates_from(0, std::max(options_.updates, updates - kLastUpdates), updates);
    if (options_.evaluate && sources_.validation != nullptr) evaluate(*sources_.validation);
    updates_from(1, 0, std::min(options_.updates, updates));
  }

 private:
  void updates_from(std::int64_t epoch, std::int64_t first, std::int64_t end) {
    BatchSource& train = *sources_.train;
    const Context context = step_.model().context(Pass::train).at(model_.runtime().intern("input"));
    train.start(epoch, first * options_.accumulate);
    const std::int64_t batches = std::min(end * options_.accumulate, train.batches_per_epoch());
    for (std::int64_t index = first * options_.accumulate; index < batches; ++index) {
      Batch batch;
      if (!train.next(context, batch)) return;
      step_.micro_batch(batch, (index % options_.accumulate) * train.batch_size(),
                        train.batch_size() * options_.accumulate);
      if ((index + 1) % options_.accumulate == 0 || index + 1 == batches) step_.update();
      if (step_.pending_metrics() == TrainingStep::kMetricRing) (void)step_.read_metrics();
    }
  }

  void evaluate(BatchSource& source) {
    const Context context = model_.context(Pass::evaluate).at(model_.runtime().intern("input"));
    const std::int64_t batches = source.batches_per_epoch();
    Batch batch;
    source.start(0, 0);
    for (std::int64_t i = 0; i < std::min(kEvaluated, batches) && source.next(context, batch); ++i)
      step_.evaluate(batch);
    if (batches <= kEvaluated) return;
    source.start(0, std::max(kEvaluated, batches - kEvaluated));
    while (source.next(context, batch)) step_.evaluate(batch);
  }

  const RehearsalOptions& options_;
  Device device_;
  RunSources sources_;
  Model model_;
  Optimizer optimizer_;
  TrainingStep step_;
};

}  // namespace

Rehearsal rehearse(const Graph& graph, const RehearsalOptions& options) {
  if (!options.open || options.accumulate < 1 || options.updates < 1)
    throw Error("rehearsal: sources, and an accumulation and updates of at least 1 are needed");
  const Device device = Device::meta_of(options.device);
  RuntimeOptions runtime_options{.threads = 1};
  if (options.limit_bytes > 0) runtime_options.limits[to_string(device)] = options.limit_bytes;
  Runtime runtime(std::move(runtime_options));
  Rehearsal rehearsal;
  try {
    RehearsedRun(runtime, graph, options).run();
  } catch (const OutOfMemory&) {
    rehearsal.fits = false;
  }
  const MemoryStats stats = runtime.allocator(device).stats();
  rehearsal.peak_bytes = stats.peak_bytes;
  rehearsal.peak_pool_bytes = stats.peak_pool_bytes;
  return rehearsal;
}

}  // namespace bantam
