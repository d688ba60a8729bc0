// From a survey of the samples to the lines of a configuration.
#include "bantam/run/init/first_config.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/data/survey/split_survey.h"
#include "bantam/memory/device/host_info.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/init/found_data.h"
#include "bantam/run/init/found_masks.h"

namespace bantam::run {
namespace {

/// The kind of answer that the network has for a sample.
enum class Task : std::uint8_t { classes, labels, values, masks };

/// The data set as far as the configuration depends on it.
struct Measured {
  FoundData found;
  SplitSurvey survey;  ///< of the training samples
  std::int64_t held_out = 0;
  Task task = Task::classes;
  std::int64_t outputs = 1;  ///< classes, labels or values
  double deviation = 0;      ///< standard deviation of values to predict, each about its own mean
  std::vector<std::string> warnings = {};
};

/// Choices that several sections share.
struct Choices {
  bool files = false, vectors = false;  ///< images are files; samples are rows of numbers
  std::int64_t height = 0, width = 0, channels = 0;
  std::int64_t batch = 1, epochs = 1;
};

constexpr std::int64_t kMostMaskClasses = 256;

std::string data_lines(const FoundData& found, std::string_view indent) {
  std::string text = fmt::format("{}format: {}\n", indent, found.format);
  for (const std::string& key : found.keys) text += fmt::format("{}{}\n", indent, key);
  return text;
}

SplitSurvey surveyed(const FoundData& found, int threads, std::int64_t& held_out, std::vector<std::string>& warnings) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;
  const ConfigDocument document =
      ConfigDocument::parse("data:\n" + data_lines(found, "  "), "the data that were found");
  const RunConfig config = read_document(document, "found", DataSection::survey);
  const SampleSplits splits = open_splits(*config.data, config.seed);
  splits.train->check(false, threads);
  if (std::string warning = unsupported_images_warning(config.data->source); !warning.empty())
    warnings.push_back(std::move(warning));
  if (splits.validation != nullptr) held_out = splits.validation->facts().size;
  return survey_split(*splits.train, {.threads = threads, .most_bytes = kMostBytes});
}

/// The samples of data that were found.
SampleSplits splits_of(const FoundData& found) {
  const ConfigDocument document =
      ConfigDocument::parse("data:\n" + data_lines(found, "  "), "the data that were found");
  const RunConfig config = read_document(document, "found", DataSection::survey);
  return open_splits(*config.data, config.seed);
}

/// Adds the keys that say what the masks' values are, by the masks themselves. Images without a mask are left out.
void read_masks_of(FoundData& found) {
  MaskSurvey survey;
  const auto read = [&] {
    FoundData numbers = found;
    const std::vector<std::string> keys = mask_keys({.count = kMostMaskClasses}, found.mask_place);
    numbers.keys.insert(numbers.keys.end(), keys.begin(), keys.end());
    survey = survey_masks(*splits_of(numbers).train, found.listed_classes);
  };
  try {
    read();
  } catch (const DataError&) {  // the same error where images without a mask are not what is wrong
    found.keys.emplace_back("on_error: skip         # images without a mask are left out");
    read();
  }
  const std::vector<std::string> keys = mask_keys(choose_masks(survey, found.listed_classes), found.mask_place);
  found.keys.insert(found.keys.end(), keys.begin(), keys.end());
}

/// A few broken samples are skipped; many mean that the data are others than they were taken for.
void require_readable(const Measured& measured) {
  const std::int64_t broken = std::ssize(measured.survey.broken), looked = measured.survey.read + broken;
  if (broken * 10 <= looked) return;
  throw DataError(
      fmt::format("{} of {} samples that were read cannot be, so that no configuration is written; the first: {}: {}",
                  format_count(broken), format_count(looked), printable(measured.survey.broken[0].name),
                  printable(measured.survey.broken[0].reason)));
}

Task task_of(const FoundData& found, const DatasetFacts& facts) {
  if (found.are_presences) return Task::labels;
  for (const SampleField& field : facts.targets) {
    if (field.encoding == FieldEncoding::mask || (field.dtype == DType::int32 && field.shape.rank() >= 2))
      return Task::masks;
    if (field.name == kLabels && field.shape.rank() == 0) return Task::classes;
  }
  return facts.class_names.empty() ? Task::values : Task::labels;
}

/// The deviation of values to predict, over up to 4,096 training samples; 0: they are all the same.
double deviation_of(const FoundData& found) {
  constexpr std::int64_t kMostSamples = 4096;
  const SampleSplits splits = splits_of(found);
  const DatasetFacts facts = splits.train->facts();
  if (facts.targets[0].dtype != DType::float32) return 0;
  std::vector<std::vector<std::byte>> bytes;
  for (const SampleField& field : facts.targets) bytes.emplace_back(field.bytes());
  const std::vector<std::span<std::byte>> fields(bytes.begin(), bytes.end());
  const std::int64_t count = std::min(facts.size, kMostSamples);
  std::vector<double> mean(static_cast<std::size_t>(facts.targets[0].shape.elements()));
  double squares = 0;  // of distances to the means so far (Welford)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      splits.train->read_targets(i * facts.size / count, fields);
    } catch (const DataError&) {  // counted elsewhere
      continue;
    }
    for (std::size_t v = 0; v < mean.size(); ++v) {
      float value = 0;
      std::memcpy(&value, bytes[0].data() + v * sizeof value, sizeof value);
      const double before = value - mean[v];
      mean[v] += before / static_cast<double>(i + 1);
      squares += before * (value - mean[v]);
    }
  }
  return std::sqrt(squares / static_cast<double>(count * std::ssize(mean)));
}

