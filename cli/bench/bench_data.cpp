// `bantam bench data`: images a second of the training loader alone.
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/folder_entries.h"
#include "bantam/base/json.h"
#include "bantam/base/plain_words.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/bench.h"
#include "bantam/cli/print/output.h"
#include "bantam/run/bench/measure_loader.h"
#include "bantam/run/fit/decisions.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutBenchData =
    "Reads training batches for --seconds, with nobody computing on them, and prints\n"
    "images a second, the share of time in which the caller waited for a batch, how\n"
    "many processors were busy, and what one image costs: reading it as stored, and\n"
    "all else (decoding, stages, batching). A cache is filled first; what `disk` writes\n"
    "lies in a temporary folder (TMPDIR), or in the one that it names. On a GPU device\n"
    "batches are copied there.\n"
    "Example: bantam bench data configs/quickstart.yaml --seconds 3";

struct BenchDataOptions {
  CommonOptions common;
  std::int64_t batch_size = 0, workers = -1;
  double seconds = 10;
  bool json = false;
};

nlohmann::ordered_json json_of(const RunConfig& config, const run::LoaderMeasurement& measured) {
  nlohmann::ordered_json json = {
      {"config", config.name},
      {"device", to_string(config.device)},
      {"batch", measured.batch_size},
      {"workers", measured.workers},
      {"depth", measured.depth},
      {"images", measured.images},
      {"seconds", measured.seconds},
      {"images_per_s", measured.images_per_s()},
      {"waited_share", measured.waited_seconds / measured.seconds},
      {"busy_processors", measured.cpu_seconds / measured.seconds},
      {"cpu_us_per_image", 1e6 * measured.cpu_seconds / static_cast<double>(measured.images)},
      {"fetch_us", measured.fetch_us},
      {"stored_bytes", measured.stored_bytes}};
  json["decoder"] = measured.decoder.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(measured.decoder);
  if (measured.gpu)
    json["gpu_decoding"] = {{"gpu_files", measured.gpu->gpu_files},
                            {"cpu_files", measured.gpu->cpu_files},
                            {"device_bytes", measured.gpu->device_bytes},
                            {"host_bytes", measured.gpu->host_bytes},
                            {"peak_device_bytes", measured.gpu->peak_device_bytes},
                            {"peak_host_bytes", measured.gpu->peak_host_bytes}};
  return json;
}

std::string decoder_text(const run::LoaderMeasurement& measured) {
  if (measured.decoder.empty()) return {};
  std::string text = fmt::format("decoder     {}", measured.decoder);
  if (measured.gpu) {
    const run::GpuDecoding& gpu = *measured.gpu;
    text += fmt::format(": {}; {} by the CPU\n", counted(gpu.gpu_files, "file"), format_count(gpu.cpu_files));
    text += fmt::format("            reserves {} of the GPU and {} of host memory, of which nvJPEG used {} and {}",
                        format_byte_size(gpu.device_bytes), format_byte_size(gpu.host_bytes),
                        format_byte_size(gpu.peak_device_bytes), format_byte_size(gpu.peak_host_bytes));
  }
  return text + "\n";
}

std::string text_of(const RunConfig& config, const run::LoaderMeasurement& measured) {
  const double each = 1e6 * measured.cpu_seconds / static_cast<double>(measured.images);
  std::string text =
      fmt::format("{} on {}, batches of {}, {}, {} ahead\n", config.name, to_string(config.device), measured.batch_size,
                  counted(measured.workers, "worker"), counted(measured.depth, "batch", "batches"));
  text += fmt::format("images/s    {} ({} in {})\n", format_count(std::llround(measured.images_per_s())),
                      format_count(measured.images), format_duration(measured.seconds));
  text += fmt::format("waiting     {:.0f} % of the time; {:.2f} processors busy\n",
                      100 * measured.waited_seconds / measured.seconds, measured.cpu_seconds / measured.seconds);
  text += fmt::format("an image    {:.1f} us of processor time; reading its {} alone {:.1f} us\n", each,
                      format_byte_size(static_cast<std::uint64_t>(measured.stored_bytes)), measured.fetch_us);
  return text + decoder_text(measured);
}

/// The configuration as `train` decides it, but for the flags.
RunConfig decided_config(const BenchDataOptions& options) {
  RunConfig config = read_config(options.common);
  run::require_device(config);
  if (!config.data) config.document.root().fail_at_key("missing key 'data': there is no loader without data");
  if (options.batch_size > 0) run::set_batch_size(config, options.batch_size);
  run::DecisionLog log;
  if (config.data->pipeline.batch_size_is_auto)
    config = run::decide(config, measured_target(config), run::for_step, log);
  if (options.workers >= 0) config.data->pipeline.prefetch.workers = options.workers;
  return config;
}

/// A folder for what `cache: disk` writes without one of its own, for as long as it is measured.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_(make_temporary_folder("bantam-bench-")) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    remove_folder(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path path() const { return path_; }

 private:
  std::filesystem::path path_;
};

int bench_data(const BenchDataOptions& options) {
  RunConfig config = decided_config(options);
  const TemporaryFolder folder;
  config.data->run_folder = folder.path().string();
  const run::LoaderMeasurement measured = run::measure_loader(config, options.common.threads, options.seconds);
  const std::string text = options.json ? json_text(json_of(config, measured)) + "\n" : text_of(config, measured);
  write_text(text);
  return 0;
}

}  // namespace

void add_bench_data(CLI::App& bench, Action& action) {
  CLI::App* command = bench.add_subcommand("data", "Time the training loader alone");
  command->footer(kAboutBenchData);
  const auto options = std::make_shared<BenchDataOptions>();
  add_common_options(*command, options->common);
  command->add_option("--batch-size", options->batch_size, "Default: the configuration's")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--workers", options->workers, "Threads that make batches; default: the configuration's")
      ->check(CLI::Range(0, 1024));
  command->add_option("--seconds", options->seconds, "Measuring time")
      ->check(positive_seconds())
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object instead of text");
  command->callback([&action, options] { action = [options] { return bench_data(*options); }; });
}

}  // namespace bantam::cli
