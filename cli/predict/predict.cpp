// `bantam predict`: a trained model on image files.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
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
#include "bantam/base/error.h"
#include "bantam/base/printable.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/predict/prediction_writer.h"
#include "bantam/cli/predict/sample_session.h"
#include "bantam/cli/print/output.h"
#include "bantam/data/images/encode.h"

namespace bantam::cli {
namespace {

namespace fs = std::filesystem;

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
  SampleFlags samples;
  std::int64_t top = 5;
  double threshold = 0.5;
};

bool makes_masks(Task task) { return task == Task::segmentation || task == Task::masks; }

/// By a flag, else by the suffix of --out.
PredictionFormat format_of(const SampleFlags& flags, bool out_is_folder) {
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

/// One prediction of a list, from its flags to its lines.
class PredictVerb : private AnswerSink {
 public:
  PredictVerb(const PredictFlags& flags, StopOnSignal& stop)
      : flags_(flags), session_(flags.samples, stop), task_(task_of(model().config)), lines_(lines_file()) {
    const std::string& out = flags.samples.out;
    if (makes_masks(task_) && out.empty()) throw ConfigError("the model makes masks: --out names the folder for them");
    if (task_ == Task::segmentation && output_names(model()).size() > 256)
      throw ConfigError("a mask's pixels are numbers of 8 bits: at most 256 classes");
    if (makes_masks(task_) && session_.are_rows())
      throw ConfigError("the model makes masks, which are written of image files: name those, or a CSV file of them");
    if (makes_masks(task_))
      masks_.emplace(out, task_, output_names(model())).check(session_.images());
    else
      session_.check_out(out);
    // Lines on a terminal are progress enough.
    if (flags.samples.progress == "auto" && out.empty() && isatty(STDOUT_FILENO) != 0) session_.hide_progress();
  }

  int run() {
    writer_.emplace(PredictionStyle{.format = format_of(flags_.samples, makes_masks(task_)),
                                    .task = task_,
                                    .names = output_names(model()),
                                    .top = flags_.top,
                                    .threshold = flags_.threshold,
                                    .columns = session_.columns()});
    const PredictionSummary summary = session_.run({.threshold = flags_.threshold}, *this);
    lines_.flush();
    return session_.end(summary);
  }

 private:
  const TrainedModel& model() const { return session_.model(); }
  std::string lines_file() const { return makes_masks(task_) ? "" : flags_.samples.out; }

  void begin() override {
    lines_.begin();
    lines_.write(writer_->header());
  }
  void write(const Prediction& prediction, const std::vector<std::string>& cells) override {
    if (masks_ && prediction.error.empty()) masks_->write(prediction);
    lines_.write(writer_->line(prediction, cells));
  }
  void flush() override { lines_.flush(); }

  const PredictFlags& flags_;
  SampleSession session_;
  Task task_;
  Lines lines_;
  std::optional<PredictionWriter> writer_;
  std::optional<MaskFolder> masks_;  // of tasks that make masks
};

int run_predict(const PredictFlags& flags) {
  return run_samples([&](StopOnSignal& stop) { return PredictVerb(flags, stop).run(); });
}

}  // namespace

void add_predict(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("predict", "Classes, numbers or masks of images and rows");
  command->footer(kAbout);
  const auto flags = std::make_shared<PredictFlags>();
  add_sample_flags(*command, flags->samples);
  command->add_option("--top", flags->top, "Classes of an image, the most probable first")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  command
      ->add_option("--threshold", flags->threshold, "Probability from which one of several labels\n(or a mask) counts")
      ->check(CLI::Range(1e-6, 1 - 1e-6))
      ->capture_default_str();
  command->add_option("-o,--out", flags->samples.out,
                      "File for the lines (.csv and .json name their\nformat); of masks the folder");
  add_sample_output_flags(*command, flags->samples);
  command->callback([&action, flags] { action = [flags] { return run_predict(*flags); }; });
}

}  // namespace bantam::cli
