// A paragraph a split, a table of classes, the pipelines, and what the data suggest.
#include "bantam/cli/data/data_report.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/fitted_text.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string class_name(const DatasetFacts& facts, std::size_t c) {
  return c < facts.class_names.size() ? facts.class_names[c] : fmt::format("{}", c);
}

/// "500 x 375": width and height, as programs that show pictures say it.
std::string size_text(ImageSize size) {
  return size.height == 0 ? "sizes differ" : fmt::format("{} x {}", size.width, size.height);
}

Json json_of(ImageSize size) {
  if (size.height == 0) return nullptr;
  return {{"height", size.height}, {"width", size.width}};
}

Json json_of(const DataReport::Split& split) {
  const SplitSurvey& survey = split.survey;
  const auto extents = survey.facts.image_shape.extents();
  Json json = {{"split", split.name},
               {"samples", survey.facts.size},
               {"image_shape", std::vector<std::int64_t>(extents.begin(), extents.end())},
               {"image_dtype", to_string(survey.facts.image_dtype)},
               {"encoded", survey.facts.has_encoded_images()},
               {"stored_bytes", survey.stored_bytes}};
  json["targets"] = Json::array();
  for (const SampleField& target : survey.facts.targets)
    json["targets"].push_back({{"name", target.name}, {"dtype", to_string(target.dtype)}});
  json["ignored"] = {{"files", survey.ignored.count}, {"examples", survey.ignored.examples}};
  json["notes"] = survey.notes;
  json["classes"] = Json::array();
  for (std::size_t c = 0; c < survey.class_counts.size(); ++c)
    json["classes"].push_back({{"name", class_name(survey.facts, c)}, {"count", survey.class_counts[c]}});
  json["imbalance"] = survey.imbalance();
  json["images_read"] = survey.read;
  json["sizes"] = {
      {"smallest", json_of(survey.smallest)}, {"median", json_of(survey.median)}, {"largest", json_of(survey.largest)}};
  json["stored_channels"] = Json::object();
  for (const auto& [channels, files] : survey.stored_channels)
    json["stored_channels"][fmt::format("{}", channels)] = files;
  json["types"] = survey.types;
  json["with_alpha"] = survey.with_alpha();
  json["turned"] = survey.turned;
  json["files_of_16_bits"] = {{"files", survey.wide}, {"greatest", survey.wide_most}, {"bits", survey.wide_bits()}};
  json["unsupported_images"] = survey.ignored.unsupported_images;
  json["channels"] = Json::array();
  for (const ChannelStatistics& channel : survey.channels)
    json["channels"].push_back(
        {{"mean", channel.mean}, {"deviation", channel.deviation}, {"least", channel.least}, {"most", channel.most}});
  json["broken"] = Json::array();
  for (const BrokenSample& broken : survey.broken)
    json["broken"].push_back({{"index", broken.index}, {"name", broken.name}, {"reason", broken.reason}});
  return json;
}

Json json_of(const std::vector<PipelineStep>& steps) {
  Json json = Json::array();
  for (const PipelineStep& step : steps)
    json.push_back({{"stage", step.name},
                    {"size", json_of(step.size)},
                    {"shorter_side", step.shorter_side > 0 ? Json(step.shorter_side) : Json(nullptr)},
                    {"random", step.chance}});
  return json;
}

/// One line "  title      text".
std::string line(std::string_view title, const std::string& text) {
  return text.empty() ? std::string() : fmt::format("  {:<11} {}\n", title, text);
}

