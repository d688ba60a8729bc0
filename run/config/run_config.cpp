// Reads a configuration's top level; the sections' own readers stand in data/, models/ and train_config.cpp.
#include "bantam/run/config/run_config.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

#include "bantam/base/config/config_attempts.h"
#include "bantam/base/config/config_path.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/delivery/given_samples.h"
#include "bantam/engine/graph/frozen_norms.h"
#include "bantam/engine/graph/lower.h"
#include "bantam/engine/graph/synchronise.h"
#include "bantam/engine/optimizers/checks.h"
#include "bantam/engine/optimizers/muon.h"
#include "bantam/kernels/input/image_batch.h"
#include "bantam/models/yaml/graph_building.h"
#include "bantam/run/config/aliases.h"
#include "bantam/run/config/config_text.h"
#include "bantam/run/config/given_config.h"

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

/// The device that a key of the map `of` names.
std::string device_at_key(std::string_view of, const std::string& key, const ConfigNode& value) {
  try {
    const Device device = parse_device(key);
    if (device.is_logical())
      value.fail_at_key(
          fmt::format("{}: '{}' is a share: name the device, and give its shares in memory.logical", of, key));
    return to_string(device);
  } catch (const DeviceError& error) {
    value.fail_at_key(fmt::format("{}: {}", of, error.what()));
  }
}

/// `limits` or `logical`: a value for each device, which has several names ("cuda" is "cuda:0").
template <class Value, class Read>
std::map<std::string, Value> read_devices(ConfigMap& memory, ConfigKey key, const Read& read) {
  std::map<std::string, Value> values;
  std::map<std::string, std::string> keys;  // as written, by device
  const auto found = memory.find(key);
  if (!found) return values;
  for (const auto& [name, value] : found->entries()) {
    const std::string device = device_at_key(found->path(), name, value);
    const auto [first, fresh] = keys.try_emplace(device, name);
    if (!fresh)
      value.fail_at_key(
          fmt::format("duplicate key '{}' in {}: it is the device of '{}'", name, found->path(), first->second));
    values.emplace(device, read(value));
  }
  return values;
}

/// One limit, or a list with an entry for each rank.
std::vector<std::uint64_t> read_limit(const ConfigNode& value) {
  if (!value.is_list()) return {value.as_byte_size(1)};
  std::vector<std::uint64_t> limits;
  for (const ConfigNode& limit : value.items()) limits.push_back(limit.as_byte_size(1));
  if (limits.empty()) value.fail(value.path() + ": expected the bytes of each rank, as [2GiB, 1GiB]");
  return limits;
}

std::vector<std::uint64_t> read_shares(const ConfigNode& value) {
  std::vector<std::uint64_t> shares;
  for (const ConfigNode& share : value.items()) shares.push_back(share.as_byte_size(1));
  if (shares.empty()) value.fail(value.path() + ": expected the bytes of each share, as [2GiB, 1GiB]");
  return shares;
}

OnOutOfMemory read_on_oom(ConfigMap& map) {
  const std::string policy = map.choice(
      {"on_oom",
       "What an update does that runs out of memory. fail: the run ends, saved; accumulate: it is repeated in halved "
       "micro-batches, refused for models with batch norm; accumulate_with_batch_norm: the same with batch norm, whose "
       "statistics are then those of the smaller micro-batches.",
       "accumulate"},
      {"fail", "accumulate", "accumulate_with_batch_norm"}, "fail");
  if (policy == "fail") return OnOutOfMemory::fail;
  return policy == "accumulate" ? OnOutOfMemory::accumulate : OnOutOfMemory::accumulate_with_batch_norm;
}

