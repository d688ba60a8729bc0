// From a path to a file of weights and its configuration, and from these to a checked model.
#include "bantam/run/trained/trained_model.h"

#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/sha256.h"
#include "bantam/base/text.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/engine/model/model.h"
#include "bantam/run/train/checkpoint_folder.h"
#include "bantam/run/train/run_record.h"
#include "bantam/run/weights/initial_weights.h"

namespace bantam::run {
namespace fs = std::filesystem;
namespace {

/// A file that has the weights, and where its configuration is.
struct Located {
  fs::path run;             ///< empty: the file lies outside of one
  fs::path file;            ///< a file of weights, or, `from_state`, of a checkpoint's whole state
  bool from_state = false;  ///< the averages are "ema/weights/…" and "ema/buffers/…" of it
  bool averaged = false;    ///< the file has averages
  std::optional<std::int64_t> updates = std::nullopt;
  FileSum sum = {};  ///< of a checkpoint's file, as checkpoint.json has it
  int names = 0;     ///< how many names the path has within the run's folder; 0: the file lies outside of one
};

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_run(const fs::path& folder) { return is_there(folder / "config.yaml"); }

fs::path parent_of(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

/// The run whose file `path` is; empty: none.
fs::path run_around(const fs::path& path) {
  fs::path folder = parent_of(path);
  if (is_run(folder)) return folder;
  if (!is_checkpoint(folder)) return {};
  fs::path above = parent_of(parent_of(folder));
  return is_run(above) ? above : fs::path();
}

/// "update-00000100 and update-00000200, weights.safetensors".
std::string what_there_is(const fs::path& run) {
  std::vector<std::string> names;
  for (const Checkpoint& checkpoint : CheckpointFolder(run).list())
    names.push_back(fmt::format("{}", checkpoint.updates));
  std::string text =
      names.empty() ? "it has no checkpoints" : fmt::format("it has checkpoints {}", join(names, ", ", " and "));
  std::vector<std::string> files;
  for (const char* file : {"weights.safetensors", "weights-best.safetensors", "weights-ema.safetensors"})
    if (is_there(run / file)) files.emplace_back(file);
  return text + (files.empty() ? " and no weights" : fmt::format(", and {}", join(files, ", ", " and ")));
}

Located of_checkpoint(const fs::path& run, const Checkpoint& checkpoint, bool ema) {
  const CheckpointFacts facts = checkpoint.read();  // whole, and of a version that this program reads
  return {.run = run,
          .file = ema ? checkpoint.state() : checkpoint.weights(),
          .from_state = ema,
          .averaged = ema,
          .updates = checkpoint.updates,
          .sum = ema ? facts.state : facts.weights,
          .names = 3};
}

Located of_newest(const fs::path& run, bool ema) {
  for (int tries = 3;; --tries) {
    const std::vector<Checkpoint> all = CheckpointFolder(run).list();
    if (all.empty())
      throw DataError(fmt::format("{} has no checkpoint to be its last: {}", run.string(), what_there_is(run)));
    try {
      return of_checkpoint(run, all.front(), ema);
    } catch (const DataError&) {
      // A run under way may have removed it since, for a newer one.
      if (tries == 0 || is_there(all.front().path)) throw;
    }
  }
}

Located of_best(const fs::path& run, bool ema) {
  const fs::path file = run / "weights-best.safetensors";
  if (!is_there(file))
    throw DataError(fmt::format(
        "{} has no weights-best.safetensors, which a run keeps where its configuration says so (checkpoint.best="
        "{{metric: accuracy}}); {}",
        run.string(), what_there_is(run)));
  const RunConfig config = read_run_config(run / "config.yaml", {}, DataSection::skip);
  const std::optional<EmaOptions>& average = config.train.optimizer.ema;
  const bool averaged = average && average->evaluate;
  if (ema && !averaged)
    throw DataError(
        fmt::format("{}: the best weights are not averages: the run's evaluations were of the weights themselves "
                    "(train.ema.evaluate)",
                    file.string()));
  return {.run = run, .file = file, .averaged = averaged, .names = 1};
}

Located of_updates(const fs::path& run, const TrainedModelOptions& options) {
  const std::string& text = options.checkpoint;
  std::int64_t updates = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), updates);
  if (error != std::errc() || end != text.data() + text.size())
    throw ConfigError(
        fmt::format("--checkpoint: expected last, best or a number of updates, got '{}'", shown(text, 40)));
  for (const Checkpoint& checkpoint : CheckpointFolder(run).list())
    if (checkpoint.updates == updates) return of_checkpoint(run, checkpoint, options.ema);
  throw DataError(
      fmt::format("{} has no checkpoint of {}: {}", run.string(), counted(updates, "update"), what_there_is(run)));
}

/// Whether the run's final files are those of its end, and not of an end before it was resumed.
bool has_ended(const fs::path& run) {
  const std::optional<RunRecord> record = read_record(run / "run.json");
  return !record || record->state == RunState::finished || record->state == RunState::stopped ||
         CheckpointFolder(run).list().empty();
}

Located of_run(const fs::path& run, const TrainedModelOptions& options) {
  if (options.checkpoint == "last") return of_newest(run, options.ema);
  if (options.checkpoint == "best") return of_best(run, options.ema);
  if (!options.checkpoint.empty()) return of_updates(run, options);
  const fs::path file = run / (options.ema ? "weights-ema.safetensors" : "weights.safetensors");
  if (is_there(file) && has_ended(run)) return {.run = run, .file = file, .averaged = options.ema, .names = 1};
  if (!CheckpointFolder(run).list().empty()) return of_newest(run, options.ema);
  if (is_there(run / "weights.safetensors"))
    throw DataError(fmt::format("{} has no {}: {}", run.string(), file.filename().string(), what_there_is(run)));
  throw DataError(fmt::format("{} is a run without a checkpoint and without weights so far", run.string()));
}

Located of_file(const fs::path& path, const TrainedModelOptions& options) {
  if (!options.checkpoint.empty())
    throw ConfigError(fmt::format("--checkpoint chooses among a run's; {} is a file", path.string()));
  const fs::path run = run_around(path);
  if (path.filename() == "state.safetensors" && is_checkpoint(parent_of(path)))
    throw DataError(
        fmt::format("{} is a checkpoint's whole state; name its folder {}", path.string(), parent_of(path).string()));
  const bool averaged = path.filename() == "weights-ema.safetensors";
  if (options.ema && !averaged)
    throw ConfigError(
        fmt::format("--ema: {} has one set of weights; name the run's folder or its checkpoint's", path.string()));
  if (run.empty() || !is_checkpoint(parent_of(path)))
    return {.run = run, .file = path, .averaged = averaged, .names = run.empty() ? 0 : 1};
  const Checkpoint checkpoint{.path = parent_of(path)};
  const bool is_its = path.filename() == checkpoint.weights().filename() && is_there(checkpoint.facts());
  return {.run = run, .file = path, .sum = is_its ? checkpoint.read().weights : FileSum{}, .names = 3};
}

Located of_folder(const fs::path& path, const TrainedModelOptions& options) {
  if (is_checkpoint(path)) {
    if (!options.checkpoint.empty())
      throw ConfigError(fmt::format("--checkpoint chooses among a run's; {} is one already", path.string()));
    const fs::path run = parent_of(parent_of(path));
    const fs::path name = path.filename();
    for (const Checkpoint& checkpoint : CheckpointFolder(run).list())
      if (checkpoint.path.filename() == name)
        return of_checkpoint(is_run(run) ? run : fs::path(), checkpoint, options.ema);
  }
  if (!is_run(path) && !(is_there(path / "weights.safetensors") && !options.config.empty()))
    throw DataError(fmt::format("{} holds no run: there is no config.yaml in it; {}", path.string(),
                                is_run("runs" / path)
                                    ? fmt::format("did you mean runs/{}?", path.string())
                                    : fmt::format("`bantam runs {}` lists the runs below it", path.string())));
  return of_run(path, options);
}

Located locate(const fs::path& given, const TrainedModelOptions& options) {
  const fs::path path = given.has_filename() ? given : given.parent_path();  // of "runs/a/"
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw DataError(fmt::format("{}: there is no such run and no such file{}", path.string(),
                                is_run("runs" / path) ? fmt::format("; did you mean runs/{}?", path.string()) : ""));
  if (status.type() == fs::file_type::none) throw DataError(fmt::format("{}: {}", path.string(), error.message()));
  return fs::is_directory(status) ? of_folder(path, options) : of_file(path, options);
}

/// Joins the parts of a set that is evaluated as a whole: all samples stand for both, and none is split off, as of one
/// photo none can be.
void join_parts(RunConfig& config) {
  if (!config.data || config.data->source.whole == nullptr) return;
  SampleSplits& source = config.data->source;
  source.train = source.validation = source.whole;
  config.data->validation.split = 0;
}

RunConfig read_config_of(const Located& located, const TrainedModelOptions& options) {
  if (options.config.empty() && located.run.empty())
    throw ConfigError(fmt::format(
        "{}: a weights file does not say what network it is of: name the configuration that it was trained with",
        located.file.string()));
  const fs::path path = options.config.empty() ? located.run / "config.yaml" : options.config;
  const DataSection data = options.with_data ? DataSection::read : DataSection::skip;
  RunConfig config = [&] {
    try {
      return options.with_data && options.whole_set ? read_survey_config(path, options.overrides)
                                                    : read_run_config(path, options.overrides, data);
    } catch (const ConfigError& error) {
      throw with_program_of(error, located.run);
    }
  }();
  if (options.whole_set) join_parts(config);
  // A run's configuration is called config.yaml: what it was read from is in its record.
  if (options.config.empty())
    if (const auto record = read_record(located.run / "run.json")) config.name = record->name;
  return config;
}

/// The averages of a checkpoint's state, under the names of what they are averages of.
SafetensorsFile averages_of(SafetensorsFile state, const fs::path& path) {
  SafetensorsFile file;
  for (auto& [name, tensor] : state.tensors)
    for (const std::string_view prefix : {"ema/weights/", "ema/buffers/"}) {
      if (!name.starts_with(prefix)) continue;
      file.tensors.emplace(name.substr(prefix.size()), std::move(tensor));
      break;
    }
  if (file.tensors.empty())
    throw DataError(
        fmt::format("{}: has no averaged weights: the run's configuration has no train.ema", path.string()));
  return file;
}

std::string read_bytes(const Located& located) {
  if (located.names == 0) return read_file(located.file);
  if (located.sum.bytes > 0) return Checkpoint{.path = parent_of(located.file)}.read_file(located.file, located.sum);
  return read_file(FolderFile{.path = located.file, .names = located.names});
}

/// The checkpoint that was written with a run's end, where it is there and sound.
std::optional<CheckpointFacts> end_of(const fs::path& run, const RunRecord& record) {
  if (record.state != RunState::finished && record.state != RunState::stopped) return std::nullopt;
  try {
    const std::vector<Checkpoint> all = CheckpointFolder(run).list();
    if (all.empty() || all.front().updates != record.updates) return std::nullopt;
    return all.front().read();
  } catch (const DataError&) {
    return std::nullopt;
  }
}

/// A file of a run carries the run's id; the files of its end have sums that its last checkpoint knows. A file that
/// another program has put there carries no id, and is used as it is.
void check_run(const Located& located, const SafetensorsFile& file, std::string_view bytes) {
  const std::string name = located.file.filename().string();
  const auto of = file.metadata.find(kRunIdKey);
  const bool is_its = name.starts_with("weights") || name.starts_with("state");
  if (located.run.empty() || !is_its || of == file.metadata.end()) return;
  const std::optional<RunRecord> record = read_record(located.run / "run.json");
  if (!record || record->id.empty()) return;
  constexpr std::string_view kRemedy = "a copy outside of the run's folder can be used with --config";
  if (record->id != of->second)
    throw DataError(fmt::format("{}: is of another run: it names run {}, and run.json beside it has {}; {}",
                                located.file.string(), shown(of->second), shown(record->id), kRemedy));
  if (located.names != 1 || (name != "weights.safetensors" && name != "weights-best.safetensors")) return;
  const std::optional<CheckpointFacts> end = end_of(located.run, *record);
  if (!end || end->weights.sha256.empty()) return;
  const std::string sha256 = sha256_of(bytes);
  const bool is_best = sha256 == end->best_sha256;  // weights.safetensors may be that: train.restore_best
  if (!is_best && (name != "weights.safetensors" || sha256 != end->weights.sha256))
    throw DataError(
        fmt::format("{}: is not what the run ended with: it has the SHA-256 {}, expected {}; --checkpoint last "
                    "uses the checkpoint in its place; {}",
                    located.file.string(), sha256,
                    name == "weights.safetensors" ? end->weights.sha256 : end->best_sha256, kRemedy));
}

SafetensorsFile read_weights(const Located& located) {
  const std::string bytes = read_bytes(located);
  refuse_other_formats(bytes, located.file);
  SafetensorsFile file = parse_safetensors(bytes, located.file);
  check_run(located, file, bytes);
  return located.from_state ? averages_of(std::move(file), located.file) : file;
}

/// All that the model has and nothing else, as float32: asked of a stand-in of it.
void check_weights(const RunConfig& config, const Located& located, SafetensorsFile& file) {
  Runtime runtime({.threads = 1});
  Model model(runtime, Device::meta_of(Device::cpu()), config.model.graph, {.precision = Precision()});
  (void)load_weights(model, file, located.file, {.advises = false});
  for (auto& [name, tensor] : file.tensors)
    if (tensor.dtype != DType::float32) tensor = to_float32(tensor);
}

/// A JSON list in a weights file's metadata.
std::vector<std::string> names_in(const SafetensorsFile& file) {
  const auto found = file.metadata.find("class_names");
  if (found == file.metadata.end()) return {};
  const nlohmann::ordered_json json = nlohmann::ordered_json::parse(found->second, nullptr, false);
  std::vector<std::string> names;
  if (json.is_array())
    for (const nlohmann::ordered_json& name : json)
      if (name.is_string()) names.push_back(name.get<std::string>());
  return std::ssize(names) == std::ssize(json) ? names : std::vector<std::string>();
}

/// Reads the class names of the configuration's data; none where they cannot be listed: nothing else needs them.
std::vector<std::string> names_of_data(const RunConfig& config) {
  try {
    if (config.data) return train_facts(*config.data).class_names;
    const auto data = config.document.map().find("data");
    return data ? train_facts(read_data_config(*data)).class_names : std::vector<std::string>();
  } catch (const Error&) {
    return {};
  }
}

std::vector<std::string> class_names_of(const TrainedModel& model) {
  if (std::vector<std::string> names = names_in(model.weights); !names.empty()) return names;
  if (!model.run.empty())
    if (const auto record = read_record(model.run / "run.json"); record && !record->class_names.empty())
      return record->class_names;
  return names_of_data(model.config);
}

}  // namespace

TrainedModel open_trained_model(const fs::path& path, const TrainedModelOptions& options) {
  const Located located = locate(path, options);
  // Before the data are listed, which may take long: a run under way removes old checkpoints.
  SafetensorsFile weights = read_weights(located);
  TrainedModel model{.config = read_config_of(located, options),
                     .run = located.run,
                     .weights_file = located.file,
                     .weights = std::move(weights),
                     .class_names = {},
                     .updates = located.updates,
                     .averaged = located.averaged};
  check_weights(model.config, located, model.weights);
  model.class_names = class_names_of(model);
  return model;
}

}  // namespace bantam::run