Measured measure(FoundData found, int threads) {
  Measured measured{.found = std::move(found), .survey = {}};
  const bool masks = measured.found.format == "segmentation_folder";
  if (masks) read_masks_of(measured.found);
  measured.survey = surveyed(measured.found, threads, measured.held_out, measured.warnings);
  const DatasetFacts& facts = measured.survey.facts;
  if (facts.size == 0 || facts.targets.empty()) throw DataError("the data have no samples with labels or targets");
  measured.task = task_of(measured.found, facts);
  measured.outputs = measured.task == Task::values || measured.found.are_presences ? facts.targets[0].shape.elements()
                                                                                   : std::ssize(facts.class_names);
  if (measured.task == Task::classes && measured.outputs < 2)
    throw DataError(fmt::format("the data have one class alone{}: a network needs two or more to tell apart",
                                facts.class_names.empty() ? "" : ", '" + facts.class_names[0] + "'"));
  require_readable(measured);
  if (measured.outputs < 1) throw DataError("the data have no classes and no values to predict");
  if (measured.task == Task::values) measured.deviation = deviation_of(measured.found);
  return measured;
}

/// A power of two that an epoch has at least eight of; of small sets fewer, so that batch statistics are of four.
std::int64_t batch_for(std::int64_t samples, std::int64_t most) {
  constexpr std::int64_t kLeast = 4;
  std::int64_t batch = most;
  while (batch > 1 && (batch > samples || (batch > kLeast && batch * 8 > samples))) batch /= 2;
  return batch;
}

