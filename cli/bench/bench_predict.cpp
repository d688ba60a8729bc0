// `bantam bench predict`: latency and images a second of inference, rows that can stand beside onnxruntime's and
// PyTorch's.
#include <cstdio>
#include <memory>
#include <optional>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/output.h"
#include "bantam/run/bench/measure_predict.h"
#include "bantam/run/config/aliases.h"
#include "bantam/run/fit/fitting.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutBenchPredict =
    "Time inference (a Predictor) of the configuration's network on random images,\n"
    "with random weights: no data and no trained weights are read. Batch norms are\n"
    "folded, passes are planned, and on a GPU captured. ms is the median of calls,\n"
    "from host memory to host memory; 99 % of the calls need at most the next figure.\n"
    "resident: with inputs that lie on the GPU. planned: weights and arena.\n\n"
    "Example: bantam bench predict configs/mobilenet_v1.yaml --batch-sizes 1,32";

struct BenchPredictOptions {
  CommonOptions common;
  std::string batch_sizes = "1,32,256", precisions;
  double seconds = 1.5;
  bool json = false;
};

std::vector<Precision> precisions_of(const RunConfig& config, const BenchPredictOptions& options) {
  if (options.precisions.empty()) return {config.precision};
  std::vector<Precision> precisions;
  for (const std::string& text : parse_texts("--precision", options.precisions))
    precisions.push_back(
        of_flag("--precision", [&] { return parse_precision(run::precision_name(text), config.device); }));
  return precisions;
}

nlohmann::ordered_json json_of(const RunConfig& config, const run::PredictCase& row) {
  return {{"model", config.model.name},
          {"batch", row.batch},
          {"precision", to_string(row.precision)},
          {"device", to_string(config.device)}};
}

void add_figures(nlohmann::ordered_json& json, const run::PredictMeasurement& measured) {
  json["ms"] = measured.ms;
  json["ms_99"] = measured.ms_99;
  json["images_per_s"] = measured.images_per_s;
  if (measured.resident_ms > 0) json["resident_ms"] = measured.resident_ms;
  json["calls"] = measured.calls;
  json["planned_bytes"] = measured.planned_bytes;
}

std::string cells_of(const run::PredictMeasurement& measured) {
  return fmt::format(" {:>8.4g} {:>8.4g} {:>8} {:>8} {:>7}", measured.ms, measured.ms_99,
                     compact_rate(measured.images_per_s, 7),
                     measured.resident_ms > 0 ? fmt::format("{:.4g}", measured.resident_ms) : "-",
                     compact_bytes(measured.planned_bytes));
}

int bench_predict(const BenchPredictOptions& options) {
  const RunConfig config = read_config(options.common);
  run::require_model_fits(config);
  run::require_device(config);
  const std::vector<std::int64_t> batches = parse_integers("--batch-sizes", options.batch_sizes);
  const std::vector<Precision> precisions = precisions_of(config, options);
  if (!options.json)
    print_out("{} on {}\n{:>5} {:4} {:>8} {:>8} {:>8} {:>8} {:>7}\n", printable_line(config.model.name),
              to_string(config.device), "batch", "type", "ms", "99 %", "images/s", "resident", "planned");
  bool any = false;
  std::optional<OutOfMemory> refused;  // the first
  for (const Precision precision : precisions)
    for (const std::int64_t batch : batches) {
      const run::PredictCase row{batch, precision, options.common.threads, options.seconds};
      nlohmann::ordered_json json = json_of(config, row);
      std::string cells = fmt::format("{:>5} {:4}", batch, short_name(precision));
      try {
        const run::PredictMeasurement measured = run::measure_predict(config, row);
        add_figures(json, measured);
        cells += cells_of(measured);
        any = true;
      } catch (const OutOfMemory& error) {
        if (!refused) refused = error;
        json["error"] = "does not fit";
        cells += "  does not fit";
      }
      print_out("{}\n", options.json ? json_text(json) : cells);
      std::fflush(stdout);
    }
  if (!any && refused) throw *refused;
  return 0;
}

}  // namespace

void add_bench_predict(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("predict", "Time inference");
  command->footer(kAboutBenchPredict);
  const auto options = std::make_shared<BenchPredictOptions>();
  add_common_options(*command, options->common);
  command->add_option("--batch-sizes,--batch-size", options->batch_sizes, "Comma-separated")->capture_default_str();
  command->add_option("--precision", options->precisions,
                      "Comma-separated: float32, mixed_float16,\nmixed_bfloat16, float16; default: the config's");
  command->add_option("--seconds", options->seconds, "Measuring time a row")
      ->check(positive_seconds())
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object a row, bytes exact");
  command->callback([&action, options] { action = [options] { return bench_predict(*options); }; });
}

}  // namespace bantam::cli
