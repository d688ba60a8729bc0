// Reads a configuration's top level; the sections' own readers stand in data/, models/ and train_config.cpp.
#include "bantam/run/config/run_config.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "bantam/base/config/config_attempts.h"
#include "bantam/base/config/config_path.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/delivery/given_samples.h"
#include "bantam/engine/model/frozen_norms.h"
#include "bantam/engine/model/synchronise.h"
#include "bantam/engine/optimizers/checks.h"
#include "bantam/engine/optimizers/muon.h"
#include "bantam/run/config/aliases.h"
#include "bantam/run/config/cache_config.h"
#include "bantam/run/config/config_text.h"
#include "bantam/run/config/given_config.h"
#include "bantam/run/config/sections.h"

namespace bantam::run {
namespace {

Device read_device(ConfigMap& root) {
  const std::string text = root.text(
      {"device",
       "Where the model is trained: auto (the first GPU, else the CPU), cpu, cuda:N (a GPU by its number), or cuda:N/M "
       "(share M of a GPU that memory.logical splits). Ranks of one run have a GPU each (SCALING.md)."},
      "auto");
  if (text == "auto") return cuda_device_count() > 0 ? Device::cuda(0) : Device::cpu();
  try {
    return parse_device(text);
  } catch (const DeviceError& error) {
    if (find_device_profile(text))
      root.node("device").fail(
          fmt::format("device: '{}' is the name of a card, for which `bantam plan CONFIG --device {}` plans;\n"
                      "  a run is on a device of this machine: auto, cpu or cuda:N",
                      text, find_device_profile(text)->name));
    root.node("device").fail(error.what());
  }
}

/// A share that is trained on must be cut from its device.
void require_share(ConfigMap& root, Device device, const MemoryConfig& memory) {
  if (!device.is_logical()) return;
  const auto shares = memory.logical.find(to_string(device.whole()));
  const std::size_t count = shares == memory.logical.end() ? 0 : shares->second.size();
  if (static_cast<std::size_t>(device.share) < count) return;
  const std::string whole = to_string(device.whole());
  root.node("device").fail(fmt::format("device: {} does not exist: {}", to_string(device),
                                       count == 0 ? fmt::format("{} is not split (memory.logical)", whole)
                                                  : fmt::format("memory.logical splits {} into {}", whole, count)));
}

/// The error is at its key, which is there where there is one.
void decide_decoder(ConfigMap& root, DataOptions& data, Device device) {
  if (root.self().is_described()) return;
  try {
    bantam::decide_decoder(data, device);
  } catch (const ConfigError& error) {
    root.node("data").as_map().node("decode").fail(error.what());
  }
}

/// `given`: samples in the place of those that the section names; null: there are none.
std::optional<DataOptions> read_data(ConfigMap& root, Device device, DataSection section, const SampleSplits* given) {
  const auto data = root.find({"data", "The data set and its way into batches.", "",
                               "no data: enough for summary, plan and bench, not for train"});
  if (!data || section == DataSection::skip) return std::nullopt;
  const StagesFor stages = section == DataSection::survey ? StagesFor::survey : StagesFor::batches;
  DataOptions read = given != nullptr ? read_data_config(*data, *given) : read_data_config(*data, stages);
  decide_decoder(root, read, device);
  return read;
}

void check_version(ConfigMap& root) {
  const auto version =
      root.integer({"version", "Version of the format of configurations. This program reads 1."}, {.min = 1}, 1);
  if (version != 1) root.node("version").fail(fmt::format("this program reads version 1, got {}", version));
}

/// Before any key that names a file.
void read_search_paths(ConfigMap& root, const ConfigDocument& document) {
  const auto folders = root.find(
      {"search_paths",
       "Folders in which relative paths of this file (data.path, weights, …) are looked for, after the current folder "
       "and that of this file. A run's config.yaml has those that had its data: it can be evaluated and resumed from "
       "any folder. In paths ~, $NAME and ${NAME} are expanded.",
       "[/home/me/project]", "no others"});
  if (!folders) return;
  std::vector<std::string> expanded;
  for (const ConfigNode& folder : folders->items()) expanded.push_back(expanded_path(folder));
  if (!folders->is_described()) add_search_folders(document, expanded);
}

Precision read_precision(ConfigMap& root, Device device) {
  const std::string precision = root.choice(
      {"precision",
       "Type that layers compute in. The mixed ones keep float32 weights and sums and compute in 16 bits; "
       "mixed_float16 scales the loss (train.loss_scale). float16 does so, too, and keeps the weights themselves in "
       "float16 alone: less memory, but changes of less than half a unit in the last place are lost; not "
       "with train.ema or train.prune. auto: mixed_float16 on a GPU, float32 on the CPU.",
       "float32"},
      {"auto", "float32", "mixed_float16", "mixed_bfloat16", "float16"}, "auto");
  return parse_precision(precision, device);
}

bool read_fusion(ConfigMap& root) {
  const std::string fusion = root.choice({"fusion",
                                          "on: chains of layers run as one operation where there is one. off: layer by "
                                          "layer, for looking into a model or comparing."},
                                         {"on", "off"}, "on");
  return fusion == "on";
}

std::string read_algorithms_file(ConfigMap& root) {
  return expanded_path(root.node(
      {"algorithms",
       "File of timed algorithms of the GPU's libraries: auto (a cache in the user's folder, timed where it has none), "
       "off (no timing: the libraries' first choice), or a path. Equal files mean equal bits. See ALGORITHMS.md."},
      "auto"));
}

/// The model's graph with the norms marked that groups freeze. Throws where a group has no parameters of it.
Graph with_groups(ConfigMap& root, const std::vector<GroupConfig>& configured, const Graph& graph) {
  if (configured.empty() || root.self().is_described()) return graph;
  const std::vector<std::string> names = parameter_names(graph);
  std::vector<ParameterGroup> groups;
  const std::vector<ConfigNode> items = root.node("train").as_map().node("groups").items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    groups.push_back(configured[i].group);
    // Any number but 0 says that it is not for good.
    groups.back().frozen_updates = configured[i].frozen_until.count;
    try {
      check_groups(groups, names);
    } catch (const ConfigError& error) {
      items[i].as_map().node("match").fail(error.what());
    }
  }
  return with_frozen_norms(graph, groups);
}

/// Each pattern in muon.exclude matches a weight of the model.
void require_exclusions_match(ConfigMap& root, const RunConfig& config) {
  const MuonOptions* muon = muon_options(*config.train.optimizer.rule);
  if (muon == nullptr) return;
  const std::vector<std::string>& exclude = muon->exclude;
  if (exclude.empty() || root.self().is_described()) return;
  ParameterArena parameters;
  BufferArena buffers;
  declare_tensors(config.model.graph, parameters, buffers);
  const std::vector<std::string> matrices = matrix_names(parameters);
  const ConfigNode optimizer = root.node("train").as_map().node("optimizer");
  const std::vector<ConfigNode> items = optimizer.as_named().options.as_map().node("exclude").items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    try {
      check_excluded({&exclude[i], 1}, matrices);
    } catch (const ConfigError& error) {
      items[i].fail(error.what());
    }
  }
}