std::string images_text(const SplitSurvey& survey) {
  const Shape& shape = survey.facts.image_shape;
  if (shape.rank() == 1) return fmt::format("{} features, {}", shape[0], to_string(survey.facts.image_dtype));
  const char* channels = shape[2] == 1 ? "grey" : shape[2] == 3 ? "RGB" : shape[2] == 4 ? "RGBA" : "";
  const std::string kind = *channels != 0 ? channels : fmt::format("{} channels", shape[2]);
  if (!survey.facts.has_encoded_images())
    return fmt::format("{}, {}, {}", size_text({shape[0], shape[1]}), kind, to_string(survey.facts.image_dtype));
  std::vector<std::string> stored;
  for (const auto& [number, files] : survey.stored_channels)
    stored.push_back(fmt::format("{} of {} channel{}", format_count(files), number, number == 1 ? "" : "s"));
  return fmt::format("image files, used as {} (stored: {})", kind, fmt::join(stored, ", "));
}

std::string files_text(std::int64_t files) {
  return fmt::format("{} file{}", format_count(files), files == 1 ? "" : "s");
}

/// Where files have types other than JPEG and PNG.
std::string types_text(const SplitSurvey& survey) {
  std::vector<std::string> types;
  bool others = false;
  for (const auto& [type, files] : survey.types) {
    types.push_back(fmt::format("{} {}", format_count(files), type));
    others = others || (type != "JPEG" && type != "PNG");
  }
  return others ? fmt::format("{}", fmt::join(types, ", ")) : std::string();
}

std::string alpha_text(const SplitSurvey& survey) {
  const std::int64_t files = survey.with_alpha();
  if (files == 0) return {};
  std::string text = files_text(files) + (files == 1 ? " has alpha" : " have alpha");
  const DatasetFacts& facts = survey.facts;
  if (facts.image_shape[2] == 4) return text + ", which is kept (channels: 4)";
  if (facts.background) return text + fmt::format(": shown over [{}]", fmt::join(*facts.background, ", "));
  return text +
         "; transparent pixels have the colour that is stored there,\n              often black: data.background: "
         "white puts white under them";
}

std::string turned_text(const SplitSurvey& survey) {
  if (survey.turned == 0) return {};
  return files_text(survey.turned) + (survey.turned == 1 ? " is" : " are") + " turned upright, as EXIF or XMP says";
}

/// Values of 12 bits in files of 16 are a sixteenth of white.
std::string depth_text(const SplitSurvey& survey) {
  const int bits = survey.wide_bits();
  if (bits == 0) return {};
  std::string text =
      fmt::format("{} of 16 bits, greatest value {}", files_text(survey.wide), format_count(survey.wide_most));
  if (bits > 15) return text;
  text += fmt::format(" ({} bit{})", bits, bits == 1 ? "" : "s");
  if (survey.facts.image_dtype == DType::float32) return text;
  return text + fmt::format(
                    ":\n              warning: as bytes they are at most {} of 255; data.range: stored keeps them,\n"
                    "              and normalize: {{scale: 1/{}}} makes them 0 to 1",
                    (survey.wide_most + 128) / 257, (1 << bits) - 1);
}

std::string sizes_text(const SplitSurvey& survey) {
  if (!survey.facts.has_encoded_images() || survey.read == 0) return {};
  return fmt::format("{} to {}, median {}", size_text(survey.smallest), size_text(survey.largest),
                     size_text(survey.median));
}

std::string numbers(const SplitSurvey& survey, double ChannelStatistics::*value) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> texts;
  for (std::size_t c = 0; c < std::min(kMost, survey.channels.size()); ++c)
    texts.push_back(fmt::format("{:.4g}", survey.channels[c].*value));
  if (survey.channels.size() > kMost) texts.emplace_back("…");
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string values_text(const SplitSurvey& survey) {
  if (survey.channels.empty()) return {};
  return fmt::format("mean {}; std {}", numbers(survey, &ChannelStatistics::mean),
                     numbers(survey, &ChannelStatistics::deviation));
}

std::string read_text(const SplitSurvey& survey) {
  if (survey.read == survey.facts.size) return {};
  return fmt::format("{}, spread evenly: sizes and values are theirs", counted(survey.read, "image"));
}