MemoryConfig read_memory(ConfigMap map) {
  map.self().describe(
      "How much memory the run may have, and what happens where it is too little. See LIMITS.md and FITTING.md.",
      "memory:\n  limits: {\"cuda:0\": 4GiB, cpu: 8GiB}\n  on_oom: accumulate");
  MemoryConfig memory;
  memory.growth = map.boolean(
      {"growth",
       "true: where the device does not have the planned pool at once, memory is reserved as it is needed. false: that "
       "is an error before training."},
      true);
  const auto limits = read_devices<std::vector<std::uint64_t>>(
      map,
      {"limits",
       "Most bytes of this process on a device, by the device's name. On a GPU all that the driver counts for the "
       "process, on the CPU the allocator's pools. A list has a limit for each rank of a run; of ranks on several GPUs "
       "each has the limit of its own, else that of cuda (SCALING.md).",
       "{\"cuda:0\": 4GiB, cpu: 8GiB} | {cpu: [200MiB, 100MiB]}", "no limit"},
      read_limit);
  for (const auto& [device, bytes] : limits) {
    memory.limits[device] = bytes.front();
    if (bytes.size() > 1) memory.limits_by_rank[device] = bytes;
  }
  memory.logical = read_devices<std::vector<std::uint64_t>>(
      map,
      {"logical", "Splits a device into shares of these bytes, each a device of its own: cuda:1/0, cuda:1/1, ….",
       "{\"cuda:1\": [2GiB, 1GiB]}", "no device is split"},
      read_shares);
  memory.budget = map.byte_size(
      {"budget",
       "Bytes of the run's pool: what backward recomputes is chosen to fit, with the least extra work. 0: no budget.",
       "1.5GiB"},
      0);
  memory.on_oom = read_on_oom(map);
  map.finish();
  return memory;
}

/// A share that is trained on must be cut from its device.
void require_share(ConfigMap& root, const RunConfig& config) {
  const Device device = config.device;
  if (!device.is_logical()) return;
  const auto shares = config.memory.logical.find(to_string(device.whole()));
  const std::size_t count = shares == config.memory.logical.end() ? 0 : shares->second.size();
  if (static_cast<std::size_t>(device.share) < count) return;
  const std::string whole = to_string(device.whole());
  root.node("device").fail(fmt::format("device: {} does not exist: {}", to_string(device),
                                       count == 0 ? fmt::format("{} is not split (memory.logical)", whole)
                                                  : fmt::format("memory.logical splits {} into {}", whole, count)));
}

/// A list's meaning: `inner`, `cheap` and `whole` in it are no names. Throws ConfigError for words that would do
/// nothing.
RecomputeOptions named_recompute(std::vector<std::string> names) {
  RecomputeOptions options;
  const bool inner = std::erase(names, "inner") > 0, cheap = std::erase(names, "cheap") > 0;
  if (inner && cheap)
    throw ConfigError("recompute: inner and cheap exclude each other: cheap is all of inner and more");
  if (inner) options.derive = Derive::inner;
  if (cheap) options.derive = Derive::cheap;
  options.whole = std::erase(names, "whole") > 0;
  if (options.whole && options.derive == Derive::none)
    throw ConfigError("recompute: whole does nothing alone: it stands beside inner or cheap");
  if (!names.empty()) options.kind = RecomputeOptions::Kind::named;
  options.names = std::move(names);
  return options;
}

/// What is wrong with one entry of a list is said at the entry.
std::vector<std::string> read_recompute_list(const ConfigNode& node, const Graph& graph) {
  const std::vector<ConfigNode> items = node.items();
  const std::vector<std::string> names = node.as_texts();
  if (names.empty()) node.fail("recompute: an empty list; say none, inner, cheap, all or name layers and blocks");
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i))
      items[i].fail(fmt::format("recompute: '{}' is named twice", names[i]));
    if (names[i] == "inner" || names[i] == "cheap" || names[i] == "whole") continue;
    try {
      (void)lower(graph, {.kind = RecomputeOptions::Kind::named, .names = {names[i]}});
    } catch (const ConfigError& error) {
      items[i].fail(error.what());
    }
  }
  return names;
}