models::ModelSpec no_model(ConfigMap& root, const std::string& name) {
  return {name, Graph({1}), root.self(), root.self()};
}

/// The keys that all uses of a configuration read. Without a model an empty one.
RunConfig read_beginning(ConfigMap& root, const ConfigDocument& document, const std::string& name) {
  ConfigAttempts attempt(root);
  attempt([&] { check_version(root); });
  attempt([&] { read_search_paths(root, document); });
  const auto seed = static_cast<std::uint64_t>(root.integer(
      {"seed", "Seed of weights, order of samples, augmentation and dropout. Runs of equal seeds have equal bits."},
      {.min = 0}, 42));
  RunConfig config{.document = document, .name = name, .seed = seed, .model = no_model(root, name)};
  attempt([&] { config.device = read_device(root); });
  attempt([&] { config.precision = read_precision(root, config.device); });
  return config;
}

MemoryConfig read_memory_section(ConfigMap& root) {
  return read_memory(root.map_or_empty({"memory", "Limits, budget, and what happens when memory runs out."}));
}

void require_on_oom(ConfigMap& root, OnOutOfMemory on_oom, const Graph& graph) {
  try {
    check_on_oom(on_oom, graph);
  } catch (const ConfigError& error) {
    root.node("memory").as_map().node("on_oom").fail(std::string("memory.") + error.what());
  }
}

