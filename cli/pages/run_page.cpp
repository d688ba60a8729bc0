// From reports to the page's data, in as much detail as there is room for.
#include "bantam/cli/pages/run_page.h"

#include <array>
#include <cmath>
#include <ctime>
#include <map>

#include <fmt/format.h>

#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/sha256.h"
#include "bantam/base/text.h"
#include "bantam/cli/pages/page_parts.h"
#include "bantam/cli/pages/page_text.h"
#include "bantam/data/images/encode.h"
#include "bantam/run/evaluate/class_report.h"
#include "bantam/run/report/run_differences.h"

namespace bantam::cli {
namespace {

using Json = nlohmann::ordered_json;
using run::AnsweredSample;
using run::HeldOutAnswers;
using run::ReportedHistogram;
using run::RunReport;

/// How much of a run the page shows.
struct Detail {
  std::int64_t pixels = 0;  ///< the longer side of a picture; 0: there are no pictures
  bool histograms = false;
};

constexpr std::array<Detail, 7> kDetails = {
    {{128, true}, {96, true}, {64, true}, {48, true}, {32, true}, {0, true}, {0, false}}};
constexpr std::int64_t kSmallPicture = 48;  // its pixels are shown as squares
constexpr std::size_t kMostMatrixRows = 40;

/// As many digits as a reader sees.
Json rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<std::int64_t>(value);
  return std::stod(fmt::format("{:.5g}", value));
}

Json rounded(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(rounded(value));
  return list;
}

Json json_of(const run::MetricsHistory& history) {
  Json curves = Json::array();
  for (const run::MetricCurve& curve : history.curves)
    curves.push_back({{"name", curve.name},
                      {"x", rounded(curve.updates)},
                      {"t", rounded(curve.seconds)},
                      {"y", rounded(curve.values)},
                      {"points", curve.points}});
  return curves;
}

/// Bins of equal width by their ends alone.
Json edges_of(const ReportedHistogram& one) {
  const std::size_t bins = one.counts.size();
  if (bins == 0) return Json::array();
  const double low = one.edges.front(), width = (one.edges.back() - low) / static_cast<double>(bins);
  for (std::size_t e = 0; e <= bins; ++e)
    if (std::abs(one.edges[e] - (low + width * static_cast<double>(e))) > 1e-3 * width) return rounded(one.edges);
  return rounded({low, one.edges.back()});
}

Json json_of(const ReportedHistogram& one) {
  return {{"update", one.update},
          {"mean", rounded(one.mean)},
          {"std", rounded(one.deviation)},
          {"edges", edges_of(one)},
          {"counts", rounded(one.counts)}};
}

/// Lists each tensor with its weights over the run, where the run recorded them, else with those of its weights file.
Json tensors_of(const RunReport& report, bool& has_gradients) {
  std::map<std::string, std::array<Json, 2>> by_name;
  std::vector<std::string> order;
  const auto list_of = [&](const std::string& tensor, bool gradient) -> Json& {
    const auto [place, fresh] = by_name.try_emplace(tensor, std::array{Json::array(), Json::array()});
    if (fresh) order.push_back(tensor);
    return place->second[gradient ? 1 : 0];
  };
  for (const ReportedHistogram& one : report.histograms) {
    has_gradients = has_gradients || one.kind == "gradient";
    list_of(one.tensor, one.kind == "gradient").push_back(json_of(one));
  }
  for (const ReportedHistogram& one : report.weights)
    if (Json& list = list_of(one.tensor, false); list.empty()) list.push_back(json_of(one));
  Json tensors = Json::array();
  for (const std::string& name : order)
    tensors.push_back({{"name", name}, {"weight", by_name[name][0]}, {"gradient", by_name[name][1]}});
  return tensors;
}

void add_picture(Json& json, const char* key, const Image& image, std::int64_t pixels) {
  if (!image.pixels.empty() && pixels > 0) json[key] = base64(encode_png(reduced(image, pixels)));
}

Json json_of(const AnsweredSample& sample, std::int64_t pixels) {
  Json said = Json::array();
  for (const auto& [name, value] : sample.said) said.push_back({name, rounded(value)});
  Json json = {{"name", sample.name},
               {"truth", sample.truth},
               {"said", said},
               {"loss", rounded(sample.loss)},
               {"right", rounded(sample.right)}};
  add_picture(json, "image", sample.image, pixels);
  add_picture(json, "truth_mask", sample.truth_mask, pixels);
  add_picture(json, "said_mask", sample.said_mask, pixels);
  json["small"] = std::max(sample.image.size.height, sample.image.size.width) <= kSmallPicture;
  return json;
}

void add_classes(const HeldOutAnswers& answers, Json& json) {
  if (answers.matrix.columns == 0) return;
  constexpr std::size_t kMostConfusions = 20;
  const run::ClassReport report = run::class_report(answers.matrix, answers.names);
  json["classes"] = Json::array();
  const bool places = answers.task == run::Task::segmentation;
  for (const run::ClassScore& score : report.classes) {
    json["classes"].push_back({{"name", score.name},
                               {"count", rounded(score.count)},
                               {"precision", rounded(score.precision)},
                               {"recall", rounded(score.recall)}});
    if (places) json["classes"].back()["iou"] = rounded(score.iou);
  }
  if (places) json["mean_iou"] = rounded(report.iou);
  json["confusions"] = Json::array();
  for (const run::Confusion& one : report.confusions(kMostConfusions))
    json["confusions"].push_back({one.label, one.predicted, rounded(one.count), rounded(one.share)});
  const auto columns = static_cast<std::size_t>(answers.matrix.columns);
  if (columns > kMostMatrixRows) return;
  for (std::size_t row = 0; row < columns; ++row) {
    const auto begin = answers.matrix.values.begin() + static_cast<std::ptrdiff_t>(row * columns);
    json["matrix"].push_back(rounded(std::vector<double>(begin, begin + answers.matrix.columns)));
  }
}

Json json_of(const HeldOutAnswers& answers, std::int64_t pixels) {
  Json json = {{"task", to_string(answers.task)},
               {"samples", answers.samples},
               {"of", answers.of},
               {"loss", rounded(answers.loss)},
               {"accuracy", rounded(answers.accuracy)},
               {"names", answers.names}};
  add_classes(answers, json);
  bool has_pictures = false;
  for (const auto& [key, list] : {std::pair("worst", &answers.worst), std::pair("random", &answers.random)}) {
    json[key] = Json::array();
    for (const AnsweredSample& sample : *list) {
      json[key].push_back(json_of(sample, pixels));
      has_pictures = has_pictures || !sample.image.pixels.empty();
    }
  }
  json["has_pictures"] = has_pictures;
  if (has_pictures && pixels == 0) json["no_pictures"] = "There is no room for their pictures on a page of 3 MB.";
  return json;
}

std::string versions_text(const run::RunRecord& record) {
  std::vector<std::string> parts;
  for (const auto& [name, version] : record.versions) parts.push_back(name + " " + version);
  return join(parts, ", ", ", ");
}

Json facts_of(const RunReport& report) {
  const run::RunRecord& record = report.run.record;
  Json json = {{"name", report.name},
               {"path", report.run.path.string()},
               {"state", report.run.state},
               {"reason", record.reason},
               {"config", record.name},
               {"model", record.model},
               {"device", record.device},
               {"precision", record.precision},
               {"epoch", record.epoch},
               {"epochs", record.epochs},
               {"updates", record.updates},
               {"seconds", rounded(record.seconds)},
               {"sessions", record.sessions},
               {"created", utc_text(record.created)},
               {"command", record.command},
               {"versions", versions_text(record)},
               {"git_commit", record.git_commit}};
  if (!record.metric.empty())
    json["best"] = {{"metric", record.metric}, {"value", record.best}, {"epoch", record.best_epoch}};
  return json;
}

Json json_of(const RunReport& report, const Detail& detail) {
  Json json = facts_of(report);
  json["updates_per_epoch"] = report.history.updates_per_epoch;
  json["curves"] = json_of(report.history);
  if (report.history.epoch_loss)
    json["epoch_loss"] = {{"epoch", report.history.epoch_loss->first},
                          {"loss", rounded(report.history.epoch_loss->second)}};
  json["test"] = Json::object();
  for (const auto& [name, value] : report.history.test) json["test"][name] = rounded(value);
  json["weights_file"] = report.weights_file.string();
  json["no_weights"] = report.no_weights;
  json["no_held_out"] = report.no_held_out;
  bool has_gradients = false;
  json["tensors"] = detail.histograms ? tensors_of(report, has_gradients) : Json::array();
  json["has_gradients"] = has_gradients;
  if (!detail.histograms && report.no_weights.empty()) json["no_weights"] = "There is no room for histograms.";
  if (report.held_out) json["held_out"] = json_of(*report.held_out, detail.pixels);
  json["config_text"] = report.config_text;
  return json;
}

std::string title_of(std::span<const RunReport> reports) {
  if (reports.size() != 1) return fmt::format("{} runs", reports.size());
  const RunReport& report = reports[0];
  const std::string title = fmt::format("{}: {}", report.name, report.run.record.name);
  return report.has_ended() ? title : fmt::format("{} ({})", title, run::position_text(report.run.record));
}

Json page_data(std::span<const RunReport> reports, const std::string& version, const Detail& detail) {
  Json json = {{"live", !version.empty()},   {"version", version},
               {"title", title_of(reports)}, {"headline", run::headline_of(reports)},
               {"runs", Json::array()},      {"differences", Json::array()}};
  const RunReport* best = reports.size() > 1 ? run::best_of(reports) : nullptr;
  for (const RunReport& report : reports) {
    json["runs"].push_back(json_of(report, detail));
    json["runs"].back()["is_best"] = &report == best;
  }
  for (const run::RunDifference& one : run::config_differences(reports))
    json["differences"].push_back({{"name", one.name}, {"values", one.values}});
  return printable_texts(json);
}

/// About the bytes of all pictures, from a few of them: most pages need not be made to see that they are too large.
double picture_bytes(std::span<const RunReport> reports, std::int64_t pixels) {
  constexpr std::size_t kFew = 16;
  std::vector<const Image*> pictures;
  for (const RunReport& report : reports)
    if (report.held_out)
      for (const auto* list : {&report.held_out->worst, &report.held_out->random})
        for (const AnsweredSample& sample : *list)
          for (const Image* image : {&sample.image, &sample.truth_mask, &sample.said_mask})
            if (!image->pixels.empty()) pictures.push_back(image);
  if (pictures.empty() || pixels == 0) return 0;
  double bytes = 0;
  const std::size_t few = std::min(kFew, pictures.size());
  for (std::size_t i = 0; i < few; ++i)
    bytes += static_cast<double>(encode_png(reduced(*pictures[i * pictures.size() / few], pixels)).size());
  constexpr double kBase64 = 4.0 / 3;
  return kBase64 * bytes * static_cast<double>(pictures.size()) / static_cast<double>(few);
}

}  // namespace

