// `bantam embed`: features of image files, or of a table's rows, as a .npy array.
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/predict/prediction_writer.h"
#include "bantam/cli/predict/sample_session.h"
#include "bantam/cli/print/output.h"
#include "bantam/data/files/npy_writer.h"

namespace bantam::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAbout =
    "Features of image files, or of the rows of a table: what the last dense layer\n"
    "of a trained classifier reads, or the outputs of the layer --at. They are a\n"
    "float32 array of NumPy, (samples, features); beside it a file of the same name\n"
    "says which file or row each row is of: .txt, with --csv .csv, with --json\n"
    ".jsonl. Samples are read as `bantam predict` reads them. What cannot be read is\n"
    "named and has no row; the exit code is then 3. Both files are whole or not\n"
    "there.\n"
    "Example: bantam embed runs/pets photos/ --out photos.npy";

struct EmbedFlags {
  SampleFlags samples;
  std::string at;
};

/// The array, and the file of names beside it.
class FeatureFiles : public AnswerSink {
 public:
  FeatureFiles(const SampleFlags& flags, Shape row, std::vector<std::string> columns)
      : flags_(flags), row_(row), columns_(std::move(columns)), array_path_(flags.out) {
    if (array_path_.extension() != ".npy")
      throw ConfigError(
          fmt::format("--out: expected a name that ends with .npy, got {}", printable_line(array_path_.string())));
    names_path_ = array_path_;
    names_path_.replace_extension(flags.csv ? ".csv" : flags.json ? ".jsonl" : ".txt");
  }

  const fs::path& array_path() const { return array_path_; }
  const fs::path& names_path() const { return names_path_; }
  std::int64_t rows() const { return array_ ? array_->rows() : 0; }

  void begin() override {
    array_.emplace(array_path_, row_);
    names_.emplace(names_path_);
    if (flags_.csv) names_->write(csv_line(columns_.empty() ? std::vector<std::string>{"file"} : columns_));
  }
  void write(const Prediction& prediction, const std::vector<std::string>& cells) override {
    if (flags_.json) names_->write(json_line(prediction, cells));
    if (!prediction.error.empty()) return;
    if (flags_.csv) names_->write(csv_line(columns_.empty() ? std::vector<std::string>{prediction.file} : cells));
    if (!flags_.csv && !flags_.json) names_->write(printable_line(prediction.file) + "\n");
    array_->append(prediction.values);
  }
  /// Neither file is there before.
  void commit() {
    array_->commit();
    names_->commit();
  }

 private:
  static std::string csv_line(const std::vector<std::string>& texts) {
    std::vector<std::string> cells;
    for (const std::string& text : texts) cells.push_back(csv_cell(text));
    return fmt::format("{}\n", fmt::join(cells, ","));
  }
  std::string json_line(const Prediction& prediction, const std::vector<std::string>& cells) const {
    nlohmann::ordered_json json = {{"file", prediction.file}};
    for (std::size_t c = 0; c < std::min(cells.size(), columns_.size()); ++c) json["input"][columns_[c]] = cells[c];
    if (prediction.error.empty())
      json["row"] = rows();
    else
      json["error"] = prediction.error;
    return json_text(json) + "\n";
  }

  const SampleFlags& flags_;
  Shape row_;
  std::vector<std::string> columns_;
  fs::path array_path_, names_path_;
  std::optional<NpyWriter> array_;
  std::optional<AtomicFile> names_;
};

int run_embed(const EmbedFlags& flags, StopOnSignal& stop) {
  SampleSession session(flags.samples, stop, {.doing = "embedding", .done = "embedded"});
  const GraphNode features =
      of_flag("--at", [&] { return feature_layer(session.model().config.model.graph, flags.at); });
  FeatureFiles files(flags.samples, features.output, session.columns());
  for (const fs::path& path : {files.array_path(), files.names_path()}) session.check_out(path.string());
  const PredictionSummary summary = session.run({.at = features.name}, files);
  const int code = session.end(summary);
  if (summary.stopped || files.rows() == 0) {
    print_error("{} is not written\n", printable_line(files.array_path().string()));
    return code;
  }
  files.commit();
  print_out("{}: {} float32, outputs of {}; names in {}\n", printable_line(files.array_path().string()),
            to_string(features.output.prepend(files.rows())), printable_line(features.name),
            printable_line(files.names_path().string()));
  return code;
}

}  // namespace

void add_embed(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("embed", "Features of images and rows, as a .npy array");
  command->footer(kAbout);
  const auto flags = std::make_shared<EmbedFlags>();
  add_sample_flags(*command, flags->samples);
  command->add_option("--at", flags->at,
                      "Layer whose outputs are the features; default: the\none before the last dense layer");
  command->add_option("-o,--out,--output", flags->samples.out, "The .npy file")->required();
  add_sample_output_flags(*command, flags->samples);
  command->callback([&action, flags] {
    action = [flags] { return run_samples([&](StopOnSignal& stop) { return run_embed(*flags, stop); }); };
  });
}

}  // namespace bantam::cli