/// Reads `recompute` and checks `memory.on_oom`, which depend on the network.
void read_beside_model(ConfigMap& root, RunConfig& config) {
  config.recompute_given = root.has("recompute") && !root.node("recompute", "none").is_text("auto");
  config.recompute = read_recompute(root, config.model.graph);
  require_on_oom(root, config.memory.on_oom, config.model.graph);
}

/// Optimizers and what follows an update must suit the precision.
void require_precision(ConfigMap& root, const OptimizerOptions& optimizer, Precision precision) {
  if (root.self().is_described()) return;
  if (const auto conflict = conflict_with(optimizer, precision))
    root.node("train").as_map().node(conflict->key).fail(fmt::format("train.{}: {}", conflict->key, conflict->text));
}

/// `train`, and what depends on it.
void read_training(ConfigMap& root, RunConfig& config) {
  config.train = read_train_config(root.map_or_empty({"train", "Epochs, loss, optimizer: how the model is trained."}),
                                   config.device);
  require_precision(root, config.train.optimizer, config.precision);
  if (config.model.weights && !config.train.initial_weights.empty() && !root.self().is_described())
    root.node("train").as_map().node("initial_weights").fail("model.weights names the weights to begin with already");
  if (config.data) config.data->evaluation = config.train.evaluation;
}

bool has_one_sample(const std::optional<DataOptions>& data) {
  return data && data->source.whole != nullptr && data->source.whole->facts().size == 1;
}

/// All sections of a configuration with a model. In a complete check each is read whatever is wrong with the others.
void read_sections(ConfigMap& root, RunConfig& config, DataSection section, const SampleSplits* given) {
  ConfigAttempts attempt(root);
  const bool has_model = attempt([&] {
    config.model = models::read_model(root.node({"model", "The network."}), config.name);
  });
  attempt([&] { config.memory = read_memory_section(root); });
  attempt([&] { require_share(root, config.device, config.memory); });
  config.fusion = read_fusion(root);
  config.algorithms = read_algorithms_file(root);
  attempt([&] {
    if (has_model)
      read_beside_model(root, config);
    else
      (void)root.find("recompute");
  });
  attempt([&] { config.data = read_data(root, config.device, section, given); });
  const bool has_training = attempt([&] { read_training(root, config); });
  // One sample cannot be split: the training samples are not known.
  const bool trains = section != DataSection::survey || !has_one_sample(config.data);
  if (!attempt.failed() && trains) decide_cache(config);
  if (!attempt.failed() && trains && config.data && !config.data->pipeline.batch_size_is_auto)
    set_batch_size(config, config.data->pipeline.batch_size);
  if (!attempt.failed()) {
    attempt([&] { config.model.graph = with_groups(root, config.train.groups, config.model.graph); });
    attempt([&] { require_exclusions_match(root, config); });
    if (config.train.sync_batch_norm && !root.self().is_described())
      config.model.graph = with_synchronised_norms(config.model.graph);
  }
  attempt([&] {
    if (has_training)
      config.checkpoint = read_checkpoint_config(root, config.train);
    else
      (void)root.find("checkpoint");
  });
  attempt([&] { config.log = read_log_config(root); });
  root.finish();
  attempt.finish();
}

/// Loss and metrics must suit the network's output, and views its input.
void fit_metrics(RunConfig& config, bool described) {
  try {
    const Shape& output = config.model.graph.output_shape();
    (void)targets_of(config.train.loss, output);
    std::vector<MetricPtr>& metrics = config.train.loss.metrics;
    if (!described && has_one_class(config)) {
      std::erase_if(metrics, [](const MetricPtr& metric) { return metric->kind() == "accuracy"; });
      metrics.insert(metrics.begin(), class_accuracy());
    }
    config.train.loss.metrics = metrics_for(output, std::move(config.train.loss.metrics));
    if (config.train.loss.views && !described)  // the description's example network reads no images
      check_views(*config.train.loss.views, config.model.graph);
  } catch (const ShapeError& error) {
    config.model.output.fail_at_key(error.what());
  }
}

