// Steps of a caller's own loop.
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "bantam/capi/batches.h"
#include "bantam/capi/events.h"
#include "bantam/capi/handles.h"
#include "bantam/capi/status.h"

using namespace bantam;
using namespace bantam::capi;

namespace {

Batch batch_of(TrainingSession& session, const bantam_array* arrays, std::size_t count, std::string_view what) {
  const Model& model = session.model();
  const Context context = model.context(Pass::evaluate).at(model.runtime().intern("input"));
  return uploaded(read_arrays(arrays, count), session.step(), context, what);
}

/// Takes from the device what it has counted since the last time.
void collect(bantam_model& model) {
  const std::vector<Metrics> read = model.session->step().read_metrics();
  for (const Metrics& metrics : read) merge(model.untold, metrics);
  model.untold_updates += std::ssize(read);
}

/// The device counts so many updates, and no more, until they are read.
void make_room(bantam_model& model) {
  if (model.session->step().unsynchronised_metrics() >= TrainingStep::kMetricRing) collect(model);
}

bantam_metrics told(const Metrics& counted, std::int64_t updates) {
  bantam_metrics metrics = BANTAM_INIT(bantam_metrics);
  metrics.loss = counted.loss;
  metrics.accuracy = counted.accuracy;
  metrics.samples = counted.samples;
  metrics.updates = updates;
  const std::string values = metrics_json(counted.values);
  copy_text(metrics.values, sizeof metrics.values, values.size() < sizeof metrics.values ? values : "{}");
  return metrics;
}

void accumulate(bantam_model& model, const Batch& batch, std::int64_t first_sample, std::int64_t effective_batch) {
  if (model.accumulated == 0) make_room(model);
  try {
    model.session->step().micro_batch(batch, first_sample, effective_batch);
    ++model.accumulated;
  } catch (...) {
    model.accumulated = 0;  // the step has discarded the effective batch
    throw;
  }
}

void update(bantam_model& model) {
  model.accumulated = 0;
  model.session->step().update();
}

}  // namespace

void bantam::capi::require_no_micro_batch(const bantam_model& model, const char* function) {
  if (model.accumulated > 0)
    throw BadArgument(std::string(function) + ": an effective batch is under way: end it with bantam_model_update");
}

void bantam::capi::run_step(bantam_model& model, const Batch& batch, bantam_metrics* metrics) {
  check_struct(metrics, "metrics");
  if (metrics != nullptr) collect(model);
  accumulate(model, batch, 0, batch.size);
  update(model);
  if (metrics == nullptr) return;
  const std::vector<Metrics> read = model.session->step().read_metrics();
  merge(model.untold, read.back());
  ++model.untold_updates;
  write_struct(metrics, told(read.back(), 1), "metrics");
}

bantam_status bantam_model_step(bantam_model* model, const bantam_array* batch, size_t count, bantam_metrics* metrics) {
  return guarded([&] {
    bantam_model& trained = required(model, "model");
    TrainingSession& session = training(trained, "bantam_model_step");
    require_no_micro_batch(trained, "bantam_model_step");
    run_step(trained, batch_of(session, batch, count, "batch's"), metrics);
  });
}

bantam_status bantam_model_accumulate(bantam_model* model, const bantam_array* batch, size_t count,
                                      int64_t first_sample, int64_t effective_batch) {
  return guarded([&] {
    bantam_model& trained = required(model, "model");
    TrainingSession& session = training(trained, "bantam_model_accumulate");
    const Batch uploaded = batch_of(session, batch, count, "batch's");
    if (first_sample < 0 || effective_batch < first_sample + uploaded.size)
      throw BadArgument("bantam_model_accumulate: the batch's samples are not within the effective batch");
    accumulate(trained, uploaded, first_sample, effective_batch);
  });
}

bantam_status bantam_model_update(bantam_model* model) {
  return guarded([&] {
    bantam_model& trained = required(model, "model");
    (void)training(trained, "bantam_model_update");
    if (trained.accumulated == 0)
      throw BadArgument("bantam_model_update: there are no gradients: call bantam_model_accumulate first");
    update(trained);
  });
}

bantam_status bantam_model_read_metrics(bantam_model* model, bantam_metrics* metrics) {
  return guarded([&] {
    bantam_model& trained = required(model, "model");
    (void)training(trained, "bantam_model_read_metrics");
    require_no_micro_batch(trained, "bantam_model_read_metrics");
    required(metrics, "metrics");
    collect(trained);
    write_struct(metrics, told(std::exchange(trained.untold, {}), std::exchange(trained.untold_updates, 0)), "metrics");
  });
}

bantam_status bantam_model_evaluate(bantam_model* model, const bantam_array* batch, size_t count,
                                    bantam_metrics* metrics) {
  return guarded([&] {
    bantam_model& asked = required(model, "model");
    TrainingSession& session = training(asked, "bantam_model_evaluate");
    require_no_micro_batch(asked, "bantam_model_evaluate");
    check_struct(&required(metrics, "metrics"), "metrics");  // first: what is counted is read in any case
    session.step().evaluate(batch_of(session, batch, count, "batch's"));
    write_struct(metrics, told(session.step().read_evaluation(), 0), "metrics");
  });
}

bantam_status bantam_model_set_learning_rate(bantam_model* model, double learning_rate) {
  return guarded([&] {
    TrainingSession& session = training(required(model, "model"), "bantam_model_set_learning_rate");
    if (!(learning_rate >= 0 && learning_rate <= std::numeric_limits<float>::max()))
      throw ConfigError(
          fmt::format("bantam_model_set_learning_rate: expected a finite number of at least 0, got {}", learning_rate));
    session.optimizer().set_learning_rate(static_cast<float>(learning_rate));
  });
}