std::string broken_text(const SplitSurvey& survey) {
  constexpr std::size_t kMost = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, survey.broken.size()); ++i)
    text += fmt::format("    {}: {}\n", shown(survey.broken[i].name, 60), shown(survey.broken[i].reason, 200));
  if (survey.broken.size() > kMost)
    text += fmt::format("    … and {} more (--json lists all)\n", survey.broken.size() - kMost);
  return text;
}

std::string text_of(const DataReport::Split& split, bool checked) {
  const SplitSurvey& survey = split.survey;
  std::string text = fmt::format("{}: {}, {}\n", split.name, counted(survey.facts.size, "sample"),
                                 format_byte_size(survey.stored_bytes));
  text += line("images", images_text(survey)) + line("types", types_text(survey)) + line("sizes", sizes_text(survey));
  text += line("depth", depth_text(survey)) + line("alpha", alpha_text(survey)) + line("turned", turned_text(survey));
  text += line("values", values_text(survey)) + line("read", read_text(survey));
  if (survey.ignored.count > 0)
    text += line("ignored", fmt::format("{} other file{}: {}{}", format_count(survey.ignored.count),
                                        survey.ignored.count == 1 ? "" : "s",
                                        shown(fmt::format("{}", fmt::join(survey.ignored.examples, ", ")), 90),
                                        std::ssize(survey.ignored.examples) < survey.ignored.count ? ", …" : ""));
  if (checked && survey.broken.empty()) text += line("checked", "every sample is read and decoded, none is broken");
  if (!survey.broken.empty()) {
    text += line("broken", fmt::format("{}", format_count(static_cast<std::int64_t>(survey.broken.size()))));
    text += broken_text(survey);
  }
  return text;
}

std::int64_t count_of(const DataReport::Split& split, std::size_t c) {
  return c < split.survey.class_counts.size() ? split.survey.class_counts[c] : 0;
}

constexpr std::size_t kLeastName = 8;

/// All classes, or the most and least frequent ones of many.
std::string classes_text(const DataReport& report, std::size_t most_of_name) {
  constexpr std::size_t kAll = 24, kEnds = 10;
  const SplitSurvey& train = report.splits.front().survey;
  if (train.class_counts.empty()) return {};
  std::vector<std::size_t> order(train.class_counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const bool all = order.size() <= kAll;
  if (!all) std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t c) { return train.class_counts[c]; });
  std::vector<Table::Column> columns = {{"class", Align::left}};
  for (const DataReport::Split& split : report.splits) columns.push_back({split.name});
  Table table(std::move(columns));
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (!all && i == kEnds) table.add_row({"…"});
    if (!all && i >= kEnds && i + kEnds < order.size()) continue;
    std::vector<std::string> cells = {shown(class_name(train.facts, order[i]), most_of_name)};
    for (const DataReport::Split& split : report.splits) cells.push_back(format_count(count_of(split, order[i])));
    table.add_row(std::move(cells));
  }
  std::string text = "\n" + table.to_string();
  if (train.imbalance() >= 1.5)
    text +=
        fmt::format("the most frequent class has {:.3g} x the samples of the least frequent one\n", train.imbalance());
  for (std::size_t c = 0; c < train.class_counts.size(); ++c)
    if (train.class_counts[c] == 0)
      return text + fmt::format("class {} has no training samples\n", shown(class_name(train.facts, c), most_of_name));
  return text;
}

