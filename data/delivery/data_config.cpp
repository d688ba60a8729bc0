// From the `data:` section to readers, and from them to batch sources.
#include "bantam/data/delivery/data_config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/data/augment/built_in.h"
#include "bantam/data/delivery/given_samples.h"
#include "bantam/data/delivery/loader.h"
#include "bantam/data/delivery/sample_weights.h"
#include "bantam/data/formats/held_out.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/data/images/gpu_decoder.h"

namespace bantam {
namespace {

/// A source refuses the same; here its place in the file is known.
void check_drop_last(const ConfigNode& stages, const PipelineOptions& pipeline, std::int64_t samples) {
  if (!pipeline.drop_last || samples >= pipeline.batch_size) return;
  for (const ConfigNode& item : stages.items()) {
    const ConfigNode::Named named = item.as_named();
    if (named.name == "batch")
      named.options.fail_at_key(
          fmt::format("a batch of {} with drop_last drops all {}", pipeline.batch_size, counted(samples, "image")));
  }
}

/// The kernel's windows and mirroring are of the images alone: a class a pixel would stay where it was.
void check_pixel_targets(const ConfigNode& stages, const PipelineOptions& pipeline, const DatasetFacts& facts) {
  const StageForms forms = stage_forms(pipeline.augmentations, facts);
  const auto moving = std::ranges::find_if_not(forms.placed, [](const auto& s) { return changes_finished_values(*s); });
  if (moving == forms.placed.end()) return;
  for (const SampleField& target : facts.targets)
    if (is_pixel_target(target, facts.image_shape))
      stages.fail(fmt::format("{} moves pixels of the images, but those of '{}' {} would stay", (*moving)->name(),
                              target.name, to_string(target.shape)));
}

/// Validation samples have stages that suit them. Their size is another question: require_model_fits of a run asks it.
void check_evaluation(const ConfigNode& node, const PipelineOptions& pipeline, const DatasetFacts& facts) {
  (void)batch_shape(pipeline, facts);
  try {
    (void)batch_shape(evaluation_pipeline(pipeline), facts);
  } catch (const Error& error) {
    node.fail(fmt::format("validation samples: {}", error.what()));
  }
}

/// Checks that the stages suit the data. `drop_last` matters to batches of training alone: a survey makes none.
void check_stages(const ConfigNode& stages, const DataOptions& options, const DatasetFacts& facts, StagesFor use) {
  if (use == StagesFor::batches) check_drop_last(stages, options.pipeline, epoch_samples(options));
  check_pixel_targets(stages, options.pipeline, facts);
  check_evaluation(stages, options.pipeline, facts);
}

/// Another data set's class numbers mean what the training samples' do.
void check_own_validation(const ConfigNode& node, const DataOptions& options, const DatasetFacts& facts) {
  if (options.validation.own == nullptr || node.is_described()) return;
  const std::vector<std::string> names = options.validation.own->facts().class_names;
  if (names == facts.class_names) return;
  const auto text = [](const std::vector<std::string>& classes) { return shown(join(classes, ", ", " and "), 200); };
  node.fail(fmt::format("the classes of data.validation are {}, but those of the training samples are {}", text(names),
                        text(facts.class_names)));
}

/// Nothing where a survey's data have none.
std::optional<ConfigNode> find_pipeline(ConfigMap& data, StagesFor use) {
  const ConfigKey key{
      "pipeline",
      "Stages that samples pass, each a name or a name with its options, each once: cache, shuffle, augmentations, "
      "then normalize, then one_hot, mixup and cutmix, batch (the only required one), prefetch. Held-out samples pass "
      "them without shuffle and chance.",
      "[cache: auto, shuffle, batch: {size: 32}, prefetch]"};
  if (use == StagesFor::survey) return data.find(key);
  return data.node(key);
}

DecodeKind read_decode(ConfigMap& data, const DatasetFacts& facts) {
  const auto node = data.find(
      {"decode",
       "Who decodes JPEG files. cpu: libjpeg-turbo, in the workers; gpu: nvJPEG on the step's GPU (its library is "
       "loaded at run time), and the CPU what it cannot decode; auto: cpu. Pixels of the two differ a little. See "
       "DATA.md.",
       "gpu", "auto"});
  if (!node) return DecodeKind::automatic;
  const std::string kind = node->as_choice({"auto", "cpu", "gpu"});
  if (kind == "gpu" && !facts.has_encoded_images() && !node->is_described())
    node->fail("decode: gpu is for formats of image files, and this one has none: remove the key");
  return kind == "gpu" ? DecodeKind::gpu : kind == "cpu" ? DecodeKind::cpu : DecodeKind::automatic;
}

/// `samples` decoded as `values` say.
class DecodedSamples : public WrappedReader {
 public:
  DecodedSamples(std::shared_ptr<const SampleReader> samples, const ImageValues& values)
      : WrappedReader(std::move(samples)), values_(values) {}