/// Small sets need more passes for as many updates.
std::int64_t epochs_for(std::int64_t samples, std::int64_t batch) {
  constexpr std::int64_t kFewUpdates = 300, kMost = 100;
  const std::int64_t each = std::max<std::int64_t>(samples / batch, 1);
  if (samples < 2000) return std::clamp<std::int64_t>((kFewUpdates + each - 1) / each, 40, kMost);
  if (samples < 20'000) return 20;
  return 10;
}

/// Returns the share of batch norms' running statistics that an update keeps: so that they follow within an epoch that
/// has a few updates, and many times within the run.
double momentum_for(std::int64_t samples, const Choices& choices) {
  const std::int64_t each = std::max<std::int64_t>(samples / choices.batch, 1);
  if (each >= 30) return 0.9;
  return each * choices.epochs >= 200 ? 0.8 : 0.5;
}

/// So few photographs that weights to begin with change the result more than anything else.
bool has_few_photographs(const Measured& measured, const Choices& choices) {
  constexpr std::int64_t kFew = 2000;
  return choices.files && choices.channels == 3 && measured.survey.facts.size < kFew &&
         (measured.task == Task::classes || measured.task == Task::labels);
}

/// Sides of images of several sizes: near their median's shorter side, a multiple of 32.
std::int64_t side_for(const SplitSurvey& survey, std::int64_t most) {
  const std::int64_t shorter = std::min(survey.median.height, survey.median.width);
  return std::clamp<std::int64_t>(shorter / 32 * 32, 32, most);
}

Choices choose(const Measured& measured, bool for_gpu) {
  const DatasetFacts& facts = measured.survey.facts;
  const bool masks = measured.task == Task::masks;
  Choices choices{.files = facts.has_encoded_images(), .vectors = facts.image_shape.rank() == 1};
  if (choices.vectors) {
    choices.channels = facts.image_shape[0];
  } else {
    choices.channels = facts.image_shape[2];
    choices.height = facts.image_shape[0];
    choices.width = facts.image_shape[1];
    if (choices.files) choices.height = choices.width = side_for(measured.survey, for_gpu ? (masks ? 256 : 224) : 96);
  }
  const std::int64_t pixels = choices.height * choices.width;
  const std::int64_t most = for_gpu ? (pixels > 128 * 128 ? 64 : 256) : (pixels > 64 * 64 ? 16 : 64);
  choices.batch = batch_for(facts.size, masks ? std::min<std::int64_t>(most, 16) : most);
  choices.epochs = epochs_for(facts.size, choices.batch);
  return choices;
}

std::string scaled(double value) { return fmt::format("{:.4g}", value); }

/// The samples' own normalisation; empty where a CSV standardizes its columns already.
std::string normalize_stage(const Measured& measured) {
  const SplitSurvey& survey = measured.survey;
  if (measured.found.format == "csv" && survey.facts.image_shape.rank() == 1) return "";
  const double scale = survey.facts.image_dtype == DType::uint8 ? 1.0 / 255 : 1.0;
  const std::vector<ChannelStatistics> channels = channels_to_normalize(survey);
  if (channels.empty()) return fmt::format("normalize: {{scale: {}}}", scale);
  std::vector<std::string> mean, deviation;
  for (const ChannelStatistics& channel : channels) {
    mean.push_back(scaled(channel.mean * scale));
    deviation.push_back(scaled(channel.deviation > 0 ? channel.deviation * scale : 1.0));
  }
  return fmt::format("normalize: {{scale: {}, mean: [{}], std: [{}]}}", scale, fmt::join(mean, ", "),
                     fmt::join(deviation, ", "));
}

/// Stages that change training samples at random, and those that make images one size.
std::string augmentation_stages(const Measured& measured, const Choices& choices) {
  if (choices.vectors) return "";
  const std::int64_t side = choices.height;
  if (measured.task == Task::masks) return fmt::format("    - resize: {{size: [{0}, {0}]}}\n    - random_flip\n", side);
  if (choices.files) {
    std::string text = fmt::format(
        "    - random_resized_crop: {{size: {}, scale: [0.5, 1]}}   # evaluations: resized, and the middle\n"
        "    - random_flip          # left and right; remove it where that changes what an image shows\n",
        side);
    if (has_few_photographs(measured, choices))
      text += "    - color_jitter: {brightness: 0.3, contrast: 0.3, saturation: 0.3}   # few images: other light\n";
    return text;
  }
  if (measured.task == Task::values) return "";
  if (choices.channels == 3 && side >= 24)
    return "    - random_crop: {padding: 4}\n    - random_flip          # remove it where mirror images mean something "
           "else\n";
  return "    # - random_flip        # left and right: for things, not for letters and digits\n";
}

std::string imbalance_line(const Measured& measured) {
  constexpr double kMuch = 4;
  const double imbalance = measured.task == Task::classes ? measured.survey.imbalance() : 0;
  if (imbalance < kMuch) return "";
  return fmt::format(
      "  sampling: {{balanced: true}}   # the largest class has {:.0f} times the samples of the smallest\n", imbalance);
}

std::string data_section(const Measured& measured, const Choices& choices) {
  std::string text = "data:\n" + data_lines(measured.found, "  ");
  const bool skips = std::ranges::any_of(measured.found.keys,
                                         [](const std::string& key) { return key.starts_with("on_error: skip"); });
  for (const std::string& note : measured.found.notes) text += fmt::format("  # {}\n", printable(note));
  if (!measured.survey.broken.empty() && !skips)
    text += fmt::format("  on_error: skip         # of {} that were read, {} could not be decoded\n",
                        counted(measured.survey.read + std::ssize(measured.survey.broken), "sample"),
                        measured.survey.broken.size());
  text += imbalance_line(measured);
  text += "  pipeline:\n    - cache: auto          # where samples are kept between epochs\n    - shuffle\n";
  text += augmentation_stages(measured, choices);
  if (const std::string normalize = normalize_stage(measured); !normalize.empty())
    text += fmt::format("    - {}   # measured\n", normalize);
  text += fmt::format("    - batch: {{size: {}, drop_last: true}}   # auto: the largest useful one that fits\n",
                      choices.batch);
  return text + "    - prefetch\n\n";
}

/// Convolutions, each stage at half the size of the one before, down to about 4 pixels.
std::string convolutions(const Choices& choices, std::int64_t outputs, std::int64_t samples) {
  constexpr std::int64_t kSmallSet = 10'000;
  const bool small_set = samples < kSmallSet;
  std::int64_t side = std::min(choices.height, choices.width), filters = small_set ? 16 : 32;
  std::string text = fmt::format("  input: [{}, {}, {}]   # height, width, channels\n  layers:\n", choices.height,
                                 choices.width, choices.channels);
  for (int stage = 0; stage == 0 || (side >= 4 && stage < 5);
       ++stage, filters = std::min<std::int64_t>(2 * filters, 256)) {
    text += fmt::format("    - conv2d: {{filters: {}, kernel: 3, padding: same, bias: false}}\n", filters);
    text += fmt::format("    - batch_norm: {{activation: relu, momentum: {}}}\n", momentum_for(samples, choices));
    if (side >= 8) text += "    - max_pool: {size: 2}\n";
    side /= 2;
  }
  return text +
         fmt::format("    - global_average_pool\n    - dropout: {{rate: 0.2}}\n    - dense: {{units: {}}}\n", outputs);
}

/// The last layer of a network that predicts large or small numbers: its weights would take long to become as large.
std::string target_scale(const Measured& measured) {
  constexpr double kLeast = 0.3, kMost = 3, kRange = 1e9;
  if (measured.deviation <= 0 || measured.deviation > kRange) return "";
  if (measured.deviation >= kLeast && measured.deviation <= kMost) return "";
  return fmt::format("    - layer_scale: {{initial: {}}}   # the values' deviation, so that weights stay near 1\n",
                     scaled(measured.deviation));
}

/// Before the model of few photographs.
std::string weights_note(const Measured& measured, const Choices& choices) {
  if (!has_few_photographs(measured, choices)) return "";
  return fmt::format(
      "# With {} photographs, weights that were trained on others help more than anything else here:\n"
      "# docs/tasks/PRETRAINED.md says where a file of them is, docs/tasks/FINE-TUNE.md how to train from it. In "
      "short:\n"
      "#   bantam import resnet18.pth --classes {} -o resnet18.safetensors\n"
      "# and in place of this model, with a random_resized_crop of 224 and that page's normalize above:\n"
      "#   model: {{zoo: resnet18, classes: {}, weights: {{file: resnet18.safetensors, skip: [\"classifier/*\"]}}}}\n",
      format_count(measured.survey.facts.size), measured.outputs, measured.outputs);
}

std::string model_section(const Measured& measured, const Choices& choices) {
  constexpr std::int64_t kSmallSet = 10'000;
  const bool small_set = measured.survey.facts.size < kSmallSet;
  if (measured.task == Task::masks && (choices.height % 16 != 0 || choices.width % 16 != 0))
    return fmt::format(
        "model:                     # zoo: unet needs sides that are multiples of 16\n  input: [{}, {}, {}]\n  "
        "layers:\n"
        "    - conv2d: {{filters: 16, kernel: 3, padding: same, activation: relu}}\n"
        "    - conv2d: {{filters: 32, kernel: 3, padding: same, activation: relu}}\n"
        "    - conv2d: {{filters: 32, kernel: 3, padding: same, activation: relu}}\n"
        "    - conv2d: {{filters: {}, kernel: 1}}   # a value a class for each pixel\n\n",
        choices.height, choices.width, choices.channels, measured.outputs);
  if (measured.task == Task::masks)
    return fmt::format(
        "model:\n  zoo: unet              # a value a class for each pixel\n  classes: {}\n  width: {}\n"
        "  input: [{}, {}, {}]\n\n",
        measured.outputs, small_set ? 0.125 : 0.25, choices.height, choices.width, choices.channels);
  if (choices.vectors)
    return fmt::format(
        "model:\n  input: [{}]\n  layers:\n    - dense: {{units: {}, activation: relu}}\n"
        "    - dense: {{units: {}, activation: relu}}\n    - dense: {{units: {}}}\n{}\n",
        choices.channels, small_set ? 32 : 128, small_set ? 32 : 128, measured.outputs, target_scale(measured));
  return weights_note(measured, choices) +
         fmt::format("model:                     # or a network of docs/ZOO.md: {{zoo: {}, classes: {}}}\n",
                     std::min(choices.height, choices.width) < 64 ? "resnet18_cifar" : "resnet18", measured.outputs) +
         convolutions(choices, measured.outputs, measured.survey.facts.size) + target_scale(measured) + "\n";
}

std::string loss_lines(const Measured& measured) {
  switch (measured.task) {
    case Task::labels:
      return "  loss: binary_cross_entropy   # several labels a sample\n  metrics: [{f1: {multi_label: true}}]\n";
    case Task::values:
      return "  loss: mse\n  metrics: [mae]\n";
    case Task::masks: {
      std::optional<std::int32_t> ignored = measured.survey.facts.ignored_label;
      if (measured.found.ignored) ignored = 255;
      return ignored ? fmt::format(
                           "  loss: {{softmax_cross_entropy: {{ignore_index: {0}}}}}\n"
                           "  metrics: [accuracy, {{mean_iou: {{ignore_label: {0}}}}}]\n",
                           *ignored)
                     : "  loss: softmax_cross_entropy\n  metrics: [accuracy, mean_iou]\n";
    }
    case Task::classes:
      break;
  }
  return "  loss: softmax_cross_entropy\n  metrics: [accuracy]\n";
}

std::string train_section(const Measured& measured, const Choices& choices) {
  return fmt::format(
             "train:\n  epochs: {}\n{}  optimizer:\n    adam:                # `bantam find-lr` finds a rate for your "
             "data\n      learning_rate: {{schedule: cosine, peak: 2.0e-3, final: 0, warmup: 1epochs}}\n",
             choices.epochs, loss_lines(measured)) +
         "# memory: {budget: 2GiB}   # the run stays within it: what backward recomputes is chosen\n";
}

std::string samples_in_words(const Measured& measured, const Choices& choices) {
  const DatasetFacts& facts = measured.survey.facts;
  std::string what = choices.vectors ? "rows" : measured.task == Task::masks ? "images with masks" : "images";
  std::string text = fmt::format("{}: {} training {}", measured.found.format, format_count(facts.size), what);
  if (measured.task == Task::values)
    text += fmt::format(", {} value{} to predict", measured.outputs, measured.outputs == 1 ? "" : "s");
  else
    text += fmt::format(" of {} {}", measured.outputs, measured.task == Task::labels ? "labels" : "classes");
  if (choices.vectors) return text + fmt::format(", {} each", counted(choices.channels, "number"));
  const SplitSurvey& survey = measured.survey;
  if (!choices.files || survey.smallest == survey.largest)
    text += fmt::format(", {} x {} pixels", choices.files ? survey.median.width : choices.width,
                        choices.files ? survey.median.height : choices.height);
  else
    text += fmt::format(", {} x {} to {} x {} pixels", survey.smallest.width, survey.smallest.height,
                        survey.largest.width, survey.largest.height);
  return text + (choices.channels == 1 ? ", grey" : choices.channels == 3 ? ", colour" : "");
}

std::string head(const FirstConfigOptions& options, const std::string& found, std::int64_t held_out) {
  return fmt::format(
      "# Written by `{}`.\n# {}; {} held out.\n#\n# Every key: docs/CONFIG.md, or `bantam schema`. Check this file "
      "with "
      "`bantam validate`, look at the samples as the\n# network sees them with `bantam data FILE --out data.html`, see "
      "whether it fits a GPU with `bantam plan FILE`.\nversion: 1\nseed: 42\ndevice: auto               # the first "
      "GPU, "
      "else the CPU\n\n",
      shown(options.command, 200), found, format_count(held_out));
}

/// Without data: images that the program draws.
FirstConfig generated_config(const FirstConfigOptions& options) {
  Measured measured{.found = {"generated", {"train_samples: 10000", "test_samples: 1000"}}, .survey = {}};
  measured.survey.facts = {.size = 10000, .image_shape = Shape{32, 32, 3}};
  measured.outputs = 10;
  measured.held_out = 1000;
  const Choices choices = choose(measured, options.for_gpu);
  const std::string found = samples_in_words(measured, choices) + ", drawn by the program";
  return {head(options, found, measured.held_out) + data_section(measured, choices) + model_section(measured, choices) +
              train_section(measured, choices),
          found,
          {}};
}

/// Refuses a configuration that would stop a run at its beginning: it reads it and its data as the run would.
void require_trainable(const FirstConfig& config, const FirstConfigOptions& options) {
  try {
    const RunConfig read = parse_run_config(config.text, options.file, {});
    require_model_fits(read);
    const SampleSplits splits = open_splits(*read.data, read.seed);
    for (const auto& reader : {splits.train, splits.validation, splits.test})
      if (reader != nullptr) reader->check(false, std::max(options.threads, 1));
  } catch (const Error& error) {
    throw DataError(fmt::format("found {}, but a configuration for them would be refused, so that none is written: {}",
                                config.summary, error.what()));
  }
}

FirstConfig config_for(FoundData data, const FirstConfigOptions& options) {
  const int threads = options.threads > 0 ? options.threads : read_host_info().processors;
  const Measured measured = measure(std::move(data), threads);
  const Choices choices = choose(measured, options.for_gpu);
  const std::string found = samples_in_words(measured, choices);
  FirstConfig config{head(options, found, measured.held_out) + data_section(measured, choices) +
                         model_section(measured, choices) + train_section(measured, choices),
                     found, measured.found.notes, measured.warnings};
  if (has_few_photographs(measured, choices))
    config.advice.push_back(
        "few photographs: begin with weights that were trained on others (docs/tasks/PRETRAINED.md, "
        "docs/tasks/FINE-TUNE.md); the file says how");
  require_trainable(config, options);
  return config;
}

}  // namespace

FirstConfig first_config(const std::filesystem::path& data, const FirstConfigOptions& options) {
  if (data.empty()) return generated_config(options);
  FoundData found = find_data(data);
  try {
    return config_for(found, options);
  } catch (const Error&) {
    if (found.otherwise == nullptr) throw;
  }
  return config_for(*found.otherwise, options);
}

}  // namespace bantam::run
