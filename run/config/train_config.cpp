// Reads `train:`: epochs, loss, metrics, optimizer. Names come from the engine's tables.
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/config/config_attempts.h"
#include "bantam/base/config/config_path.h"
#include "bantam/base/error.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/run/config/pruning_config.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {
namespace {

float number(ConfigMap& options, ConfigKey key, NumberRange range, double otherwise) {
  return static_cast<float>(options.number(key, range, otherwise));
}

constexpr NumberRange kNotNegative{.min = 0, .max = 1e30};

void read_loss_scale(ConfigMap scale, OptimizerOptions& optimizer) {
  optimizer.initial_loss_scale =
      number(scale, {"initial", "The scale before the first update.", "1024"}, {.min = 1, .max = 16777216}, 32768);
  optimizer.loss_scale_growth_interval = static_cast<std::int32_t>(
      scale.integer({"growth_interval", "The scale is doubled after this many updates without an overflow.", "1000"},
                    {.min = 1, .max = 1 << 30}, 2000));
  scale.finish();
}

std::int64_t read_log_every(ConfigMap& train) {
  return train
      .duration({"log_every",
                 "Updates a line of the run's metrics.jsonl. The line has the metrics of all updates since the line "
                 "before.",
                 "50"},
                {.min = 1, .epochs = false, .seconds = false}, Duration::updates(1))
      .count;
}

/// "1000samples" or "10batches"; false of anything else.
bool read_counted(const ConfigNode& limit, EvaluationOptions& evaluation) {
  std::string text;
  try {
    text = limit.as_text();
  } catch (const ConfigError&) {  // a number out of range: the caller says so
    return false;
  }
  std::int64_t count = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  std::string_view unit(rest, text.data() + text.size());
  unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
  const bool is_batches = unit == "batch" || unit == "batches";
  // A first digit of 1 to 9 also says that no sign and no zero stands before the number.
  if (error != std::errc() || text.front() < '1' || text.front() > '9' || count >= 1'000'000'000) return false;
  if (!is_batches && unit != "sample" && unit != "samples") return false;
  (is_batches ? evaluation.batches : evaluation.samples) = count;
  return true;
}

void read_limit(const ConfigNode& limit, EvaluationOptions& evaluation) {
  try {
    evaluation.samples = limit.as_integer({.min = 1, .max = 1'000'000'000});
  } catch (const ConfigError&) {
    if (!read_counted(limit, evaluation)) throw;
  }
}

/// [[top, left], …] in the image with its border; by default two opposite corners of it.
std::vector<EvaluationViews::Crop> read_crops(ConfigMap& views, std::int64_t padding) {
  std::vector<EvaluationViews::Crop> crops;
  if (padding > 0) crops = {{0, 0}, {2 * padding, 2 * padding}};
  const auto places = views.find({"crops",
                                  "Crops of the image's size from the image with its border, each as [top, left] of "
                                  "its corner there, from 0 to twice the padding.",
                                  "[[0, 0], [2, 2]]", "with padding, two opposite corners: [0, 0] and [2p, 2p]"});
  if (!places) return crops;
  crops.clear();
  for (const ConfigNode& place : places->items()) {
    const auto [top, left] = place.as_pair({.min = 0, .max = 2 * padding});
    crops.push_back({top, left});
  }
  return crops;
}

EvaluationViews read_views(const ConfigNode& node) {
  constexpr std::int64_t kMostPadding = 1024;
  ConfigMap map = node.as_map();
  EvaluationViews views;
  views.flip = map.boolean({"flip", "Also the mirror image, of the image itself and of each crop.", "false"}, true);
  views.padding =
      map.integer({"padding", "Pixels of a border on each side of the image, of which crops are made.", "1"},
                  {.min = 0, .max = kMostPadding}, 0);
  views.reflect = map.choice({"mode",
                              "What the border holds. reflect: the image mirrored, without its edge; zero: 0, after "
                              "normalisation.",
                              "zero"},
                             {"reflect", "zero"}, "reflect") == "reflect";
  views.crops = read_crops(map, node.is_described() ? kMostPadding : views.padding);
  views.share = map.number({"share",
                            "Only this share of the samples has views: those with the lowest top probability by the "
                            "image itself, of equal ones the first of the set. The others keep that output. They are "
                            "chosen among all samples, which are read twice. For losses of a softmax, without "
                            "train.replicas.",
                            "0.25"},
                           {.min = 0, .max = 1, .min_open = true}, 1);
  map.finish();
  return views;
}

void read_evaluation(const ConfigNode& node, TrainConfig& config) {
  if (!node.is_map()) {
    config.evaluate = node.as_boolean();
    return;
  }
  ConfigMap map = node.as_map();
  config.evaluate_every =
      map.duration({"every",
                    "Epochs or updates from one evaluation to the next, counted from the run's beginning; the run's "
                    "end has one in any case.",
                    "2epochs | 500updates"},
                   {.min = 1, .seconds = false}, Duration::epochs(1));
  if (const auto limit = map.find({"limit",
                                   "Only so many validation samples, or batches of them: the first ones; evenly spread "
                                   "ones where samples stand class after class, as with data.limit. The test set is "
                                   "evaluated whole.",
                                   "1000 | 10batches", "all"}))
    read_limit(*limit, config.evaluation);
  if (const auto batch = map.find({"batch_size", "Samples of an evaluated batch.", "256", "that of training"}))
    config.evaluation.batch_size = batch->as_integer({.min = 1, .max = 1 << 24});
  if (const auto views = map.find({"views",
                                   "Test-time augmentation: each evaluated image is seen in several views, the image "
                                   "as it comes first, and loss and metrics are of the mean of their outputs (of "
                                   "logits, where the loss makes probabilities of them). An output of one axis. "
                                   "Predictions are without views.",
                                   "{flip: true, padding: 1, share: 0.25}", "the image alone"})) {
    config.loss.views = read_views(*views);
    try {
      if (!views->is_described() && config.loss.loss)
        check_views(*config.loss.views, *config.loss.loss, config.replicas);
    } catch (const ConfigError& error) {
      views->fail(error.what());
    }
  }
  map.finish();
}

SplitOptions read_split(ConfigMap& train) {
  const ConfigNode node = train.node(
      {"split",
       "How many replicas each rank of a run has. even: as many as the others, or one less; auto: by the "
       "speeds that ranks measure at the start; or a list with an entry for each rank. Results do not depend "
       "on it.",
       "auto | [2, 1, 1]"},
      "even");
  if (!node.is_list()) {
    const bool even = node.as_choice({"even", "auto"}) == "even";
    return {.kind = even ? SplitOptions::Kind::even : SplitOptions::Kind::automatic};
  }
  SplitOptions split{.kind = SplitOptions::Kind::given};
  for (const std::int64_t count : node.as_integers({.min = 1, .max = ReplicaOptions::kMost}))
    split.counts.push_back(static_cast<int>(count));
  return split;
}

StepMode read_mode(ConfigMap& train, Device device) {
  const std::string mode = train.choice({"mode",
                                         "How steps run. eager: op by op; planned: op by op, in memory that was laid "
                                         "out before the first step; captured: "
                                         "recorded once and replayed as one launch (CUDA graphs). auto: captured on a "
                                         "GPU, else planned. All have the same "
                                         "results.",
                                         "planned"},
                                        {"auto", "eager", "planned", "captured"}, "auto");
  return parse_step_mode(mode, device);
}

GroupConfig read_group(const ConfigNode& item) {
  ConfigMap map = item.as_map();
  GroupConfig config;
  ParameterGroup& group = config.group;
  group.match =
      map.text({"match",
                "Names of parameters, as `bantam summary` and weights.safetensors have them: * is any text, ? "
                "one character.",
                "\"*/norm*\""});
  if (const auto decay =
          map.find({"weight_decay", "In place of the optimizer's weight decay.", "0", "the optimizer's"}))
    group.weight_decay = static_cast<float>(decay->as_number(kNotNegative));
  group.learning_rate_scale =
      number(map, {"learning_rate_scale", "The learning rate is multiplied by it.", "10"}, kNotNegative, 1.0);
  group.freeze = map.boolean({"freeze",
                              "true: these parameters do not train, and need no gradient and no optimizer memory. A "
                              "batch norm whose parameters are all frozen uses its running statistics.",
                              "true"},
                             false);
  const auto until = map.find({"until",
                               "With freeze: updates or epochs after which they train all the same, their optimizer's "
                               "state from zero then. Only "
                               "updates that were done count.",
                               "5epochs", "for good"});
  if (until) config.frozen_until = until->as_duration({.min = 1, .seconds = false});
  map.finish();
  if (until && !group.freeze && !item.is_described()) until->fail_at_key("until belongs to freeze: true");
  const bool has_values = group.weight_decay.has_value() || group.learning_rate_scale != 1.0f;
  if (group.freeze && !until && has_values && !item.is_described())
    item.fail("a group that is frozen for good has no weight_decay and no learning_rate_scale");
  return config;
}

std::vector<GroupConfig> read_groups(ConfigMap& train) {
  std::vector<GroupConfig> groups;
  const auto node =
      train.find({"groups",
                  "Parameters that are frozen, or have values of their own, by their names. The first group "
                  "that matches a name counts.",
                  "[{match: \"*/weight\", weight_decay: 0}, {match: \"*\", freeze: true, until: 5epochs}]",
                  "all parameters train alike"});
  if (!node) return groups;
  for (const ConfigNode& item : node->items()) groups.push_back(read_group(item));
  return groups;
}

/// `train.schedule` is another place for the learning rate's schedule.
void read_schedule_of_rate(ConfigMap& train, OptimizerOptions& optimizer) {
  ScheduleMaker schedule = read_schedule(train);
  if (!schedule) return;
  if (optimizer.schedules.learning_rate && !train.self().is_described())
    train.node("schedule")
        .fail_at_key("train.schedule: the optimizer's learning_rate has a schedule already; one of the two is enough");
  optimizer.schedules.learning_rate = std::move(schedule);
}

/// Those of a run's schedules that evaluations move. Of a run's length nothing is known yet: a schedule whose order of
/// updates and epochs depends on it is none of them.
std::vector<std::shared_ptr<EvaluatedSchedule>> evaluated_schedules(const OptimizerOptions& optimizer) {
  std::vector<std::shared_ptr<EvaluatedSchedule>> evaluated;
  const OptimizerSchedules& makers = optimizer.schedules;
  for (const ScheduleMaker* maker : {&makers.learning_rate, &makers.weight_decay, &makers.momentum}) {
    if (!*maker) continue;
    try {
      const Schedule schedule = (*maker)({.updates = 1, .updates_per_epoch = 1});
      if (schedule.evaluated() != nullptr) evaluated.push_back(schedule.evaluated());
    } catch (const ConfigError&) {
    }
  }
  return evaluated;
}

/// They need an evaluation, and a metric that it has.
void check_evaluated(ConfigMap& train, TrainConfig& config) {
  const std::vector<std::string> names = metric_names(config);
  for (const auto& schedule : evaluated_schedules(config.optimizer)) {
    config.follows_evaluations = true;
    const ConfigNode at = train.node("optimizer");
    if (!config.evaluate) at.fail_at_key("on_plateau needs evaluations; train.evaluate is false");
    if (std::ranges::find(names, schedule->metric()) == names.end())
      at.fail_at_key(fmt::format("on_plateau: expected metric to be one of {}, got '{}'", fmt::join(names, ", "),
                                 schedule->metric()));
  }
}

}  // namespace

namespace {

int read_replicas(ConfigMap& train) {
  const ConfigKey key{
      "replicas",
      "Parts of the effective batch that are trained on as if each had a device of its own, one after another or on "
      "several ranks: a power of two. Each runs `accumulate` batches, with running statistics of its own; gradients, "
      "statistics and metrics are added in a tree over the replicas, so that results have the same bits on any number "
      "of ranks. The effective batch is replicas × accumulate × batch size; batches of an epoch that are too few for "
      "an update are left out. Needs memory for log2(replicas) more gradients.",
      "4"};
  const auto replicas = static_cast<int>(train.integer(key, {.min = 1, .max = ReplicaOptions::kMost}, 1));
  if ((replicas & (replicas - 1)) != 0)
    train.find(key)->fail(
        fmt::format("train.replicas: expected a power of two from 1 to {}, got {}", ReplicaOptions::kMost, replicas));
  return replicas;
}

DType read_gradients(ConfigMap& train) {
  const std::string type = train.choice(
      {"gradients",
       "Of several replicas: the type that gradients are added in among them. float16 halves the bytes that travel "
       "between ranks; each replica's gradients and each sum are rounded to it, on any number of ranks, also on one. "
       "What exceeds 65504 is not finite, so the update is skipped, and the loss scale halved; what is under 3e-8 is "
       "lost: best with precision mixed_float16, which scales the loss. Needs half as much memory as the gradients "
       "more, for each sum that travels.",
       "float16"},
      {"float32", "float16"}, "float32");
  return type == "float16" ? DType::float16 : DType::float32;
}

}  // namespace

WatchedMetric watched_by_default(const TrainConfig& train) {
  for (const MetricPtr& metric : train.loss.metrics)
    if (metric->kind() == "accuracy" && train.loss.loss->counts_correct()) return {.metric = "accuracy"};
  return {.metric = "loss", .larger = false};
}

namespace {

std::optional<bool> read_one_class(ConfigMap& train) {
  const ConfigNode node = train.node(
      {"one_class",
       "Whether a sample has exactly one class where the loss reads float32 targets, as binary_cross_entropy and mse "
       "do: accuracy is then the share of samples whose largest output is the class, and predictions name that class. "
       "false: any number of classes a sample, or numbers. auto: true where the targets are made of class numbers "
       "(stages one_hot, mixup, cutmix).",
       "true"},
      "auto");
  if (node.is_text("auto")) return std::nullopt;
  return node.as_boolean();
}

/// `epochs` or `updates`: one of the two is the run's length.
void read_length(ConfigMap& train, TrainConfig& config) {
  const ConfigKey key{
      "updates",
      "Updates of the whole run, in place of epochs: the last epoch may end after a part of its updates, "
      "and the run is then complete. Schedules are made for as many. 0: as many as the epochs have.",
      "243"};
  config.updates = train.integer(key, {.min = 0, .max = 1'000'000'000'000}, 0);
  const ConfigNode epochs =
      train.node({"epochs", "Passes over the training samples. auto: as many as train.updates need.", "10"},
                 config.updates > 0 && !train.self().is_described() ? "auto" : "1");
  const bool is_auto = epochs.is_text("auto");
  if (!is_auto) config.epochs = epochs.as_integer({.min = 1, .max = 1'000'000'000});
  if (train.self().is_described()) return;
  if (is_auto && config.updates == 0)
    epochs.fail_at_key("train.epochs: auto needs train.updates, the length of the run in updates");
  if (!is_auto && config.updates > 0)
    train.find(key)->fail_at_key(
        fmt::format("train.updates {} and train.epochs {}: expected one of the two, each is the length of the run",
                    config.updates, config.epochs));
}

}  // namespace

TrainConfig read_train_config(ConfigMap train, Device device) {
  train.describe("How the model is trained.",
                 "train:\n  epochs: 30\n  optimizer:\n    sgd: {learning_rate: 0.05, momentum: 0.9, nesterov: true}\n"
                 "  loss: {softmax_cross_entropy: {label_smoothing: 0.1}}\n  clip_norm: 1.0");
  TrainConfig config;
  ConfigAttempts attempt(train);
  attempt([&] { read_length(train, config); });
  config.accumulate = train.integer(
      {"accumulate",
       "Batches an update: gradients are averaged over this many before the weights change. The effective batch is "
       "accumulate × batch size, in the memory of one batch.",
       "4"},
      {.min = 1, .max = 1'000'000}, 1);
  config.replicas = read_replicas(train);
  config.gradients = read_gradients(train);
  config.sync_batch_norm = train.boolean(
      {"sync_batch_norm",
       "Batch norms of several replicas compute their statistics, and the sums of their gradients, over the batches of "
       "all "
       "replicas that run at the same time, as if they were one batch: for small batches a rank. Each replica needs a "
       "rank of its own (--gpus, --ranks). Two small messages a norm and batch; norms run as passes of their own, in "
       "no "
       "fusion."},
      false);
  config.split = read_split(train);
  attempt([&] { config.loss.loss = read_loss(train); });
  attempt([&] { config.loss.metrics = read_metrics(train); });
  config.one_class = read_one_class(train);
  if (!attempt.failed() && !config.loss.loss->counts_correct() && !train.has("metrics"))
    std::erase_if(config.loss.metrics, [](const MetricPtr& metric) { return metric->kind() == "accuracy"; });
  attempt([&] { config.optimizer = read_optimizer(train); });
  attempt([&] { config.optimizer.ema = read_ema(train); });
  attempt([&] { config.optimizer.prune = read_prune(train); });
  attempt([&] { read_schedule_of_rate(train, config.optimizer); });
  attempt([&] { config.groups = read_groups(train); });
  config.optimizer.layer_decay = number(
      train,
      {"layer_decay",
       "Factor of the learning rate from each block of the network to the one before it: with 0.75 the last layer has "
       "the optimizer's rate, the last block 0.75 of it, the block before that 0.56. Layers before the first block "
       "count as one block, other layers outside blocks to the block before them. groups' learning_rate_scale "
       "multiplies it. 1: all layers have the same rate.",
       "0.75"},
      {.min = 0, .max = 1, .min_open = true}, 1.0);
  config.initial_weights =
      as_path(train.node({"initial_weights",
                          "A weights.safetensors that a new run begins with: what has the name and shape of one of "
                          "its tensors. The rest, a new head say, begins as the seed says. Empty: all of it does.",
                          "runs/first/weights.safetensors"},
                         ""))
          .string();
  attempt([&] { config.callbacks = read_callbacks(train); });
  config.optimizer.clip_norm = number(
      train,
      {"clip_norm",
       "Largest norm of the gradients of all weights together: where theirs is larger, they are scaled down to it. "
       "0: no clipping.",
       "1.0"},
      kNotNegative, 0.0);
  config.optimizer.clip_value = number(
      train,
      {"clip_value",
       "Largest magnitude of a single gradient: larger ones are cut to it, after clip_norm has scaled all. 0: no "
       "clipping.",
       "0.5"},
      kNotNegative, 0.0);
  read_loss_scale(
      train.map_or_empty({"loss_scale",
                          "Of precision mixed_float16 and float16: the loss is multiplied by this scale, so that small "
                          "gradients do not vanish in float16. An update whose gradients overflow is "
                          "skipped, and the scale is halved."}),
      config.optimizer);
  config.log_every = read_log_every(train);
  const ConfigNode evaluate =
      train.node({"evaluate",
                  "Evaluate on the validation samples (data.validation): true, after each epoch; false, never, and no "
                  "test set either; or when and on how many.",
                  "true | {every: 2epochs, limit: 10batches, batch_size: 256} | {views: {flip: true}}"},
                 "true");
  attempt([&] { read_evaluation(evaluate, config); });
  const bool knows_metrics = !attempt.failed();  // which early stopping chooses from
  attempt([&] {
    if (knows_metrics)
      read_stop_early(train, config);
    else
      (void)train.find("stop_early");
  });
  config.max_updates =
      train.integer({"max_updates",
                     "Updates of the whole run, over all epochs and sessions: it ends with the last of "
                     "them, in mid-epoch too, and is saved. 0: as many as the epochs have.",
                     "10000"},
                    {.min = 0}, 0);
  config.max_seconds =
      train
          .duration({"max_time",
                     "Time of one session of training: the run then stops, is saved, and exits with 0; "
                     "--resume goes on with another session. 0: no limit.",
                     "55min"},
                    {.updates = false, .epochs = false}, Duration::seconds(0))
          .count;
  config.mode = read_mode(train, device);
  if (!train.self().is_described() && !attempt.failed()) check_evaluated(train, config);
  train.finish();
  attempt.finish();
  return config;
}

}  // namespace bantam::run