  DatasetFacts facts() const override { return values_.applied_to(WrappedReader::facts()); }

 private:
  ImageValues values_;
};

/// Applies the keys `background` and `range` to all splits, whose samples have to be image files.
void apply_image_values(ConfigMap& data, DataOptions& options) {
  const ImageValues values = read_image_values(data);
  if ((!values.background && !values.as_stored) || data.self().is_described()) return;
  const ConfigNode node = *data.find(values.background ? "background" : "range");
  const SampleSplits& source = options.source;
  const DatasetFacts facts = (source.whole != nullptr ? source.whole : source.train)->facts();
  if (!facts.has_encoded_images())
    node.fail_at_key("it is for formats of image files, and this one has none: remove the key");
  if (values.background && facts.image_shape[2] == 4)
    node.fail("images of 4 channels keep their alpha: remove the key, or channels: 4");
  // The parts of one set are all of image files; another set's may not be.
  const auto own = options.validation.own;
  const bool decodes_own = own != nullptr && own->facts().has_encoded_images();
  for (auto* samples : {&options.source.train, &options.source.validation, &options.source.test, &options.source.whole,
                        decodes_own ? &options.validation.own : nullptr})
    if (samples != nullptr && *samples != nullptr) *samples = std::make_shared<DecodedSamples>(*samples, values);
}

/// The format of samples that are given: it is in no table, since a configuration alone cannot open them.
constexpr std::string_view kGivenFormat = "program";

std::string as_format(const ConfigNode& format) {
  if (!format.is_described() && format.is_text(kGivenFormat))
    format.fail(
        "the samples of this configuration are a program's own arrays (format: program), which only a program can "
        "give: "
        "bantam_config_from_file in C, data= in Python");
  const std::vector<std::string> known = sample_formats().names();
  const std::vector<std::string_view> names(known.begin(), known.end());
  return format.as_choice(names);
}

/// Another data set, whose keys stand in the section as they would in `data`; only its held-out samples are read, as
/// those of `training` are.
std::shared_ptr<const SampleReader> read_own_validation(ConfigMap& map, const std::string& format,
                                                        const SampleSplits& training) {
  std::string name = format;
  if (const auto own = map.find({"format", "Of another data set.", "cifar10", "that of `data`"}))
    name = as_format(*own);
  if (!map.self().is_described()) {
    SampleSplits other = sample_formats().at(name)(map);
    const SampleReader& trained = training.whole != nullptr ? *training.whole : *training.train;
    try {
      return trained.read_alike(other.whole != nullptr ? other.whole : other.validation);
    } catch (const ConfigError& error) {
      map.self().fail(error.what());
    }
  }
  // Each format's keys are described once, in `data`.
  if (const auto path = map.find({"path",
                                  "Another data set's folder: its held-out samples are the validation samples. Keys of "
                                  "its format may stand beside it, as in `data`.",
                                  "data/other", "no other data set"}))
    (void)path->as_text();
  return nullptr;
}

/// `source`: the samples of `data`; where it names the validation samples, text is the format's own key, which it has
/// read.
ValidationOptions read_validation(ConfigMap& data, const std::string& format, const SampleSplits& source) {
  const auto node = data.find(
      {"validation",
       "Samples that the run is evaluated on while it trains: the format's held-out samples, a share of the training "
       "samples, or those of another data set. Other than {from: test}, the held-out samples are the test set, which "
       "the run looks at once, at its end. For image_folder, segmentation_folder and csv it may be the name of a "
       "folder or file of the set.",
       "{from: test} | {split: 0.1} | val", "{from: test}"});
  if (!node) return {};
  if (node->is_scalar() && (source.names_validation || node->is_described())) {
    (void)node->as_text();
    return {};
  }
  ConfigMap map = node->as_map();
  ValidationOptions options;
  const auto split =
      map.find({"split",
                "Share of the training samples that is held out, chosen at random: of each class its share, and of "
                "csv's groups whole ones (data.group).",
                "0.1", "0"});
  const auto from = map.find({"from", "test: the format's held-out samples.", "test", "test, unless others are named"});
  if (split && from && !map.self().is_described())
    from->fail_at_key(fmt::format("{}: samples are split off, or those of the test set, not both", map.self().path()));
  if (split) options.split = split->as_number({.min = 0, .max = 1, .min_open = true, .max_open = true});
  if (from) (void)from->as_choice({"test"});
  if (split || map.self().is_described())
    if (const auto seed = map.find({"seed", "Of the choice of a split, apart from the run's.", "7",
                                    "the run's seed; 0 where data.group is given"}))
      options.seed = static_cast<std::uint64_t>(seed->as_integer({.min = 0}));
  if ((!split && !from) || map.self().is_described()) options.own = read_own_validation(map, format, source);
  map.finish();
  return options;
}

/// `data.sampling`, checked against the training samples and the pipeline's shuffle.
void read_sampling(ConfigMap& data, const DataOptions& options, PipelineOptions& pipeline) {
  const auto node = data.find({"sampling",
                               "Which training samples an epoch has, and how many, where that is not each of them "
                               "once. Validation samples are not concerned.",
                               "{balanced: true} | {weights: true, samples: 1000}", "each sample once"});
  if (!node) return;
  ConfigMap map = node->as_map();
  EpochSampling sampling;
  const bool balanced = map.boolean(
      {"balanced", "Draws every class equally often: rare ones' samples come several times an epoch."}, false);
  const bool weighted =
      map.boolean({"weights", "Draws samples in proportion to the weights that the data have (csv: weight)."}, false);
  sampling.repeat =
      map.integer({"repeat", "An epoch has so many times the set's samples.", "4"}, {.min = 1, .max = 1'000'000}, 1);
  sampling.samples = map.integer({"samples", "Samples of an epoch; 0: repeat times the set's."},
                                 {.min = 0, .max = std::numeric_limits<std::int32_t>::max()}, 0);
  map.finish();
  if (node->is_described()) return;
  if (balanced && weighted) node->fail("samples are drawn by class or by weight, not both");
  if (sampling.repeat > 1 && sampling.samples > 0)
    node->fail("`samples` says how many an epoch has, or `repeat`, not both");
  sampling.draw = balanced   ? EpochSampling::Draw::balanced
                  : weighted ? EpochSampling::Draw::weighted
                             : EpochSampling::Draw::each;
  if (sampling.draw != EpochSampling::Draw::each && pipeline.shuffle && pipeline.shuffle->buffer > 0)
    node->fail("drawn samples come in a random order of the whole epoch: shuffle has no buffer then");
  try {
    check_sampling(*options.source.train, sampling);
  } catch (const ConfigError& error) {
    node->fail(error.what());
  }
  pipeline.sampling = sampling;
}

void read_evaluation(ConfigMap& data, const DatasetFacts& facts, DataOptions& options) {
  const auto node =
      data.find({"evaluation",
                 "How validation and test samples become batches, where that is not what follows from "
                 "the pipeline: there a random_resized_crop is a resize and a center_crop, and stages "
                 "of chance are left out.",
                 "{pipeline: [resize: {size: 256}, center_crop: {size: 224}]}", "what follows from the pipeline"});
  if (!node) return;
  ConfigMap map = node->as_map();
  const ConfigNode stages = map.node({"pipeline",
                                      "Augmentations and normalize, each a name or a name with its options. Without "
                                      "normalize it is that of training.",
                                      "[resize: {size: 256}, center_crop: {size: 224}]"});
  map.finish();
  EvaluationStages read = read_evaluation_stages(stages, facts);
  if (!node->is_described()) options.pipeline.evaluation = std::move(read);
}

/// Those that a limit keeps (0: all): the first ones, or, where these would be of one class, evenly spread ones.
std::shared_ptr<const SampleReader> limited(const std::shared_ptr<const SampleReader>& samples, std::int64_t most) {
  if (most == 0) return samples;
  if (!samples->sorted_by_class()) return first_samples(samples, most);
  const std::int64_t size = samples->facts().size;
  if (size <= most) return samples;
  std::vector<std::int32_t> spread;
  for (std::int64_t i = 0; i < most; ++i) spread.push_back(static_cast<std::int32_t>(i * size / most));
  return chosen_samples(samples, std::move(spread));
}

std::shared_ptr<const SampleReader> all_training(const DataOptions& options) {
  return limited(options.source.train, options.limit);
}

/// Whole groups of the training samples, by the seed of `data.validation` alone: plans count them before a run has one.
Parts split_groups(const ValidationOptions& options, const SampleReader& training,
                   std::span<const std::int32_t> groups) {
  const std::vector<std::int32_t> labels = class_numbers(training);
  const SamplesToSplit split{
      .samples = training.facts().size, .labels = labels, .groups = groups, .seed = options.seed.value_or(0)};
  return hold_out(split, options.split);
}

/// Counts the training samples that become validation samples: 0 without a split, else at least 1, of several not all.
std::int64_t held_out(const ValidationOptions& options, const SampleReader& training) {
  if (options.split == 0) return 0;
  if (const std::vector<std::int32_t> groups = training.groups(); !groups.empty())
    return std::ssize(split_groups(options, training, groups).held_out);
  const std::int64_t samples = training.facts().size;
  return std::clamp<std::int64_t>(std::llround(options.split * static_cast<double>(samples)), 1,
                                  std::max<std::int64_t>(samples - 1, 1));
}

/// Training samples and held-out ones, each in the data set's order; of each class its share is held out.
SampleSplits split_training(const DataOptions& options, std::uint64_t seed) {
  const std::shared_ptr<const SampleReader> all = all_training(options);
  const ValidationOptions& validation = options.validation;
  if (validation.split == 0) return {all, validation.own != nullptr ? validation.own : options.source.validation};
  Parts parts;
  if (const std::vector<std::int32_t> groups = all->groups(); !groups.empty()) {
    parts = split_groups(validation, *all, groups);
  } else {
    const std::vector<std::int32_t> labels = class_numbers(*all);
    parts = hold_out_exactly(
        {.samples = all->facts().size, .labels = labels, .groups = {}, .seed = validation.seed.value_or(seed)},
        held_out(validation, *all));
  }
  all->fit_to(parts.train);
  return {chosen_samples(all, std::move(parts.train)), chosen_samples(all, std::move(parts.held_out))};
}

/// Null where the validation samples are the test samples.
std::shared_ptr<const SampleReader> test_reader(const DataOptions& options) {
  if (options.source.test != nullptr) return options.source.test;
  return options.validation.from_test() ? nullptr : options.source.validation;
}

/// Most validation samples that are evaluated; 0: all are.
std::int64_t evaluated_samples(const DataOptions& options) {
  const std::int64_t samples = options.evaluation.samples;
  const std::int64_t of_batches = options.evaluation.batches * evaluated_batch(options);
  return samples > 0 && of_batches > 0 ? std::min(samples, of_batches) : std::max(samples, of_batches);
}

/// A colour: a name, a grey value, or red, green and blue.
Background read_background(const ConfigNode& node) {
  Background colour{};
  if (node.is_list()) {
    const std::vector<std::int64_t> values = node.as_integers({.min = 0, .max = 255});
    if (values.size() != colour.size()) node.fail("expected white, black, or [red, green, blue], each 0 to 255");
    std::ranges::transform(values, colour.begin(), [](std::int64_t value) { return static_cast<std::uint8_t>(value); });
    return colour;
  }
  if (node.as_choice({"white", "black"}) == "white") colour.fill(255);
  return colour;
}

}  // namespace

DatasetFacts ImageValues::applied_to(DatasetFacts facts) const {
  facts.background = background;
  if (as_stored) facts.image_dtype = DType::float32;
  return facts;
}

ImageValues read_image_values(ConfigMap& data) {
  ImageValues values;
  if (const auto node = data.find(
          {"background",
           "Of image files with transparent pixels, where `channels` is 1 or 3: the colour that shows through them. "
           "white, black, or [red, green, blue], each 0 to 255.",
           "white | [255, 255, 255]",
           "none: such pixels have the colour that is stored under their transparency, often black"}))
    values.background = read_background(*node);
  if (const auto node = data.find(
          {"range",
           "Of image files. bytes: values are 0 to 255, those of 16 bits divided by 257; stored: float32 values as the "
           "files have them (0 to 255, of 16 bits to 65535, of TIFF also float), which normalize scales.",
           "stored", "bytes"}))
    values.as_stored = node->as_choice({"bytes", "stored"}) == "stored";
  return values;
}

bool has_one_size(const DataOptions& options) {
  return stage_forms(options.pipeline.augmentations, train_facts(options)).has_one_size();
}

std::int64_t evaluated_batch(const DataOptions& options) {
  return options.evaluation.batch_size > 0 ? options.evaluation.batch_size : options.pipeline.batch_size;
}

namespace {

/// The format's readers, or those that are given; `format` gets its name.
SampleSplits read_source(ConfigMap& map, const SampleSplits* given, std::string& format) {
  const ConfigKey key{"format",
                      "How the data set is stored. Each format has keys of its own beside this one; a program adds "
                      "formats.",
                      "generated"};
  if (given == nullptr) {
    format = as_format(map.node(key));
    return read_beside(sample_formats(), map, "format", format);
  }
  format = map.choice(key, {kGivenFormat}, kGivenFormat);
  check_facts(given->train->facts());
  return *given;
}

/// Samples that are given, and formats of a program's own, may have none held out.
void check_held_out(ConfigMap& data, const DataOptions& options) {
  if (options.source.validation != nullptr || !options.validation.from_test() || data.self().is_described()) return;
  data.find("validation")
      .value_or(data.self())
      .fail("there are no held-out samples: give some, or data.validation: {split: 0.1}");
}

/// None can be held out of one sample: a survey can read it, training cannot.
bool has_one_sample(const DataOptions& options) {
  return options.source.whole != nullptr && options.source.whole->facts().size == 1;
}

DataOptions read_data_section(const ConfigNode& data, StagesFor use, const SampleSplits* given) {
  ConfigMap map = data.as_map();
  map.describe("The data set, and its way into batches. See DATA.md.",
               "data:\n  format: cifar10\n  path: data/cifar-10-batches-bin\n  pipeline:\n    - shuffle\n"
               "    - random_crop: {padding: 4}\n    - random_flip\n    - normalize: {scale: 0.00392156862745098}\n"
               "    - batch: {size: 128, drop_last: true}\n    - prefetch");
  DataOptions options;
  std::string format;
  options.source = read_source(map, given, format);
  // Read only where given: without a limit there is no number that says "all".
  if (const auto limit = map.find(
          {"limit",
           "Only so many training samples, for trials: the first ones; evenly spread ones where samples stand class "
           "after class, as those of image_folder do, and the rows of a sorted CSV file.",
           "1000", "all samples"}))
    options.limit = limit->as_integer({.min = 1});
  options.verify =
      map.boolean({"verify", "Check the published SHA-256 of the files first, where there are some."}, false);
  options.validation = read_validation(map, format, options.source);
  check_held_out(map, options);
  apply_image_values(map, options);
  options.skips_broken =
      map.choice({"on_error",
                  "A sample that cannot be read or decoded. fail: the run ends with an error that names it; skip: the "
                  "next sample that can be read comes in its place, and the run's summary counts and names them."},
                 {"fail", "skip"}, "fail") == "skip";
  const std::optional<ConfigNode> written = find_pipeline(map, use);
  const ConfigNode stages = written.value_or(map.self());
  const bool is_one = use == StagesFor::survey && has_one_sample(options);
  const DatasetFacts facts = is_one ? options.source.whole->facts() : train_facts(options);
  options.decode = read_decode(map, facts);
  check_own_validation(stages, options, facts);
  if (written) options.pipeline = read_pipeline(stages, facts, use);
  if (is_one)
    (void)map.find("sampling");
  else
    read_sampling(map, options, options.pipeline);
  read_evaluation(map, facts, options);
  map.finish();
  if (!written || is_one || (use == StagesFor::survey && !has_one_size(options))) return options;
  check_stages(stages, options, facts, use);
  return options;
}

}  // namespace

DataOptions read_data_config(const ConfigNode& data, StagesFor use) { return read_data_section(data, use, nullptr); }

DataOptions read_data_config(const ConfigNode& data, const SampleSplits& given) {
  return read_data_section(data, StagesFor::batches, &given);
}

DatasetFacts train_facts(const DataOptions& options) {
  const std::shared_ptr<const SampleReader> all = all_training(options);
  DatasetFacts facts = all->facts();
  facts.size -= held_out(options.validation, *all);
  return facts;
}

std::int64_t epoch_samples(const DataOptions& options) {
  return options.pipeline.sampling.epoch_samples(train_facts(options).size);
}

DatasetFacts validation_facts(const DataOptions& options) {
  DatasetFacts facts = options.validation.split > 0        ? all_training(options)->facts()
                       : options.validation.own != nullptr ? options.validation.own->facts()
                                                           : options.source.validation->facts();
  if (options.validation.split > 0) facts.size = held_out(options.validation, *all_training(options));
  if (const std::int64_t most = evaluated_samples(options); most > 0) facts.size = std::min(facts.size, most);
  return facts;
}

std::vector<std::string> data_notes(const DataOptions& options) {
  std::vector<std::string> notes;
  if (std::string warning = unsupported_images_warning(options.source); !warning.empty())
    notes.push_back(std::move(warning));
  for (const auto& reader :
       {options.source.train, options.source.validation, options.source.test, options.validation.own}) {
    if (reader == nullptr) continue;
    for (std::string& note : reader->notes())
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
  }
  return notes;
}

DatasetFacts test_facts(const DataOptions& options) {
  return (options.source.test != nullptr ? options.source.test : options.source.validation)->facts();
}

Shape evaluated_image(const DataOptions& options) {
  const DatasetFacts stored = train_facts(options);
  const PipelineOptions evaluation = evaluation_pipeline(options.pipeline);
  return finished_image(batch_shape(evaluation, stored), stored.image_shape);
}

DatasetFacts batch_facts(const DataOptions& options) {
  const DatasetFacts stored = train_facts(options);
  DatasetFacts facts = with_image_shape(stored, stage_forms(options.pipeline.augmentations, stored).gathered);
  facts.image_shape = finished_image(batch_shape(options.pipeline, stored), stored.image_shape);
  facts.targets = batch_targets(options.pipeline.mix, facts);
  return facts;
}

SampleSplits open_splits(const DataOptions& options, std::uint64_t seed) {
  SampleSplits splits = split_training(options, seed);
  splits.validation = limited(splits.validation, evaluated_samples(options));
  splits.test = test_reader(options);
  return splits;
}

namespace {

/// Describes what a cache of `size` of the reader's samples stores: values, or files with their share of all bytes.
CachedSet cached_set(const SampleReader& reader, std::int64_t size, const PipelineOptions& pipeline) {
  DatasetFacts facts = reader.facts();
  const std::int64_t all = facts.size;
  const Shape stored = stage_forms(pipeline.augmentations, facts).stored;
  facts = with_image_shape(std::move(facts), stored);
  facts.size = size;
  CachedSet set{.facts = std::move(facts)};
  if (!set.facts.has_encoded_images() || all == 0) return set;
  const double share = static_cast<double>(size) / static_cast<double>(all);
  set.encoded_bytes = static_cast<std::uint64_t>(static_cast<double>(reader.total_encoded_bytes()) * share);
  return set;
}

}  // namespace

std::vector<CachedSet> cached_sets(const DataOptions& options) {
  const PipelineOptions evaluated = evaluation_pipeline(options.pipeline);
  const std::shared_ptr<const SampleReader> training = all_training(options);
  const SampleReader& validation = options.validation.split > 0        ? *training
                                   : options.validation.own != nullptr ? *options.validation.own
                                                                       : *options.source.validation;
  std::vector<CachedSet> sets = {cached_set(*training, train_facts(options).size, options.pipeline),
                                 cached_set(validation, validation_facts(options).size, evaluated)};
  if (const auto test = test_reader(options)) sets.push_back(cached_set(*test, test_facts(options).size, evaluated));
  return sets;
}

std::uint64_t resident_bytes(const DataOptions& options) {
  std::uint64_t bytes = options.source.train->resident_bytes();
  if (options.source.whole == nullptr && options.source.validation != nullptr)
    bytes += options.source.validation->resident_bytes();
  if (options.source.test != nullptr) bytes += options.source.test->resident_bytes();
  if (options.validation.own != nullptr) bytes += options.validation.own->resident_bytes();
  return bytes;
}

namespace {

/// Whether a cache keeps samples that were decoded from image files.
bool saves_decoding(const DataOptions& options) {
  return train_facts(options).has_encoded_images() && cached_sets(options)[0].encoded_bytes == 0;
}

}  // namespace

void decide_cache(DataOptions& options, const CacheRoom& room) {
  if (options.pipeline.cache != CacheKind::automatic) return;
  options.cache_is_auto = true;
  std::uint64_t bytes = resident_bytes(options);
  for (const CachedSet& set : cached_sets(options)) bytes += set.bytes();
  const DatasetFacts facts = train_facts(options);
  const auto has_workers = [&](const PipelineOptions& pipeline) {
    return !stage_forms(pipeline.augmentations, facts).worker.empty();
  };
  const bool gathers_on_device = facts.has_int32_target() && !options.pipeline.mix.any() &&
                                 !has_workers(options.pipeline) && !has_workers(evaluation_pipeline(options.pipeline));
  if (bytes > room.host_bytes)
    options.pipeline.cache = saves_decoding(options) && bytes <= room.disk_bytes ? CacheKind::disk : CacheKind::off;
  else
    options.pipeline.cache = gathers_on_device && bytes <= room.device_bytes ? CacheKind::device : CacheKind::ram;
}

void decide_decoder(DataOptions& options, Device device) {
  if (options.decode == DecodeKind::automatic) options.decode = DecodeKind::cpu;
  if (options.decode == DecodeKind::gpu && device.kind != DeviceKind::cuda)
    throw ConfigError(fmt::format(
        "decode: gpu needs a GPU, but the steps run on {}: use decode: cpu, or device: cuda:0", to_string(device)));
}

namespace {

/// Null where the CPU decodes. As many batches at a time as workers that are asked for, and a number that does not
/// depend on the machine where they are not: plans count them.
std::shared_ptr<GpuDecoder> open_decoder(Runtime& runtime, const DataOptions& options, Device device) {
  if (options.decode != DecodeKind::gpu) return nullptr;
  constexpr std::int64_t kMost = GpuDecoder::kMostBatches;
  const std::int64_t workers = std::clamp<std::int64_t>(options.pipeline.prefetch.workers.value_or(kMost), 1, kMost);
  try {
    return std::make_shared<GpuDecoder>(runtime, device, static_cast<int>(workers));
  } catch (const DeviceError& error) {
    throw DeviceError(fmt::format("data.decode: gpu: {}. Or let the CPU decode: data.decode: cpu", error.what()));
  }
}

/// Lowers the limit of the CPU by what readers keep beside its allocator, as long as the result lives.
std::shared_ptr<const void> charge_to_limit(Runtime& runtime, std::uint64_t bytes, Device device) {
  const Device cpu = device.meta ? Device::meta_of(Device::cpu()) : Device::cpu();
  const std::uint64_t limit = runtime.limit(cpu);
  if (limit == 0 || bytes == 0) return nullptr;
  const auto fail = [&](std::string_view cause) {
    throw OutOfMemory(
        fmt::format("the limit of {} is too small: {}\n  the data set's files keep {} of host memory from "
                    "their first use on (decompressed archives, tables): unpack them, or raise the "
                    "limit{}",
                    to_string(cpu), format_byte_size(limit), format_byte_size(bytes), cause),
        {.requested_bytes = bytes, .limit_bytes = limit});
  };
  if (bytes >= limit) fail("");
  try {
    runtime.set_limit(cpu, limit - bytes);
  } catch (const OutOfMemory& error) {
    fail(fmt::format("\n  {}", error.what()));
  }
  return {&runtime, [bytes, cpu](const void* of) {
            Runtime& runtime = *static_cast<Runtime*>(const_cast<void*>(of));
            if (const std::uint64_t now = runtime.limit(cpu); now > 0) runtime.set_limit(cpu, now + bytes);
          }};
}

/// Returns the path of a set's packed file, in the cache's folder or else the run's, which is made where it is missing.
std::filesystem::path packed_file(const DataOptions& options, const std::string& set) {
  const std::string& own = options.pipeline.cache_folder;
  const std::filesystem::path folder = own.empty() ? options.run_folder : own;
  if (folder.empty())
    throw ConfigError("cache: disk needs a place outside of a run's folder: name one by cache: {disk: FOLDER}");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw DataError(fmt::format("cache: disk: cannot make {}: {}", folder.string(), error.message()));
  return folder / fmt::format("samples-{}.cache", set);
}

}  // namespace

OpenedData open_data(Runtime& runtime, DataOptions options, Device device, std::uint64_t seed) {
  if (options.pipeline.batch_size_is_auto) throw ConfigError("batch size: auto must be solved before data are opened");
  const SampleSplits splits = open_splits(options, seed);
  const std::shared_ptr<const SampleReader> test = splits.test;
  const bool split = options.validation.split > 0;  // one check for both
  if (!device.meta)
    for (const auto& reader : {splits.train, split ? nullptr : splits.validation, test})
      if (reader != nullptr) reader->check(options.verify, runtime.threads());
  PipelineOptions evaluated = evaluation_pipeline(options.pipeline);
  evaluated.batch_size = evaluated_batch(options);
  decide_decoder(options, device);
  OpenedData data;
  data.readers_memory = charge_to_limit(runtime, resident_bytes(options), device);
  const std::shared_ptr<GpuDecoder> decoder = open_decoder(runtime, options, device);
  const auto broken = options.skips_broken ? std::make_shared<BrokenSamples>() : nullptr;
  const auto source = [&](std::shared_ptr<const SampleReader> reader, const PipelineOptions& pipeline,
                          const std::string& set) {
    LoaderOptions loading{.pipeline = pipeline, .device = device, .seed = seed, .broken = broken, .decoder = decoder};
    if (pipeline.cache == CacheKind::disk && !device.meta) loading.packed_file = packed_file(options, set);
    if (options.on_read)
      loading.on_read = [told = options.on_read, set](std::int64_t read, std::int64_t samples) {
        told(set, read, samples);
      };
    return std::make_unique<ImageBatchSource>(runtime, std::move(reader), std::move(loading));
  };
  data.broken = broken;
  data.gpu_decoder = decoder;
  if (splits.train->facts().has_encoded_images()) data.decoder = decoder != nullptr ? decoder->name() : "CPU";
  data.train = source(splits.train, options.pipeline, "train");
  data.validation = source(splits.validation, evaluated, "validation");
  if (test != nullptr) data.test = source(test, evaluated, "test");
  return data;
}

namespace {

/// Samples whose reader's memory is charged to the limit of the CPU as long as they are used.
class Charged : public WrappedReader {
 public:
  Charged(Runtime& runtime, std::shared_ptr<const SampleReader> samples, Device device)
      : WrappedReader(std::move(samples)), charge_(charge_to_limit(runtime, resident_bytes(), device)) {}

 private:
  std::shared_ptr<const void> charge_;
};

}  // namespace

std::unique_ptr<BatchSource> open_evaluated(Runtime& runtime, std::shared_ptr<const SampleReader> samples,
                                            DataOptions options, Device device, std::shared_ptr<BrokenSamples> broken) {
  if (!device.meta) samples->check(options.verify, runtime.threads());
  decide_decoder(options, device);
  PipelineOptions pipeline = evaluation_pipeline(options.pipeline);
  pipeline.batch_size = evaluated_batch(options);
  pipeline.cache = CacheKind::off;
  return std::make_unique<ImageBatchSource>(runtime, std::make_shared<Charged>(runtime, std::move(samples), device),
                                            LoaderOptions{.pipeline = std::move(pipeline),
                                                          .device = device,
                                                          .broken = std::move(broken),
                                                          .decoder = open_decoder(runtime, options, device)});
}

}  // namespace bantam