RecomputeOptions read_recompute(ConfigMap& root, const Graph& graph) {
  const ConfigNode node = root.node(
      {"recompute",
       "What backward computes again instead of keeping it from forward: less memory for more time, with the same "
       "bits. none: nothing; inner: normalised, activated and dropped-out tensors; cheap: sums, too; all: every block, "
       "about a second forward; a list: the layers, blocks and segments (first..last) named, with inner or cheap, and "
       "whole, as words of it. auto, or where the key is missing: what a budget or limit asks for. See RECOMPUTE.md.",
       "all | auto | [cheap, flatten]"},
      "none");
  if (!node.is_list()) {
    if (node.is_text("auto")) return {};
    if (node.is_text("none") || node.is_text("inner") || node.is_text("cheap") || node.is_text("all"))
      return parse_recompute(node.as_choice({"none", "inner", "cheap", "all", "auto"}));
    node.fail("recompute: expected none, inner, cheap, all, auto or a list of layers' and blocks' names");
  }
  std::vector<std::string> names = read_recompute_list(node, graph);
  try {
    const RecomputeOptions options = named_recompute(std::move(names));
    (void)lower(graph, options);  // of names that are right each by itself
    return options;
  } catch (const ConfigError& error) {
    node.fail(error.what());
  }
}

/// The ranks that a configuration is settled for.
struct CacheRanks {
  int all = 1, local = 1;  ///< in the run; on this host
};

/// Host memory available to data sets of each rank: three quarters of what the CPU's limit, or a budget there, allows
/// every rank, and of its share of what is free on this machine.
std::uint64_t host_room(const RunConfig& config, const CacheRanks& ranks) {
  constexpr std::uint64_t kQuarters = 3;
  std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  const auto limit = config.memory.limits.find("cpu");
  if (limit != config.memory.limits.end()) most = limit->second;
  const auto by_rank = config.memory.limits_by_rank.find("cpu");
  if (ranks.all > 1 && by_rank != config.memory.limits_by_rank.end())
    most = std::min(most, *std::ranges::min_element(by_rank->second));
  if (config.device == Device::cpu() && config.memory.budget > 0) most = std::min(most, config.memory.budget);
  if (const std::uint64_t free = device_info(Device::cpu()).free_bytes; free > 0)
    most = std::min(most, free / static_cast<std::uint64_t>(ranks.local));
  return most / 4 * kQuarters;
}

/// For a cache that the configuration does not ask for: a quarter of what is free on the current folder's disk, below
/// which a run's folder lies by default.
std::uint64_t disk_room() {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(".", error);
  return error ? 0 : space.available / 4;
}

/// An eighth of the least of the bytes that the configuration names for the run's device; 0: it names none.
std::uint64_t share_of_named(const RunConfig& config) {
  constexpr std::uint64_t kShare = 8;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  const auto limit = config.memory.limits.find(to_string(config.device));
  const auto split = config.memory.logical.find(to_string(config.device.whole()));
  if (limit != config.memory.limits.end()) least = std::min(least, limit->second);
  if (config.memory.budget > 0) least = std::min(least, config.memory.budget);
  if (config.device.is_logical() && split != config.memory.logical.end())
    least = std::min(least, split->second.at(static_cast<std::size_t>(config.device.share)));
  return least == std::numeric_limits<std::uint64_t>::max() ? 0 : least / kShare;
}

constexpr std::uint64_t kLittle = 1u << 30;  // of data, for any GPU

/// `cache: auto`: on a GPU the data sets lie on the device where they are a small share of the run's limit, or, where
/// nothing bounds it, small for any GPU; on disk or nowhere, where host memory has no room for them. For the device a
/// rule of the configuration alone, so that plans hold.
void settle_cache(RunConfig& config, const CacheRanks& ranks = {}) {
  if (!config.data || config.data->pipeline.cache != CacheKind::automatic) return;
  const std::uint64_t named = share_of_named(config);
  const bool is_gpu = config.device.kind == DeviceKind::cuda;
  std::uint64_t host = host_room(config, ranks);
  // A data set of most of a small budget would leave the batch less than a still smaller budget does.
  if (!is_gpu && config.data->pipeline.batch_size_is_auto && named > 0) host = std::min(host, named);
  settle_cache(*config.data, {.device_bytes = is_gpu ? (named > 0 ? std::min(named, kLittle) : kLittle) : 0,
                              .host_bytes = host,
                              .disk_bytes = ranks.all > 1 ? 0 : disk_room()});
}

