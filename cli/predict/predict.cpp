// `bantam predict`: a trained model on image files.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/clock.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/model_flags.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/predict/prediction_writer.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/progress.h"
#include "bantam/cli/signals.h"
#include "bantam/data/files/image_types.h"
#include "bantam/data/images/encode.h"

namespace bantam::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kBrokenFiles = 3;  // the exit code of broken data

constexpr const char* kAbout =
    "Classes with their probabilities (or labels above --threshold, numbers, masks:\n"
    "what the model's loss is of) of image files, or of the rows of a table, through\n"
    "the run's own stages of evaluation and with its class names. The training data\n"
    "need not be there. Of a folder, the image files below it. A table is a CSV file\n"
    "(rows of numbers by their columns' names, or images that it names), .npy or\n"
    ".npz; its columns are written beside the answers. What cannot be read is named\n"
    "and left out; the exit code is then 3. Masks are PNG files whose pixels are\n"
    "class numbers, in the folder --out.\n"
    "Example: bantam predict runs/pets holiday/ --top 1 --out holiday.csv\n"
    "Example: bantam predict runs/flowers new.csv --out answers.csv";

struct PredictFlags {
  ModelFlags model;
  std::vector<std::string> paths;
  std::int64_t top = 5, batch_size = 0;
  double threshold = 0.5;
  std::string out, progress = "auto";
  bool csv = false, json = false;
};

bool makes_masks(Task task) { return task == Task::segmentation || task == Task::masks; }

/// By a flag, else by the suffix of --out.
PredictionFormat format_of(const PredictFlags& flags, bool out_is_folder) {
  const std::string suffix = out_is_folder ? "" : fs::path(flags.out).extension().string();
  if (flags.csv || (!flags.json && suffix == ".csv")) return PredictionFormat::csv;
  if (flags.json || suffix == ".json" || suffix == ".jsonl") return PredictionFormat::json;
  return PredictionFormat::text;
}

/// The output for lines: standard output, or a file that grows line by line and keeps its old contents until `begin`.
class Lines {
 public:
  explicit Lines(const std::string& path) : path_(path) {}
  ~Lines() {
    if (file_ != nullptr) std::fclose(file_);
  }
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;

  void begin() {
    if (path_.empty()) return;
    file_ = std::fopen(path_.c_str(), "w");
    if (file_ == nullptr) throw DataError(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
  }
  /// After `begin`. Throws DataError where a file has no room; of standard output, main() says so.
  void write(const std::string& text) {
    if (file_ == nullptr) return write_text(text);
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size())
      throw DataError(fmt::format("{}: {}", path_, std::strerror(errno)));
  }
  void flush() {
    if (std::fflush(file_ != nullptr ? file_ : stdout) != 0 && file_ != nullptr)
      throw DataError(fmt::format("{}: {}", path_, std::strerror(errno)));
  }

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
};

/// Where masks are written: NAME.png of each image, or, of several masks an image, NAME-CLASS.png.
class MaskFolder {
 public:
  MaskFolder(fs::path folder, Task task, const std::vector<std::string>& classes) : folder_(std::move(folder)) {
    if (task == Task::segmentation || classes.size() == 1) return;
    ends_.clear();
    for (std::string name : classes) {
      std::ranges::replace(name, '/', '_');  // a class is no folder
      ends_.push_back("-" + name + ".png");
    }
  }

  /// Two masks must not have one file, and no image may be replaced.
  void check(const std::vector<ListedImage>& images) const {
    std::set<fs::path> seen, inputs;
    for (const ListedImage& image : images) inputs.insert(plain(image.path));
    for (const ListedImage& image : images)
      for (const fs::path& mask : paths(image.name)) {
        if (!seen.insert(mask).second)
          throw ConfigError(
              fmt::format("--out: two masks would be {}; predict the images' folders one by one", mask.string()));
        if (inputs.contains(plain(mask)))
          throw ConfigError(
              fmt::format("--out: the mask {} would replace an image; name another folder", mask.string()));
      }
  }
  void write(const Prediction& prediction) const {
    const std::vector<fs::path> files = paths(prediction.name);
    for (std::size_t m = 0; m < files.size(); ++m) {
      make_folders(files[m].parent_path());
      write_file_atomically(files[m], encode_png(prediction.masks[m]));
    }
  }