/// Words of PyTorch, Keras and their users.
constexpr ConfigSynonym kSynonyms[] = {{"lr", "learning_rate", ""},
                                       {"batch_size", "batch.size", ""},
                                       {"batchsize", "batch.size", ""},
                                       {"bs", "batch.size", ""},
                                       {"num_epochs", "train.epochs", ""},
                                       {"wd", "weight_decay", ""},
                                       {"num_workers", "prefetch.workers", ""},
                                       {"grad_clip", "clip_norm", ""},
                                       {"gpu", "device", "cuda:0"},
                                       {"cuda", "device", "cuda:0"},
                                       {"fp16", "precision", "mixed_float16"},
                                       {"half", "precision", "mixed_float16"},
                                       {"amp", "precision", "mixed_float16"},
                                       {"bf16", "precision", "mixed_bfloat16"},
                                       {"fp32", "precision", "float32"}};

/// Keys of other programs are advised on, and names of values are replaced.
void use_foreign_words(ConfigDocument& document) {
  document.set_synonyms(kSynonyms);
  replace_foreign_names(document);
}

}  // namespace

RunConfig read_run_config(const std::filesystem::path& path, std::span<const std::string> overrides, DataSection data) {
  return parse_run_config(read_config_text(path), path, overrides, data);
}

RunConfig read_survey_config(const std::filesystem::path& path, std::span<const std::string> overrides) {
  const std::string text = read_config_text(path);
  ConfigDocument document = ConfigDocument::parse(text, path.string(), with_one_length(text, overrides));
  use_foreign_words(document);
  return read_document(document, path.stem().string(), DataSection::survey);
}

RunConfig parse_run_config(std::string_view text, const std::filesystem::path& path,
                           std::span<const std::string> overrides, DataSection data) {
  ConfigDocument document = ConfigDocument::parse(text, path.string(), with_one_length(text, overrides));
  use_foreign_words(document);
  return read_document(document, path.stem().string(), data);
}

RunConfig read_document(const ConfigDocument& document, const std::string& name, DataSection section) {
  ConfigMap root = document.map();
  const bool has_model = section != DataSection::survey || root.has("model");
  RunConfig config = read_beginning(root, document, name);
  if (!has_model) {
    config.memory = read_memory_section(root);
    config.data = read_data(root, config.device, section, nullptr);
    decide_cache(config);
    return config;
  }
  read_sections(root, config, section, nullptr);
  fit_metrics(config, root.self().is_described());
  return config;
}

RunConfig read_document(ConfigDocument document, const std::string& name, const SampleSplits& given) {
  use_foreign_words(document);
  ConfigMap root = document.map();
  RunConfig config = read_beginning(root, document, name);
  read_sections(root, config, DataSection::read, &given);
  fit_metrics(config, root.self().is_described());
  return config;
}

CheckedConfig checked_config(const std::filesystem::path& path, std::span<const std::string> overrides) {
  CheckedConfig checked;
  try {
    const std::string text = ConfigDocument::read_text(path);
    ConfigDocument document = ConfigDocument::parse(text, path.string(), with_one_length(text, overrides));
    use_foreign_words(document);
    collect_errors(document);
    ConfigAttempts attempt(document.root());
    attempt([&] {
      const RunConfig config = read_document(document, path.stem().string());
      if (collected_errors(document).empty()) require_model_fits(config);
    });
    checked.errors = collected_errors(document);
    if (const std::size_t more = further_errors(document); more > 0)
      checked.errors.push_back(
          fmt::format("{}: and {} more errors", path.string(), format_count(static_cast<std::int64_t>(more))));
    // Read once more by a document that throws: what reads it later does not add to the errors.
    if (checked.errors.empty()) checked.config = parse_run_config(text, path, overrides);
  } catch (const ConfigError& error) {  // of a text that is no YAML, or of an override: nothing more is known
    checked.errors = {error.what()};
  }
  return checked;
}