/// The error is at its key, which is there where there is one.
void settle_decoder(ConfigMap& root, RunConfig& config) {
  if (!config.data || root.self().is_described()) return;
  try {
    bantam::settle_decoder(*config.data, config.device);
  } catch (const ConfigError& error) {
    root.node("data").as_map().node("decode").fail(error.what());
  }
}

/// `given`: samples in the place of those that the section names; null: there are none.
void read_data(ConfigMap& root, RunConfig& config, DataSection section, const SampleSplits* given) {
  const auto data = root.find({"data", "The data set and its way into batches.", "",
                               "no data: enough for summary, plan and bench, not for train"});
  if (!data || section == DataSection::skip) return;
  const bool survey = section == DataSection::survey;
  if (given != nullptr)
    config.data = read_data_config(*data, *given);
  else
    config.data = read_data_config(*data, survey ? StagesFor::survey : StagesFor::batches);
  settle_decoder(root, config);
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

/// Each group has parameters of the model, in which norms that are frozen are then marked.
void require_groups_match(ConfigMap& root, RunConfig& config) {
  if (config.train.groups.empty() || root.self().is_described()) return;
  const std::vector<std::string> names = parameter_names(config.model.graph);
  std::vector<ParameterGroup> groups;
  const std::vector<ConfigNode> items = root.node("train").as_map().node("groups").items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    groups.push_back(config.train.groups[i].group);
    // Any number but 0 says that it is not for good.
    groups.back().frozen_updates = config.train.groups[i].frozen_until.count;
    try {
      check_groups(groups, names);
    } catch (const ConfigError& error) {
      items[i].as_map().node("match").fail(error.what());
    }
  }
  config.model.graph = with_frozen_norms(config.model.graph, groups);
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

void read_memory_of(ConfigMap& root, RunConfig& config) {
  config.memory = read_memory(root.map_or_empty({"memory", "Limits, budget, and what happens when memory runs out."}));
}

void require_on_oom(ConfigMap& root, const RunConfig& config) {
  try {
    check_on_oom(config.memory.on_oom, config.model.graph);
  } catch (const ConfigError& error) {
    root.node("memory").as_map().node("on_oom").fail(std::string("memory.") + error.what());
  }
}

/// What a model's network decides beside its own section.
void read_beside_model(ConfigMap& root, RunConfig& config) {
  config.recompute_given = root.has("recompute") && !root.node("recompute", "none").is_text("auto");
  config.recompute = read_recompute(root, config.model.graph);
  require_on_oom(root, config);
}

/// Optimizers and what follows an update must suit the precision.
void require_precision(ConfigMap& root, const RunConfig& config) {
  if (root.self().is_described()) return;
  if (const auto conflict = conflict_with(config.train.optimizer, config.precision))
    root.node("train").as_map().node(conflict->key).fail(fmt::format("train.{}: {}", conflict->key, conflict->text));
}

/// `train`, and what depends on it.
void read_training(ConfigMap& root, RunConfig& config) {
  config.train = read_train_config(root.map_or_empty({"train", "Epochs, loss, optimizer: how the model is trained."}),
                                   config.device);
  require_precision(root, config);
  if (config.model.weights && !config.train.initial_weights.empty() && !root.self().is_described())
    root.node("train").as_map().node("initial_weights").fail("model.weights names the weights to begin with already");
  if (config.data) config.data->evaluation = config.train.evaluation;
}

bool has_one_sample(const RunConfig& config) {
  return config.data && config.data->source.whole != nullptr && config.data->source.whole->facts().size == 1;
}

/// All sections of a configuration with a model. In a complete check each is read whatever is wrong with the others.
void read_sections(ConfigMap& root, RunConfig& config, DataSection section, const SampleSplits* given) {
  ConfigAttempts attempt(root);
  const bool has_model = attempt([&] {
    config.model = models::read_model(root.node({"model", "The network."}), config.name);
  });
  attempt([&] { read_memory_of(root, config); });
  attempt([&] { require_share(root, config); });
  config.fusion = read_fusion(root);
  config.algorithms = read_algorithms_file(root);
  attempt([&] {
    if (has_model)
      read_beside_model(root, config);
    else
      (void)root.find("recompute");
  });
  attempt([&] { read_data(root, config, section, given); });
  const bool has_training = attempt([&] { read_training(root, config); });
  // Of one sample none can be held out: what is trained is not known.
  const bool trains = section != DataSection::survey || !has_one_sample(config);
  if (!attempt.failed() && trains) settle_cache(config);
  if (!attempt.failed() && trains && config.data) settle_epochs(config, config.data->pipeline.batch_size);
  if (!attempt.failed()) {
    attempt([&] { require_groups_match(root, config); });
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
void settle_metrics(RunConfig& config, bool described) {
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
    read_memory_of(root, config);
    read_data(root, config, section, nullptr);
    settle_cache(config);
    return config;
  }
  read_sections(root, config, section, nullptr);
  settle_metrics(config, root.self().is_described());
  return config;
}

RunConfig read_document(ConfigDocument document, const std::string& name, const SampleSplits& given) {
  use_foreign_words(document);
  ConfigMap root = document.map();
  RunConfig config = read_beginning(root, document, name);
  read_sections(root, config, DataSection::read, &given);
  settle_metrics(config, root.self().is_described());
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

std::uint64_t cache_room(const RunConfig& config) {
  if (!config.data || !config.data->cache_is_auto) return 0;
  const std::uint64_t named = share_of_named(config);
  return config.device.kind == DeviceKind::cuda ? std::min(named, kLittle) : named;
}

void settle_cache_of_ranks(RunConfig& config, int ranks, int local_ranks) {
  if (ranks <= 1 || !config.data || !config.data->cache_is_auto) return;
  config.data->pipeline.cache = CacheKind::automatic;
  settle_cache(config, {.all = ranks, .local = local_ranks > 0 ? std::min(local_ranks, ranks) : ranks});
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

void settle_epochs(RunConfig& config, std::int64_t batch) {
  const std::int64_t updates = config.train.updates, each = batch > 0 ? updates_per_epoch(config, batch) : 0;
  if (updates > 0 && each > 0) config.train.epochs = (updates + each - 1) / each;
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
          .dealt = config.dealt,
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

namespace {

bool loss_reads(const RunConfig& config, std::string_view name) {
  const std::vector<TensorFacts> reads = config.train.loss.loss->targets(config.model.graph.output_shape());
  return std::ranges::find(reads, name, &TensorFacts::name) != reads.end();
}

}  // namespace

bool has_one_class(const RunConfig& config) {
  const bool softmax = config.train.loss.loss->output_kind() == OutputKind::softmax;
  if (softmax || loss_reads(config, kLabels) || !loss_reads(config, kTargets)) return false;
  if (config.train.one_class) return *config.train.one_class;
  if (!config.data || !config.data->pipeline.mix.any()) return false;
  const std::vector<SampleField> stored = train_facts(*config.data).targets;
  return std::ranges::find(stored, kTargets, &SampleField::name) == stored.end();
}

std::string_view accuracy_name(const RunConfig& config) {
  if (has_one_class(config)) return "accuracy";
  const Loss& loss = *config.train.loss.loss;
  if (!loss.counts_correct()) return "";
  return loss.output_kind() == OutputKind::sigmoid ? "binary_accuracy" : "accuracy";
}

namespace {

/// What batches have beside images: the fields of the configuration's data, or labels.
std::vector<SampleField> target_fields(const RunConfig& config) {
  return config.data ? batch_facts(*config.data).targets : DatasetFacts{}.targets;
}

/// Who reads a target: "the loss mse reads".
std::string readers_of(const RunConfig& config, std::string_view name) {
  const Loss& loss = *config.train.loss.loss;
  for (const TensorFacts& facts : loss.targets(config.model.graph.output_shape()))
    if (facts.name == name) return fmt::format("the loss {} reads", loss.kind());
  return "a metric reads";
}

/// Pixels of no class count nothing in the loss either: their number is no class's.
void require_ignored(const RunConfig& config) {
  if (!config.data) return;
  const std::optional<std::int32_t> ignored = train_facts(*config.data).ignored_label;
  const Loss& loss = *config.train.loss.loss;
  if (!ignored || !loss_reads(config, kLabels)) return;
  if (loss.ignored_label() != ignored)
    config.model.output.fail_at_key(
        fmt::format("data.ignore: pixels of {} have no class, so the loss must leave them out: "
                    "train.loss: {{softmax_cross_entropy: {{ignore_index: {}}}}}",
                    *ignored, *ignored));
}

/// What stages write to masks' pixels from outside is a class, or a number that the loss leaves out: any other makes
/// the loss NaN.
void require_fills(const RunConfig& config, std::int64_t classes) {
  if (!config.data) return;
  const auto is_mask = [](const SampleField& field) { return field.shape.rank() >= 2 && field.dtype == DType::int32; };
  if (std::ranges::none_of(train_facts(*config.data).targets, is_mask)) return;
  const std::optional<std::int32_t> ignored = config.train.loss.loss->ignored_label();
  for (const auto& stage : config.data->pipeline.augmentations)
    if (const auto fill = stage->mask_fill(); fill && *fill >= classes && fill != ignored)
      config.model.output.fail_at_key(fmt::format(
          "data.pipeline: {} fills masks with {}, which is none of the {} classes, and the loss does not leave it out: "
          "write {}: {{mask_fill: 0}} for class 0, or train.loss: {{softmax_cross_entropy: {{ignore_index: {}}}}}",
          stage->name(), *fill, classes, stage->name(), *fill));
}

/// Fails at the model's output where the data do not have what the loss or a metric reads.
void require_target(const RunConfig& config, const TensorFacts& reads, std::int64_t classes) {
  const auto fail = [&](const std::string& message) { config.model.output.fail_at_key(message); };
  const std::vector<SampleField> fields = target_fields(config);
  const auto field = std::ranges::find(fields, reads.name, &SampleField::name);
  if (field == fields.end()) {
    std::vector<std::string> names = {std::string(kImages)};
    for (const SampleField& other : fields) names.push_back(other.name);
    const bool has_values = std::ranges::find(fields, kTargets, &SampleField::name) != fields.end();
    const std::string_view advice =
        reads.name == kLabels && has_values
            ? "; for targets that are values name a loss and metrics of values: binary_cross_entropy, "
              "{softmax_cross_entropy: {targets: values}} or mse, and {f1: {multi_label: true}}, say"
        : reads.name == kTargets ? "; for class numbers name a loss of classes, such as softmax_cross_entropy, "
                                   "or write one_hot before the batch stage"
                                 : "";
    fail(fmt::format("{} '{}', but the data have {}{}", readers_of(config, reads.name), reads.name,
                     join(names, ", ", " and "), advice));
  }
  if (reads.name == kLabels && field->shape.rank() == 0 && reads.shape.rank() > 0)
    fail(
        fmt::format("the data have a label an image, so that a model ends with one value a class, as that of dense: "
                    "{{units: classes}}; this ends with {}",
                    to_string(config.model.graph.output_shape())));
  if (reads.classes > 0 && reads.classes != classes)
    fail(fmt::format("the model's output is {}, but the data have {}: {}", to_string(config.model.graph.output_shape()),
                     counted(classes, "class", "classes"),
                     config.document.map().map("model").has("zoo")
                         ? fmt::format("write model.classes: {}", classes)
                         : fmt::format("the last layer needs as many values, such as dense: {{units: {}}}", classes)));
  if (field->shape != reads.shape)
    fail(fmt::format("the model's output is {}, so that '{}' must be {} a sample, but the data's are {}",
                     to_string(config.model.graph.output_shape()), reads.name, to_string(reads.shape),
                     to_string(field->shape)));
  if (reads.dtype && field->dtype != *reads.dtype)
    fail(fmt::format("the loss or a metric reads '{}' of {}, but the data's are {}", reads.name,
                     to_string(*reads.dtype), to_string(field->dtype)));
}

/// A loss of labels would train mixed images on one of their two classes.
void require_soft_loss(const RunConfig& config) {
  if (!config.data || !config.data->pipeline.mix.any()) return;
  if (loss_reads(config, kLabels) && !loss_reads(config, kTargets))
    config.model.output.fail_at_key(
        "the pipeline has one_hot, mixup or cutmix, whose probabilities are in 'targets', but the loss reads 'labels': "
        "write `train.loss: {softmax_cross_entropy: {targets: values}}`");
}

}  // namespace

void require_model_fits(const RunConfig& config, const Shape& image, std::int64_t classes) {
  const Graph& graph = config.model.graph;
  if (graph.input_shape() != image) {
    const Shape& input = graph.input_shape();
    const bool channels_first = input.rank() == 3 && image.rank() == 3 && Shape{input[1], input[2], input[0]} == image;
    config.model.input.fail(
        fmt::format("the model expects {}, but the data's images are {} after the pipeline's stages{}",
                    to_string(input), to_string(image),
                    channels_first ? fmt::format(": input is [height, width, channels], write input: [{}, {}, {}]",
                                                 image[0], image[1], image[2])
                                   : models::channels_first_hint(input)));
  }
  require_soft_loss(config);
  require_ignored(config);
  require_fills(config, classes);
  for (const TensorFacts& target : targets_of(config.train.loss, graph.output_shape()))
    if (target.name != kImages) require_target(config, target, classes);
}

void require_one_size(const RunConfig& config) {
  const Shape trained = batch_facts(*config.data).image_shape, evaluated = evaluated_image(*config.data);
  if (evaluated == trained) return;
  ConfigMap data = config.document.map().map("data");
  const auto section = data.find("evaluation");
  const ConfigNode stages = section ? section->as_map().node("pipeline") : data.node("pipeline");
  const std::vector<ConfigNode> items = stages.items();
  (items.empty() ? stages : items.back())
      .fail(fmt::format("validation images are {} after this stage, but training's are {}, and `train` evaluates at "
                        "training's size;\n  evaluate at {} afterwards: bantam evaluate RUN "
                        "'data.evaluation.pipeline=[…]'",
                        to_string(evaluated), to_string(trained), to_string(evaluated)));
}

void require_model_fits(const RunConfig& config) {
  if (!config.data) return;
  require_one_size(config);
  const DatasetFacts facts = batch_facts(*config.data);
  require_model_fits(config, facts.image_shape, static_cast<std::int64_t>(facts.class_names.size()));
}

RecomputeOptions parse_recompute(const std::string& text) {
  if (text == "none") return {};
  if (text == "all") return {.kind = RecomputeOptions::Kind::all, .derive = Derive::cheap};
  std::vector<std::string> names;
  std::istringstream parts(text);
  for (std::string name; std::getline(parts, name, '+');) names.push_back(name);
  return named_recompute(std::move(names));
}

std::vector<std::string> recompute_words(const RecomputeOptions& recompute) {
  std::vector<std::string> words;
  if (recompute.derive == Derive::inner) words.emplace_back("inner");
  if (recompute.derive == Derive::cheap) words.emplace_back("cheap");
  if (recompute.whole) words.emplace_back("whole");
  return words;
}

std::string to_string(const RecomputeOptions& recompute) {
  if (recompute.kind == RecomputeOptions::Kind::all) return "all";
  std::vector<std::string> parts = recompute_words(recompute);
  if (recompute.kind == RecomputeOptions::Kind::named)
    parts.insert(parts.end(), recompute.names.begin(), recompute.names.end());
  return parts.empty() ? "none" : join(parts, "+", "+");
}

std::unique_ptr<Runtime> make_runtime(const RunConfig& config, int threads, std::function<void(std::string_view)> log) {
  // Without growth the planned peak is reserved once the run is planned; the whole limit need not be taken.
  RuntimeOptions options{
      .threads = threads, .limits = config.memory.limits, .logical = config.memory.logical, .log = std::move(log)};
  if (config.memory.budget > 0) options.budgets[to_string(config.device)] = config.memory.budget;
  return std::make_unique<Runtime>(std::move(options));
}

}  // namespace bantam::run