 private:
  /// The same for all names of one file.
  static fs::path plain(const fs::path& path) {
    std::error_code error;
    fs::path same = fs::weakly_canonical(path, error);
    return error ? path : same;
  }
  std::vector<fs::path> paths(const std::string& name) const {
    const fs::path stem = folder_ / fs::path(name).replace_extension();
    std::vector<fs::path> files;
    for (const std::string& end : ends_) files.emplace_back(stem.string() + end);
    return files;
  }

  fs::path folder_;
  std::vector<std::string> ends_ = {".png"};
};

/// The file of --out must be none of those that are read.
void check_lines(const std::vector<ListedImage>& images, const std::string& out) {
  std::error_code error;
  if (!fs::exists(out, error)) return;
  for (const ListedImage& image : images)
    if (fs::equivalent(image.path, out, error))
      throw ConfigError(fmt::format("--out: {} is one of the images; name another file", printable_line(out)));
}

/// One prediction of a list, from its flags to its lines.
class PredictVerb {
 public:
  PredictVerb(const PredictFlags& flags, StopOnSignal& stop)
      : flags_(flags), stop_(stop), model_(open_model(flags.model, false)), task_(task_of(model_.config)) {
    if (makes_masks(task_) && flags.out.empty())
      throw ConfigError("the model makes masks: --out names the folder for them");
    if (task_ == Task::segmentation && output_names(model_).size() > 256)
      throw ConfigError("a mask's pixels are numbers of 8 bits: at most 256 classes");
    find_samples();
    if (makes_masks(task_) && are_rows())
      throw ConfigError("the model makes masks, which are written of image files: name those, or a CSV file of them");
    if (makes_masks(task_))
      masks_.emplace(flags.out, task_, output_names(model_)).check(images_.images);
    else
      check_lines(images_.images, flags.out);
    // Lines on a terminal are progress enough.
    const bool lines_are_seen = flags.progress == "auto" && (flags.out.empty() && isatty(STDOUT_FILENO) != 0);
    progress_.emplace(lines_are_seen ? ProgressMode::none : parse_progress_mode(flags.progress, stderr), stderr);
  }

  int run() {
    Lines lines(makes_masks(task_) ? "" : flags_.out);
    const PredictionWriter writer({.format = format_of(flags_, makes_masks(task_)),
                                   .task = task_,
                                   .names = output_names(model_),
                                   .top = flags_.top,
                                   .threshold = flags_.threshold,
                                   .columns = table_ ? table_->columns : std::vector<std::string>()});
    if (images_.ignored.count > 0)
      progress_->message(fmt::format("ignored: {} file{} of other suffixes, such as {}",
                                     format_count(images_.ignored.count), images_.ignored.count == 1 ? "" : "s",
                                     shown(images_.ignored.examples[0], 200)));
    report_unsupported();
    if (table_)
      for (const std::string& note : table_->notes) progress_->warning(note);
    std::size_t row = 0;
    const auto write = [&](const Prediction& prediction) {
      if (masks_ && prediction.error.empty()) masks_->write(prediction);
      if (!prediction.error.empty()) report_broken(prediction);
      lines.write(writer.line(prediction, table_ ? table_->cells[row++] : std::vector<std::string>()));
    };
    const PredictOptions how = options(lines, writer.header());
    const PredictionSummary summary =
        are_rows() ? predict(model_, *table_, how, write) : predict(model_, images_.images, how, write);
    lines.flush();
    return end(summary);
  }

 private:
  bool are_rows() const { return table_ && table_->samples != nullptr; }

  /// A table, or image files.
  void find_samples() {
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
      throw ConfigError("a table of samples is predicted alone: name one .csv, .npy or .npz file, or image files");
    table_ = read_predicted_table(model_.config, flags_.paths[0]);
    images_.images = table_->images;
    std::error_code error;
    if (!flags_.out.empty() && fs::exists(flags_.out, error) && fs::equivalent(flags_.paths[0], flags_.out, error))
      throw ConfigError(fmt::format("--out: {} is the table itself; name another file", printable_line(flags_.out)));
  }
  std::int64_t samples() const { return table_ ? std::ssize(table_->names) : std::ssize(images_.images); }

