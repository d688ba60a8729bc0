// `bantam data`: what a configuration's data hold, and what its pipelines make of them.
#include <algorithm>
#include <cstdio>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/data/data_page.h"
#include "bantam/cli/data/data_report.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/terminal.h"
#include "bantam/data/formats/image_files.h"
#include "bantam/data/images/decode.h"
#include "bantam/data/survey/spread_samples.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Counts each split's samples and classes, measures the sizes of images and the\n"
    "mean and deviation of their channels (of up to 256 MiB of them, spread evenly),\n"
    "and prints a `normalize` stage of those, what the pipelines of training and\n"
    "evaluation do, and where samples are kept. --out writes a page with samples as\n"
    "the network sees them. --check reads and decodes everything, whatever limits\n"
    "leave out, also published checksums, and lists what is broken (exit code 3).\n"
    "Example: bantam data configs/quickstart.yaml --out data.html";

constexpr std::int64_t kPageEpochs = 5;

struct DataVerb {
  CommonOptions common;
  std::string out;
  std::int64_t samples = 8;  // on the page
  bool json = false, check = false;
};

std::string cache_name(CacheKind cache) {
  switch (cache) {
    case CacheKind::device:
      return "device";
    case CacheKind::disk:
      return "disk";
    case CacheKind::off:
      return "off";
    case CacheKind::ram:
    case CacheKind::automatic:
      break;
  }
  return "ram";
}

std::string draw_name(EpochSampling::Draw draw) {
  switch (draw) {
    case EpochSampling::Draw::balanced:
      return "balanced";
    case EpochSampling::Draw::weighted:
      return "weighted";
    case EpochSampling::Draw::each:
      break;
  }
  return "each";
}

void add_cache(const RunConfig& config, DataReport& report) {
  report.cache = cache_name(config.data->pipeline.cache);
  for (const auto& [path, value] : config.document.values())
    if (path.starts_with("data.pipeline.") && path.ends_with(".cache") && value == "auto") report.cache_is_auto = true;
  if (config.data->pipeline.cache == CacheKind::off) return;
  for (const CachedSet& set : cached_sets(*config.data)) {
    report.cache_bytes += set.bytes();
    report.caches_files = report.caches_files || set.encoded_bytes > 0;
  }
}

DataReport survey(const RunConfig& config, const SampleSplits& splits, const DataVerb& verb, int threads) {
  const DataOptions& data = *config.data;
  const DatasetFacts facts = splits.train->facts();
  DataReport report{.config = config.name,
                    .format = config.document.map().map("data").text("format"),
                    .normalize = data.pipeline.normalize,
                    .training = pipeline_steps(data.pipeline, facts),
                    .evaluation = pipeline_steps(evaluation_pipeline(data.pipeline), facts),
                    .epoch_samples = epoch_samples(data),
                    .draw = draw_name(data.pipeline.sampling.draw),
                    .checked = verb.check,
                    .one_size = has_one_size(data)};
  const SurveyOptions options{.threads = threads, .most_bytes = verb.check ? 0 : SurveyOptions().most_bytes};
  const auto add = [&](const char* name, const std::shared_ptr<const SampleReader>& reader) {
    if (reader == nullptr) return;
    reader->check(data.verify || verb.check, threads);
    report.splits.push_back({name, survey_split(*reader, options)});
  };
  add("training", splits.train);
  const bool is_test_set = splits.test == nullptr && data.validation.from_test() && !data.source.names_validation;
  add(is_test_set ? "test" : "validation", splits.validation);
  add("test", splits.test);
  add_cache(config, report);
  return report;
}

/// The data whose samples are read: for a check all, whatever the configuration limits.
DataOptions surveyed_data(const RunConfig& config, const DataVerb& verb) {
  DataOptions data = *config.data;
  if (!verb.check) return data;
  data.limit = 0;
  data.evaluation.samples = data.evaluation.batches = 0;
  return data;
}