Json run_page_news(std::span<const RunReport> reports, const std::string& version, bool histograms) {
  Json news = page_data(reports, version, {.pixels = 0, .histograms = histograms});
  if (!histograms)
    for (Json& run : news["runs"]) run["tensors"] = nullptr;
  return news;
}

std::string run_page(std::span<const RunReport> reports, const RunPageOptions& options) {
  const std::string refresh =
      options.refresh_seconds > 0
          ? fmt::format("<meta http-equiv=\"refresh\" content=\"{}\">\n", options.refresh_seconds)
          : "";
  std::string page;
  for (const Detail& detail : kDetails) {
    if (picture_bytes(reports, detail.pixels) > static_cast<double>(kMostPageBytes)) continue;
    page = filled(page_part("run.html"),
                  {{"title", escaped(title_of(reports))},
                   {"headline", escaped(run::headline_of(reports))},
                   {"refresh", refresh},
                   {"made", utc_text(static_cast<std::int64_t>(std::time(nullptr)))},
                   {"style", page_part("run.css")},
                   {"theme", page_part("theme.js")},
                   {"script", page_part("run.js")},
                   {"data", safe_in_script(json_text(page_data(reports, options.version, detail)))}});
    if (page.size() <= kMostPageBytes) break;
  }
  return page;
}

std::string run_page_script_hashes() {
  constexpr std::string_view kBegin = "<script>", kEnd = "</script>";
  const std::string_view page = page_part("run.html");
  std::vector<std::string> hashes;
  for (std::size_t at = 0; (at = page.find(kBegin, at)) != std::string_view::npos;) {
    at += kBegin.size();
    const std::string text = filled(page.substr(at, page.find(kEnd, at) - at),
                                    {{"theme", page_part("theme.js")}, {"script", page_part("run.js")}});
    Sha256 sum;
    sum.update(text);
    const Sha256Bytes bytes = sum.finish_bytes();
    hashes.push_back("'sha256-" + base64({reinterpret_cast<const char*>(bytes.data()), bytes.size()}) + "'");
  }
  return join(hashes, " ", " ");
}

}  // namespace bantam::cli
