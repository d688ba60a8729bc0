// Samples by their paths, and what is said of them.
#include "bantam/cli/predict/sample_session.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "bantam/base/clock.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/output.h"
#include "bantam/data/files/image_types.h"

namespace bantam::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kBrokenFiles = 3;  // the exit code of broken data

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::exists(b, error) && fs::equivalent(a, b, error);
}

}  // namespace

SampleSession::SampleSession(const SampleFlags& flags, StopOnSignal& stop, SampleWords words)
    : flags_(flags), stop_(stop), words_(words), model_(open_model(flags.model, false)) {
  find_samples();
  progress_.emplace(parse_progress_mode(flags.progress, stderr), stderr);
}

/// A table, or image files.
void SampleSession::find_samples() {
  const auto is_table = [](const std::string& path) { return is_table_file(path); };
  if (std::ranges::none_of(flags_.paths, is_table)) {
    const Shape& input = model_.config.model.graph.input_shape();
    if (input.rank() == 1)
      throw ConfigError(
          fmt::format("the model reads rows of {} numbers: name a .csv, .npy or .npz file of them", input[0]));
    images_ = list_images(std::vector<fs::path>(flags_.paths.begin(), flags_.paths.end()));
    return;
  }
  if (flags_.paths.size() > 1)
    throw ConfigError(
        fmt::format("a table of samples is {} alone: name one .csv, .npy or .npz file, or image files", words_.done));
  table_ = read_predicted_table(model_.config, flags_.paths[0]);
  images_.images = table_->images;
}

void SampleSession::check_out(const std::string& out) const {
  if (table_ && is_same(flags_.paths[0], out))
    throw ConfigError(fmt::format("--out: {} is the table itself; name another file", printable_line(out)));
  for (const ListedImage& image : images_.images)
    if (is_same(image.path, out))
      throw ConfigError(fmt::format("--out: {} is one of the images; name another file", printable_line(out)));
}

PredictionSummary SampleSession::run(PredictOptions options, AnswerSink& sink) {
  report_ignored();
  if (table_)
    for (const std::string& note : table_->notes) progress_->warning(note);
  options.threads = flags_.model.threads;
  options.batch_size = flags_.batch_size;
  options.stop = [this] { return stop_.requested(); };
  options.on_warning = [this](std::string_view text) { progress_->warning(text); };
  std::optional<std::chrono::steady_clock::time_point> begin;
  options.on_batch = [&](std::int64_t done, std::int64_t all) {
    if (!begin) {
      sink.begin();
      begin = std::chrono::steady_clock::now();
    }
    sink.flush();
    const double each = done > 0 ? seconds_since(*begin) / static_cast<double>(done) : 0;
    progress_->work({.what = words_.doing,
                     .unit = are_rows() ? "row" : "image",
                     .done = done,
                     .all = all,
                     .eta_seconds = each * static_cast<double>(all - done)});
  };
  std::size_t row = 0;
  const auto write = [&](const Prediction& prediction) {
    if (!prediction.error.empty()) report_broken(prediction);
    sink.write(prediction, table_ ? table_->cells[row++] : std::vector<std::string>());
  };
  return are_rows() ? predict(model_, *table_, options, write) : predict(model_, images_.images, options, write);
}

/// Files of other suffixes, and, among them, images of types that are not read: they have no answer.
void SampleSession::report_ignored() {
  if (images_.ignored.count > 0)
    progress_->message(fmt::format("ignored: {} file{} of other suffixes, such as {}",
                                   format_count(images_.ignored.count), images_.ignored.count == 1 ? "" : "s",
                                   shown(images_.ignored.examples[0], 200)));
  std::map<std::string, std::int64_t> suffixes;
  std::int64_t all = 0;
  for (const auto& [place, counts] : images_.ignored.unsupported_images)
    for (const auto& [suffix, count] : counts) {
      suffixes[suffix] += count;
      all += count;
    }
  std::vector<std::string> parts;
  for (const auto& [suffix, count] : suffixes) parts.push_back(fmt::format("{} {}", format_count(count), suffix));
  if (all > 0)
    progress_->warning(fmt::format("{} of a type that is not read {} no answer: {}; {} are read", counted(all, "image"),
                                   all == 1 ? "has" : "have", join(parts, ", ", " and "), read_image_types()));
}

/// In every mode of progress, as an error is.
void SampleSession::report_broken(const Prediction& prediction) {
  progress_->close();
  print_error("bantam: error: {}\n", shown_message(prediction.error));
}

int SampleSession::end(const PredictionSummary& summary) {
  progress_->close();
  if (summary.resized > 0)
    progress_->message(fmt::format("{} image{} of another size than the training samples' {} resized to it",
                                   format_count(summary.resized), summary.resized == 1 ? "" : "s",
                                   summary.resized == 1 ? "was" : "were"));
  if (summary.broken > 0 || summary.stopped)
    print_error("{} of {} {}; {} could not be read{}\n", format_count(summary.images - summary.broken),
                counted(samples(), are_rows() ? "row" : "image"), words_.done, format_count(summary.broken),
                summary.stopped ? "; stopped" : "");
  if (summary.stopped) return stop_exit_code(stop_.signal());
  return summary.broken > 0 ? kBrokenFiles : 0;
}

int run_samples(const std::function<int(StopOnSignal& stop)>& verb) {
  StopOnSignal stop;
  stop.note_saved();  // nothing is lost whenever it ends
  try {
    return verb(stop);
  } catch (const DeviceError& error) {
    explain_device(error);
  }
}

void add_sample_flags(CLI::App& command, SampleFlags& flags) {
  add_model_flags(command, flags.model);
  command
      .add_option("IMAGE", flags.paths,
                  "Image files, or folders of them; or one table of\nsamples (.csv, .tsv, .npy, .npz)")
      ->required();
  command.add_option("--batch-size", flags.batch_size, "Most images a batch; answers do not depend on it")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
}

void add_sample_output_flags(CLI::App& command, SampleFlags& flags) {
  add_progress_flags(command, flags.progress);
  CLI::Option* const csv = command.add_flag("--csv", flags.csv, "A row a sample instead of text");
  command.add_flag("--json", flags.json, "A JSON object a sample, one a line")->excludes(csv);
}

}  // namespace bantam::cli