/// Chooses training samples that can be read, evenly spread.
std::vector<std::int32_t> chosen_for_page(const DataReport& report, const SampleReader& reader, std::int64_t wanted) {
  std::vector<std::int64_t> broken;
  for (const BrokenSample& sample : report.splits.front().survey.broken) broken.push_back(sample.index);
  return spread_samples(reader, wanted, broken);
}

/// The picture as its file has it; empty where it is none.
Image stored_image(const SampleReader& reader, std::int64_t index) {
  const DatasetFacts facts = reader.facts();
  Image image;
  const Shape& shape = facts.image_shape;
  if (shape.rank() != 3 || facts.image_dtype != DType::uint8) return image;
  if (const std::int64_t channels = shape[2]; channels != 1 && channels != 3 && channels != 4) return image;
  std::vector<std::vector<std::byte>> fields(facts.targets.size() + 1);
  reader.fetch(index, fields);
  if (facts.has_encoded_images()) {
    decode_image(fields[0], PixelForm(facts), image);
    return image;
  }
  image.reshape({shape[0], shape[1]}, shape[2]);
  std::ranges::transform(fields[0], image.pixels.begin(), [](std::byte b) { return static_cast<std::uint8_t>(b); });
  return image;
}

std::vector<PageSample> page_samples(const RunConfig& config, const DataReport& report,
                                     const std::shared_ptr<const SampleReader>& train, const DataVerb& verb) {
  const std::vector<std::int32_t> chosen = chosen_for_page(report, *train, verb.samples);
  if (chosen.empty() || !report.one_size) return {};
  const auto runtime = run::make_runtime(config, verb.common.threads);
  const auto reader = chosen_samples(train, chosen);
  const PipelineOptions& pipeline = config.data->pipeline;
  const auto training = sample_views(*runtime, reader, pipeline, config.seed, kPageEpochs);
  const auto evaluation = sample_views(*runtime, reader, evaluation_pipeline(pipeline), config.seed, 1);
  std::vector<PageSample> samples(chosen.size());
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    samples[s] = {train->name_of(chosen[s]), stored_image(*train, chosen[s]), {}, evaluation[0][s]};
    for (const auto& epoch : training) samples[s].training.push_back(epoch[s]);
  }
  return samples;
}

int run_data(const DataVerb& verb) {
  const RunConfig config = run::read_survey_config(verb.common.config, all_overrides(verb.common));
  if (!config.data) config.document.root().fail_at_key("missing key 'data'");
  const SampleSplits splits = open_splits(surveyed_data(config, verb), config.seed);
  const std::string warning = unsupported_images_warning(config.data->source);
  if (!warning.empty()) print_error("warning: {}\n", shown_message(warning));
  const auto runtime = run::make_runtime(config, verb.common.threads);
  const DataReport report = survey(config, splits, verb, runtime->threads());
  if (!verb.out.empty())
    write_file_atomically(verb.out, data_page(report, page_samples(config, report, splits.train, verb)));
  const auto columns = static_cast<std::size_t>(terminal_columns(stdout));
  write_text(verb.json ? json_text(json_of(report)) + "\n" : text_of(report, columns));
  if (!verb.out.empty() && !verb.json) print_out("\nSamples as the network sees them: {}\n", printable_line(verb.out));
  const bool broken =
      std::ranges::any_of(report.splits, [](const DataReport::Split& split) { return !split.survey.broken.empty(); });
  constexpr int kData = 3;  // the exit code of data errors
  return verb.check && broken ? kData : 0;
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("data", "What a data set holds; what pipelines make of it");
  command->footer(kAbout);
  const auto verb = std::make_shared<DataVerb>();
  add_common_options(*command, verb->common);
  command->add_option("--out", verb->out, "Also write an HTML page with samples to this file");
  command->add_option("--samples", verb->samples, "Samples on the page")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_flag("--check", verb->check, "Read and decode every sample; exit code 3\nwhere one is broken");
  command->add_flag("--json", verb->json, "One JSON object instead of text");
  command->callback([&action, verb] { action = [verb] { return run_data(*verb); }; });
}

}  // namespace bantam::cli
