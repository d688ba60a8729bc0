// Models: made from a configuration to be trained, or opened as a run has left them; their facts and their weights.
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/json.h"
#include "bantam/capi/handles.h"
#include "bantam/capi/status.h"
#include "bantam/engine/model/frozen_norms.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/trained/trained_model.h"
#include "bantam/run/weights/initial_weights.h"

using namespace bantam;
using namespace bantam::capi;

namespace {

std::shared_ptr<Runtime> runtime_of(bantam_engine* engine, const run::RunConfig& config, int threads) {
  if (threads < 0) throw BadArgument("options.threads is negative");
  return engine != nullptr ? required(engine, "engine").runtime
                           : std::shared_ptr<Runtime>(run::make_runtime(config, threads));
}

std::unique_ptr<bantam_model> created(bantam_engine* engine, const run::RunConfig& config) {
  run::require_device(config);
  auto model = std::make_unique<bantam_model>(bantam_model{.runtime = runtime_of(engine, config, 0), .config = config});
  if (config.data) model->class_names = train_facts(*config.data).class_names;
  model->session = std::make_shared<TrainingSession>(*model->runtime, config.device, config.model.graph,
                                                     run::session_options(config));
  (void)run::load_named_weights(model->session->model(), config);
  model->session->step().prepare({});
  model->parameters = model->session->model().parameters().parameter_count();
  return model;
}

/// Parameters of the network itself: a weights file also has running statistics, which are none.
std::int64_t parameter_count(const Graph& graph) {
  ParameterArena parameters;
  BufferArena buffers;
  declare_tensors(graph, parameters, buffers);
  return parameters.parameter_count();
}

std::unique_ptr<bantam_model> opened(bantam_engine* engine, const std::filesystem::path& path,
                                     const bantam_open_options& options) {
  run::TrainedModel trained = run::open_trained_model(path, {.checkpoint = options.checkpoint ? options.checkpoint : "",
                                                             .config = options.config ? options.config : "",
                                                             .with_data = false});
  run::require_device(trained.config);
  auto model = std::make_unique<bantam_model>(
      bantam_model{.runtime = runtime_of(engine, trained.config, options.threads), .config = trained.config});
  if (options.batch_size < 0) throw BadArgument("options.batch_size is negative");
  if (options.batch_size > 0) model->most_batch = options.batch_size;
  model->class_names = std::move(trained.class_names);
  model->weights = std::move(trained.weights);
  model->predictor = std::make_unique<Predictor>(
      *model->runtime, trained.config.device, trained.config.model.graph, model->weights,
      PredictorOptions{.precision = trained.config.precision, .most_batch = model->most_batch});
  model->parameters = parameter_count(trained.config.model.graph);
  return model;
}

void copy_shape(const Shape& shape, std::int32_t& rank, std::int64_t* extents) {
  rank = shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis) extents[axis] = shape[axis];
}

StateRegistry state_of(TrainingSession& session) {
  StateRegistry registry;
  session.model().register_state(registry);
  session.optimizer().register_state(registry);
  return registry;
}

}  // namespace

TrainingSession& bantam::capi::training(bantam_model& model, const char* function) {
  if (model.session == nullptr)
    throw BadArgument(
        fmt::format("{}: this model was opened for predictions (bantam_model_open); one that trains is made "
                    "by bantam_model_create",
                    function));
  return *model.session;
}

bantam_status bantam_model_create(bantam_engine* engine, const bantam_config* config, bantam_model** model) {
  return guarded([&] {
    required(model, "model") = nullptr;
    *model = created(engine, required(config, "config").config).release();
  });
}

bantam_status bantam_model_open(bantam_engine* engine, const char* path, const bantam_open_options* options,
                                bantam_model** model) {
  return guarded([&] {
    required(model, "model") = nullptr;
    *model = opened(engine, &required(path, "path"), read_struct(options, "options")).release();
  });
}

void bantam_model_destroy(bantam_model* model) {
  destroy(model, "bantam_model_destroy: this is no handle of the program's");
}

bantam_status bantam_model_get_info(const bantam_model* model, bantam_model_info* info) {
  return guarded([&] {
    static_assert(BANTAM_MAX_RANK == Shape::kMaxRank);
    const run::RunConfig& config = required(model, "model").config;
    bantam_model_info facts = BANTAM_INIT(bantam_model_info);
    copy_shape(config.model.graph.input_shape(), facts.input_rank, facts.input_shape);
    copy_shape(config.model.graph.output_shape(), facts.output_rank, facts.output_shape);
    facts.parameters = model->parameters;
    facts.trains = model->session != nullptr ? 1 : 0;
    copy_text(facts.device, sizeof facts.device, to_string(config.device));
    if (config.memory.on_oom != OnOutOfMemory::fail)
      facts.repeated_batches = config.train.accumulate * config.train.replicas;
    write_struct(&required(info, "info"), facts, "info");
  });
}

bantam_status bantam_model_class_names(const bantam_model* model, char** json) {
  return guarded([&] { return_text(json, "json", json_text(required(model, "model").class_names)); });
}

bantam_status bantam_model_save(bantam_model* model, const char* path) {
  return guarded([&] {
    bantam_model& saved = required(model, "model");
    const std::filesystem::path file = &required(path, "path");
    if (saved.session != nullptr)
      save_weights(saved.session->model(), file);
    else
      write_safetensors(file, saved.weights);
  });
}

bantam_status bantam_model_load(bantam_model* model, const char* path) {
  return guarded(
      [&] { load_weights(training(required(model, "model"), "bantam_model_load").model(), &required(path, "path")); });
}

bantam_status bantam_model_save_state(bantam_model* model, const char* path) {
  return guarded([&] {
    TrainingSession& session = training(required(model, "model"), "bantam_model_save_state");
    save_state(state_of(session), session.model().context(Pass::train).stream, &required(path, "path"));
  });
}

bantam_status bantam_model_load_state(bantam_model* model, const char* path) {
  return guarded([&] {
    TrainingSession& session = training(required(model, "model"), "bantam_model_load_state");
    load_state(state_of(session), session.model().context(Pass::train).stream, &required(path, "path"));
  });
}

bantam_status bantam_model_memory_report(bantam_model* model, char** json) {
  return guarded([&] {
    bantam_model& asked = required(model, "model");
    return_text(json, "json", to_json(asked.runtime->memory_report(asked.config.device)));
  });
}
