// `bantam report`: one page of what came out of runs.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/clock.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/pages/run_page.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/progress.h"
#include "bantam/cli/signals.h"
#include "bantam/run/evaluate/evaluation.h"
#include "bantam/run/report/run_report.h"

namespace bantam::cli {
namespace fs = std::filesystem;
namespace {

constexpr const char* kAbout =
    "Curves, confusions, the worst and random held-out images with the answers of\n"
    "the run's best weights, histograms of weights and gradients, the configuration;\n"
    "of several runs (or a sweep's folder) what they differ in. The page needs no\n"
    "network. --watch writes it anew as a run goes on; images follow at its end.\n"
    "Example: bantam report runs/pets --out pets.html";

struct ReportOptions {
  std::vector<std::string> paths;
  std::string out, progress = "auto";
  std::int64_t samples = 10'000;
  int threads = 0;
  bool watch = false, json = false;
};

/// Fewer points and histograms a run where there are many runs: the page stays small, and legible.
run::RunReportOptions options_of(const ReportOptions& flags, std::size_t runs) {
  constexpr std::size_t kPoints = 2400, kMostPoints = 600, kLeastPoints = 60, kHistograms = 1200;
  run::RunReportOptions options{.most_points = std::clamp(kPoints / runs, kLeastPoints, kMostPoints),
                                .most_histograms = kHistograms / runs};
  options.held_out->most_samples = flags.samples;
  options.held_out->threads = flags.threads;
  return options;
}

class ReportVerb {
 public:
  explicit ReportVerb(const ReportOptions& flags)
      : flags_(flags), progress_(parse_progress_mode(flags.progress, stderr), stderr) {
    const std::vector<fs::path> paths(flags.paths.begin(), flags.paths.end());
    folders_ = run::run_folders(paths);
    out_ = !flags.out.empty()     ? fs::path(flags.out)
           : folders_.size() == 1 ? folders_[0] / "report.html"
                                  : fs::path("report.html");
    stop_.note_saved();  // nothing is lost whenever it ends
  }

  int run() {
    try {
      if (flags_.watch) watch();
      const std::vector<run::RunReport> reports = read(flags_.samples > 0);
      const std::string page = run_page(reports);
      write(page);
      progress_.close();
      print_end(reports, page.size());
      return 0;
    } catch (const run::EvaluationStopped& stopped) {
      progress_.message(stopped.what());
      return stop_exit_code(stop_.signal());
    }
  }

 private:
  /// In the run's folder no link is followed; the file of --out is the user's own.
  void write(const std::string& page) const {
    if (flags_.out.empty() && folders_.size() == 1)
      write_file_atomically(FolderFile{out_}, page);
    else
      write_file_atomically(out_, page);
  }
  std::vector<run::RunReport> read(bool held_out) {
    run::RunReportOptions options = options_of(flags_, folders_.size());
    if (!held_out) options.held_out.reset();
    std::vector<run::RunReport> reports;
    for (const fs::path& folder : folders_) {
      if (held_out) follow(folder, *options.held_out);
      reports.push_back(report_of(folder, options));
      if (!held_out) reports.back().no_weights = reports.back().no_held_out = why_none();
    }
    run::make_names_distinct(reports);
    return reports;
  }
  std::string why_none() const {
    return flags_.samples == 0 ? "Left out (--samples 0)." : "Follows when the run has ended.";
  }
  void follow(const fs::path& folder, run::HeldOutOptions& options) {
    const auto begin = std::chrono::steady_clock::now();
    options.stop = [this] { return stop_.requested(); };
    options.on_batch = [this, begin, folder](std::int64_t done, std::int64_t samples) {
      const double each = done > 0 ? seconds_since(begin) / static_cast<double>(done) : 0;
      progress_.work({.what = "answering for " + folder.filename().string(),
                      .unit = "sample",
                      .done = done,
                      .all = samples,
                      .eta_seconds = each * static_cast<double>(samples - done)});
    };
    options.on_warning = [this](std::string_view text) { progress_.warning(text); };
  }

  /// Writes the page whenever a run has news, until all have ended.
  void watch() {
    constexpr int kRefresh = 5;
    constexpr auto kPause = std::chrono::milliseconds(200);
    std::string shown;
    while (!stop_.requested()) {
      const std::vector<run::RunReport> reports = read(false);
      if (std::ranges::all_of(reports, &run::RunReport::has_ended)) return;
      if (const std::string news = json_text(run_page_news(reports, "", false)); news != shown) {
        write(run_page(reports, {.refresh_seconds = kRefresh}));
        if (shown.empty()) progress_.message(fmt::format("{} follows the run; Ctrl-C ends it", out_.string()));
        shown = news;
      }
      for (int i = 0; i < 5 * kRefresh && !stop_.requested(); ++i) std::this_thread::sleep_for(kPause);
    }
    throw run::EvaluationStopped(fmt::format("stopped; {} shows the run as it was", out_.string()));
  }

  void print_end(const std::vector<run::RunReport>& reports, std::size_t bytes) const {
    if (flags_.json) {
      print_out("{}\n", json_text(json_of(reports, bytes)));
      return;
    }
    print_out("{}\n", printable(run::headline_of(reports)));
    for (const run::RunReport& report : reports)
      for (const std::string& missing : {report.no_weights, report.no_held_out})
        if (!missing.empty() && flags_.samples > 0) {
          print_out("{}: without held-out samples: {}\n", printable_line(report.name), printable(missing));
          break;
        }
    print_out("{} ({})\n", printable_line(out_.string()), format_byte_size(bytes));
  }
  nlohmann::ordered_json json_of(const std::vector<run::RunReport>& reports, std::size_t bytes) const {
    nlohmann::ordered_json json = {
        {"file", out_.string()}, {"bytes", bytes}, {"headline", run::headline_of(reports)}, {"runs", {}}};
    for (const run::RunReport& report : reports) {
      nlohmann::ordered_json run = {{"name", report.name}, {"path", report.run.path.string()}};
      run["state"] = report.run.state;
      run["updates"] = report.run.record.updates;
      run["weights"] = report.weights_file.string();
      if (report.held_out)
        run["held_out"] = {{"samples", report.held_out->samples},
                           {"of", report.held_out->of},
                           {"loss", report.held_out->loss},
                           {"accuracy", report.held_out->accuracy}};
      else
        run["no_held_out"] = report.no_held_out;
      json["runs"].push_back(std::move(run));
    }
    return json;
  }

  const ReportOptions& flags_;
  Progress progress_;
  StopOnSignal stop_;
  std::vector<fs::path> folders_;
  fs::path out_;
};

}  // namespace

void add_report(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("report", "A page of what came out of runs");
  command->footer(kAbout);
  const auto flags = std::make_shared<ReportOptions>();
  command->add_option("RUN", flags->paths, "Folders of runs, or of a sweep")->required();
  command->add_option("--out", flags->out, "The page; default: RUN/report.html");
  command->add_option("--samples", flags->samples, "Held-out samples looked at at most; 0: none")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 31).description(""))
      ->capture_default_str();
  command->add_flag("--watch", flags->watch, "Write the page anew until the runs have ended");
  command->add_option("--threads", flags->threads, "CPU threads; 0: all processors")
      ->check(CLI::Range(0, 4096).description(""))
      ->capture_default_str();
  command->add_option("--progress", flags->progress, "auto, bar, plain, json or none (on stderr)")
      ->capture_default_str();
  command->add_flag("--json", flags->json, "One JSON object instead of text");
  command->callback([&action, flags] { action = [flags] { return ReportVerb(*flags).run(); }; });
}

}  // namespace bantam::cli