std::string steps_text(std::string_view title, const std::vector<PipelineStep>& steps) {
  std::vector<std::string> lines;
  for (const PipelineStep& step : steps)
    lines.push_back(fmt::format("{:<22} {}{}", step.name,
                                step.shorter_side > 0   ? fmt::format("shorter side {}", step.shorter_side)
                                : step.size.height == 0 ? ""
                                                        : size_text(step.size),
                                step.chance ? "  random" : ""));
  if (lines.empty()) lines.emplace_back("samples as stored");
  std::string text;
  for (const std::string& step : lines) {
    const std::string row = fmt::format("{:<13} {}", text.empty() ? title : "", step);
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

/// Nothing where an epoch is every sample once.
std::string epoch_text(const DataReport& report) {
  if (report.draw == "each" && report.epoch_samples == report.splits.front().survey.facts.size) return {};
  const std::string draw = report.draw == "each" ? "in turn" : report.draw;
  return fmt::format("{:<13} {}, {}\n", "epoch", counted(report.epoch_samples, "sample"), draw);
}

std::string cache_text(const DataReport& report) {
  std::string text = fmt::format("{:<13} {}{}", "cache", report.cache, report.cache_is_auto ? " (auto)" : "");
  if (report.cache_bytes > 0)
    text += fmt::format(", {} of {}", format_byte_size(report.cache_bytes),
                        report.caches_files ? "stored files" : "samples ready to use");
  return text + "\n";
}

/// Lists the readers' notes as warnings, each once: splits of one file have the same.
std::string notes_text(const DataReport& report) {
  std::vector<std::string> notes;
  for (const DataReport::Split& split : report.splits)
    for (const std::string& note : split.survey.notes)
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(note);
  std::string text;
  for (const std::string& note : notes) text += fmt::format("warning: {}\n", note);
  return text;
}

}  // namespace

std::string normalize_line(const DataReport& report) {
  const SplitSurvey& train = report.splits.front().survey;
  const std::vector<ChannelStatistics> channels = channels_to_normalize(train);
  if (channels.empty()) return {};
  const bool bytes = train.facts.image_dtype == DType::uint8;
  const double scale = report.normalize.scale != 1 || !bytes ? report.normalize.scale : 1.0 / 255;
  std::vector<std::string> mean, deviation;
  for (const ChannelStatistics& channel : channels) {
    mean.push_back(fmt::format("{:.4g}", channel.mean * scale));
    deviation.push_back(fmt::format("{:.4g}", channel.deviation > 0 ? channel.deviation * scale : 1.0));
  }
  return fmt::format("normalize: {{scale: {}, mean: [{}], std: [{}]}}", scale, fmt::join(mean, ", "),
                     fmt::join(deviation, ", "));
}

nlohmann::ordered_json json_of(const DataReport& report) {
  Json json = {{"config", report.config}, {"format", report.format}, {"splits", Json::array()}};
  for (const DataReport::Split& split : report.splits) json["splits"].push_back(json_of(split));
  json["pipeline"] = {{"training", json_of(report.training)}, {"evaluation", json_of(report.evaluation)}};
  json["one_size"] = report.one_size;
  json["epoch"] = {{"samples", report.epoch_samples}, {"draw", report.draw}};
  const std::string normalize = normalize_line(report);
  json["normalize"] = normalize.empty() ? Json(nullptr) : Json(normalize);
  json["cache"] = {{"kind", report.cache},
                   {"auto", report.cache_is_auto},
                   {"bytes", report.cache_bytes},
                   {"files", report.caches_files}};
  return json;
}

std::string text_of(const DataReport& report, std::size_t columns) {
  std::string text;
  for (const DataReport::Split& split : report.splits) text += text_of(split, report.checked);
  text += notes_text(report);
  text +=
      fitted_text(columns, kLeastName, [&](std::size_t most_of_name) { return classes_text(report, most_of_name); }) +
      "\n";
  text += steps_text("training", report.training) + steps_text("evaluation", report.evaluation);
  if (!report.one_size)
    text +=
        "sizes         differ: to train, add a stage such as `resize: {size: [128, 128]}`\n"
        "              or `random_resized_crop: {size: 224}`\n";
  text += epoch_text(report) + cache_text(report);
  std::string normalize = normalize_line(report);
  if (normalize.empty()) return text;
  if (const std::size_t place = normalize.find(" std:"); normalize.size() > 78)
    normalize.insert(place, "\n             ");
  return text + "\nThe training samples' own normalisation:\n  " + normalize + "\n";
}

}  // namespace bantam::cli