DeviceRates rates_of(const RunConfig& config, Precision precision) {
  return config.planned_for ? typical_rates(*config.planned_for, precision) : typical_rates(config.device, precision);
}

std::int64_t updates_per_epoch(const RunConfig& config, std::int64_t batch) {
  if (!config.data) return 1;
  const std::int64_t samples = epoch_samples(*config.data);
  const std::int64_t batches = config.data->pipeline.drop_last ? samples / batch : (samples + batch - 1) / batch;
  return updates_of(batches, config.train.accumulate, config.train.replicas);
}

std::int64_t updates_of_run(const RunConfig& config, std::int64_t batch) {
  return config.train.updates > 0 ? config.train.updates : updates_per_epoch(config, batch) * config.train.epochs;
}

void set_batch_size(RunConfig& config, std::int64_t batch) {
  config.data->pipeline.batch_size = batch;
  config.data->pipeline.batch_size_is_auto = false;
  const std::int64_t updates = config.train.updates;
  const std::int64_t each = updates > 0 && batch > 0 ? updates_per_epoch(config, batch) : 0;
  if (each > 0) config.train.epochs = (updates + each - 1) / each;
}

std::vector<std::string> with_one_length(std::string_view text, std::span<const std::string> overrides) {
  const auto names = [](std::string_view key) {
    return [key](const std::string& override) { return override.starts_with(key); };
  };
  const bool epochs = std::ranges::any_of(overrides, names("train.epochs="));
  const bool updates = std::ranges::any_of(overrides, names("train.updates="));
  std::vector<std::string> all(overrides.begin(), overrides.end());
  // A text without the word cannot have the key, which is the other's default.
  const bool in_updates = updates && std::ranges::find(overrides, "train.updates=0") == overrides.end();
  if (in_updates && !epochs) all.emplace_back("train.epochs=auto");
  if (epochs && !updates && text.find("updates") != std::string_view::npos) all.emplace_back("train.updates=0");
  return all;
}

ModelOptions model_options(const RunConfig& config, Precision precision, const RecomputeOptions& recompute) {
  ModelOptions options{.precision = precision, .seed = config.seed, .recompute = recompute, .fusion = config.fusion};
  for (const GroupConfig& group : config.train.groups) {
    const bool epochs = group.frozen_until.unit == Duration::Unit::epochs && config.data;
    options.groups.push_back(group.group);
    options.groups.back().frozen_updates =
        group.frozen_until.count * (epochs ? updates_per_epoch(config, config.data->pipeline.batch_size) : 1);
  }
  return options;
}

ModelOptions model_options(const RunConfig& config) {
  return model_options(config, config.precision, config.recompute);
}

ReplicaOptions replica_options(const RunConfig& config) {
  return {.replicas = config.train.replicas,
          .dealt = config.assigned,
          .rank = config.rank,
          .gradients = config.train.gradients};
}

SessionOptions session_options(const RunConfig& config) {
  return {.model = model_options(config),
          .optimizer = config.train.optimizer,
          .loss = config.train.loss,
          .replicas = replica_options(config)};
}

void require_device(const RunConfig& config) {
  if (config.device.kind != DeviceKind::cuda || config.device.index < cuda_device_count()) return;
  const std::string reason = cuda_unavailable_reason();
  throw DeviceError(
      fmt::format("device {} was asked for, but {}; `bantam devices` lists what there is", to_string(config.device),
                  reason.empty() ? fmt::format("this machine has {} CUDA devices", cuda_device_count()) : reason));
}

std::unique_ptr<Runtime> make_runtime(const RunConfig& config, int threads, std::function<void(std::string_view)> log) {
  // Without growth the planned peak is reserved once the run is planned; the whole limit need not be taken.
  RuntimeOptions options{
      .threads = threads, .limits = config.memory.limits, .logical = config.memory.logical, .log = std::move(log)};
  if (config.memory.budget > 0) options.budgets[to_string(config.device)] = config.memory.budget;
  return std::make_unique<Runtime>(std::move(options));
}

}  // namespace bantam::run