  /// Lines begin, with `header`, once it is known that there is memory.
  PredictOptions options(Lines& lines, const std::string& header) {
    PredictOptions options{
        .threads = flags_.model.threads, .batch_size = flags_.batch_size, .threshold = flags_.threshold};
    options.stop = [this] { return stop_.requested(); };
    options.on_batch = [this, &lines, header, begin = std::optional<std::chrono::steady_clock::time_point>()](
                           std::int64_t done, std::int64_t images) mutable {
      if (!begin) {
        lines.begin();
        lines.write(header);
        begin = std::chrono::steady_clock::now();
      }
      lines.flush();
      const double each = done > 0 ? seconds_since(*begin) / static_cast<double>(done) : 0;
      progress_->work({.what = "predicting",
                       .unit = are_rows() ? "row" : "image",
                       .done = done,
                       .all = images,
                       .eta_seconds = each * static_cast<double>(images - done)});
    };
    options.on_warning = [this](std::string_view text) { progress_->warning(text); };
    return options;
  }

  /// Images among the ignored files that are of types that are not read: they have no answer.
  void report_unsupported() {
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
      progress_->warning(fmt::format("{} of a type that is not read {} no answer: {}; {} are read",
                                     counted(all, "image"), all == 1 ? "has" : "have", join(parts, ", ", " and "),
                                     read_image_types()));
  }

  /// In every mode of progress, as an error is.
  void report_broken(const Prediction& prediction) {
    progress_->close();
    print_error("bantam: error: {}\n", shown_message(prediction.error));
  }

  int end(const PredictionSummary& summary) {
    progress_->close();
    if (summary.resized > 0)
      progress_->message(fmt::format("{} image{} of another size than the training samples' {} resized to it",
                                     format_count(summary.resized), summary.resized == 1 ? "" : "s",
                                     summary.resized == 1 ? "was" : "were"));
    if (summary.broken > 0 || summary.stopped)
      print_error("{} of {} predicted; {} could not be read{}\n", format_count(summary.images - summary.broken),
                  counted(samples(), are_rows() ? "row" : "image"), format_count(summary.broken),
                  summary.stopped ? "; stopped" : "");
    if (summary.stopped) return stop_exit_code(stop_.signal());
    return summary.broken > 0 ? kBrokenFiles : 0;
  }

  const PredictFlags& flags_;
  StopOnSignal& stop_;
  TrainedModel model_;
  Task task_;
  ImageList images_;
  std::optional<PredictedTable> table_;
  std::optional<MaskFolder> masks_;  // of tasks that make masks
  std::optional<Progress> progress_;
};

int run_predict(const PredictFlags& flags) {
  StopOnSignal stop;
  stop.note_saved();  // nothing is lost whenever it ends
  try {
    return PredictVerb(flags, stop).run();
  } catch (const DeviceError& error) {
    explain_device(error);
  }
}

}  // namespace

void add_predict(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("predict", "Classes, numbers or masks of images and rows");
  command->footer(kAbout);
  const auto flags = std::make_shared<PredictFlags>();
  add_model_flags(*command, flags->model);
  command
      ->add_option("IMAGE", flags->paths,
                   "Image files, or folders of them; or one table of\nsamples (.csv, .tsv, .npy, .npz)")
      ->required();
  command->add_option("--top", flags->top, "Classes of an image, the most probable first")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  command
      ->add_option("--threshold", flags->threshold, "Probability from which one of several labels\n(or a mask) counts")
      ->check(CLI::Range(1e-6, 1 - 1e-6))
      ->capture_default_str();
  command->add_option("--batch-size", flags->batch_size, "Most images a batch; answers do not depend on it")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  command->add_option("-o,--out", flags->out,
                      "File for the lines (.csv and .json name their\nformat); of masks the folder");
  add_progress_flags(*command, flags->progress);
  CLI::Option* const csv = command->add_flag("--csv", flags->csv, "A row a sample instead of text");
  command->add_flag("--json", flags->json, "A JSON object a sample, one a line")->excludes(csv);
  command->callback([&action, flags] { action = [flags] { return run_predict(*flags); }; });
}

}  // namespace bantam::cli
