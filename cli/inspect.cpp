// `bantam inspect`: tensors of a weights or state file or an ONNX model, and what a checkpoint or model knows of
// itself.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/terminal.h"
#include "bantam/run/inspect/inspection.h"

namespace bantam::cli {
namespace {

using run::InspectedFile;
using run::InspectedTensor;
using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string path;
  bool json = false;
};

Json json_of(const InspectedTensor& tensor) {
  const run::TensorStatistics& values = tensor.statistics;
  const auto extents = tensor.shape.extents();
  Json json = {{"name", tensor.name},
               {"dtype", to_string(tensor.dtype)},
               {"shape", std::vector<std::int64_t>(extents.begin(), extents.end())},
               {"bytes", tensor.bytes}};
  const auto number = [&](double value) { return values.finite > 0 ? Json(value) : Json(nullptr); };
  json["min"] = number(values.min);
  json["max"] = number(values.max);
  json["mean"] = number(values.mean);
  json["std"] = number(values.deviation);
  json["zeros"] = values.zeros;
  json["not_finite"] = values.not_finite;
  return json;
}

Json json_of(const InspectedFile& file) {
  Json json = {{"path", file.path.string()},      {"bytes", file.bytes},
               {"sha256", file.sha256},           {"checksum", file.has_checksum ? "sound" : "none"},
               {"metadata", file.metadata},       {"elements", file.elements()},
               {"parameters", file.parameters()}, {"tensor_bytes", file.tensor_bytes()},
               {"tensors", Json::array()}};
  for (const InspectedTensor& tensor : file.tensors) json["tensors"].push_back(json_of(tensor));
  json["skipped"] = file.skipped;
  json["sparsity"] = Json::array();
  for (const run::LayerSparsity& layer : file.sparsity())
    json["sparsity"].push_back({{"layer", layer.layer}, {"weights", layer.weights}, {"zeros", layer.zeros}});
  return json;
}

Json json_of(const run::CheckpointFacts& facts, const std::string& path) {
  return {{"path", path},
          {"updates", facts.updates},
          {"epoch", facts.epoch},
          {"update", facts.update},
          {"training", {{"loss", facts.loss}, {"accuracy", facts.accuracy}, {"samples", facts.samples}}},
          {"seconds", facts.seconds},
          {"schedule_epochs", facts.schedule_epochs},
          {"metrics_bytes", facts.metrics.bytes},
          {"written", facts.written},
          {"program", facts.program},
          {"config_sha256", facts.config_sha256},
          {"fingerprint", facts.fingerprint}};
}

Json json_of(const run::OnnxFacts& facts) {
  return {{"ir_version", facts.ir_version},
          {"opset", facts.opset},
          {"producer", facts.producer},
          {"graph", facts.graph_name},
          {"inputs", facts.inputs},
          {"outputs", facts.outputs},
          {"ops", facts.ops}};
}

void print_json(const run::Inspection& inspection) {
  Json json;
  if (inspection.onnx) json["onnx"] = json_of(*inspection.onnx);
  if (inspection.facts) json["checkpoint"] = json_of(*inspection.facts, inspection.checkpoint.string());
  json["files"] = Json::array();
  for (const InspectedFile& file : inspection.files) json["files"].push_back(json_of(file));
  print_out("{}\n", json_text(json));
}

void print_facts(const run::CheckpointFacts& facts, const std::string& path) {
  print_out("{}\n", printable_line(path));
  print_out("  position    {}: {} and {} of the next\n", counted(facts.updates, "update"),
            counted(facts.epoch, "epoch"), counted(facts.update, "update"));
  if (facts.samples > 0)
    print_out("  this epoch  loss {:.4f}, accuracy {:.4f}, of {} so far\n", facts.loss, facts.accuracy,
              counted(facts.samples, "sample"));
  print_out("  trained     {}\n", format_duration(facts.seconds));
  print_out("  written     {} by {}\n\n", shown(facts.written, 24), shown(facts.program, 40));
}

/// An ONNX model: who wrote it, what it reads and writes, and how many nodes of which op it has.
void print_onnx(const run::OnnxFacts& facts, const std::string& path) {
  print_out("{}\n", printable_line(path));
  print_out("  ONNX        opset {}, IR version {}{}{}\n", facts.opset, facts.ir_version,
            facts.producer.empty() ? "" : ", by ", shown(facts.producer, 30));
  for (const std::string& input : facts.inputs) print_out("  input       {}\n", shown(input, 66));
  for (const std::string& output : facts.outputs) print_out("  output      {}\n", shown(output, 66));
  std::string line = "  nodes       ";
  for (auto op = facts.ops.begin(); op != facts.ops.end(); ++op) {
    const std::string word =
        fmt::format("{} {}{}", op->second, shown(op->first, 40), std::next(op) == facts.ops.end() ? "" : ", ");
    if (line.size() + word.size() > 80) {
      print_out("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
      line = std::string(14, ' ');
    }
    line += word;
  }
  print_out("{}\n\n", line);
}

std::string short_name(DType dtype) {
  switch (dtype) {
    case DType::bfloat16:
      return "bf16";
    case DType::uint8:
      return "u8";
    case DType::int32:
    case DType::int64:
      return fmt::format("i{}", 8 * size_of(dtype));
    default:
      return fmt::format("f{}", 8 * size_of(dtype));
  }
}

/// "0%", "<1%", "13%", ">99%", "100%": none and all are exact.
std::string share_text(double share) {
  if (share > 0 && share < 0.01) return "<1%";
  if (share < 1 && share > 0.99) return ">99%";
  return fmt::format("{:.0f}%", 100 * share);
}

std::vector<std::string> cells_of(const InspectedTensor& tensor) {
  const run::TensorStatistics& values = tensor.statistics;
  std::vector<std::string> cells = {fmt::format("  ({})", fmt::join(tensor.shape.extents(), ",")),
                                    short_name(tensor.dtype)};
  if (values.finite == 0) return cells;
  for (const double value : {values.min, values.max, values.mean, values.deviation})
    cells.push_back(fmt::format("{:.3g}", value));
  cells.push_back(share_text(values.zero_share()));
  return cells;
}

/// Two lines a tensor, its name and its values, so that both fit a line.
void print_tensors(const InspectedFile& file) {
  const auto columns = static_cast<std::size_t>(terminal_columns(stdout));
  const std::size_t most_of_name = columns - std::min<std::size_t>(columns - 12, 24);  // beside what is not finite
  Table table({{"  shape", Align::left}, {"type", Align::left}, {"min"}, {"max"}, {"mean"}, {"std"}, {"zeros"}});
  for (const InspectedTensor& tensor : file.tensors) table.add_row(cells_of(tensor));
  const std::string text = table.to_string();
  std::size_t line = text.find('\n', text.find('\n') + 1) + 1;  // after the header and its rule
  print_out("tensor\n{}", text.substr(0, line));
  for (const InspectedTensor& tensor : file.tensors) {
    const std::size_t end = text.find('\n', line) + 1;
    const std::int64_t bad = tensor.statistics.not_finite;
    print_out("{}{}\n{}", shown(tensor.name, bad > 0 ? most_of_name : columns),
              bad > 0 ? fmt::format("  {} not finite", format_count(bad)) : "", text.substr(line, end - line));
    line = end;
  }
  print_out("\n");
}

/// Prints the share of zeros in each layer's weights; nothing for a file without zeros, which is no pruned model's.
void print_sparsity(const InspectedFile& file) {
  std::vector<run::LayerSparsity> layers = file.sparsity();
  run::LayerSparsity all{.layer = "all"};
  for (const run::LayerSparsity& layer : layers) {
    all.weights += layer.weights;
    all.zeros += layer.zeros;
  }
  if (all.zeros == 0) return;
  layers.push_back(all);
  Table table({{"layer", Align::left}, {"weights"}, {"zeros"}, {"sparsity"}});
  for (const run::LayerSparsity& layer : layers) {
    if (&layer == &layers.back()) table.add_rule();
    table.add_row({shown(layer.layer, 40), format_count(layer.weights), format_count(layer.zeros),
                   fmt::format("{:.1f}%", 100 * static_cast<double>(layer.zeros) /
                                              static_cast<double>(std::max<std::int64_t>(layer.weights, 1)))});
  }
  print_out("{}\n", table.to_string());
}

void print_summary(const InspectedFile& file) {
  print_out("{}\n", printable_line(file.path.string()));
  const std::int64_t elements = file.elements(), parameters = file.parameters();
  print_out("  tensors     {}, of {} values{}\n", format_count(static_cast<std::int64_t>(file.tensors.size())),
            format_count(elements),
            parameters == elements ? "" : fmt::format(", {} of them parameters", format_count(parameters)));
  print_out("  bytes       {} ({} of tensors)\n", format_count(static_cast<std::int64_t>(file.bytes)),
            format_byte_size(file.tensor_bytes()));
  for (const auto& [key, value] : file.metadata) print_out("  metadata    {}: {}\n", shown(key, 24), shown(value, 40));
  if (!file.skipped.empty())
    print_out("  not read    {} tensors of other types: {}\n", file.skipped.size(),
              shown(join(file.skipped, ", ", ", "), 300));
  print_out("  checksum    {}\n  sha256      {}\n", file.has_checksum ? "sound" : "none in this file", file.sha256);
}

void print_text(const run::Inspection& inspection) {
  if (inspection.onnx) print_onnx(*inspection.onnx, inspection.files.front().path.string());
  if (inspection.facts) print_facts(*inspection.facts, inspection.checkpoint.string());
  print_tensors(inspection.files.front());
  print_sparsity(inspection.files.front());
  for (const InspectedFile& file : inspection.files) print_summary(file);
}

}  // namespace

void add_inspect(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("inspect", "What a file of weights, ONNX model or run holds");
  command->footer(
      "Prints each tensor's shape, type, least and largest value, mean, standard\n"
      "deviation, share of zeros and count of values that are not finite (the others\n"
      "are of finite values); where weights have zeros, each layer's share of them\n"
      "(its sparsity); then totals, metadata, the checksum of the tensors and the\n"
      "file's SHA-256. Of a checkpoint also its position, metrics so far and time of\n"
      "training; of an ONNX model its inputs, outputs and ops. A run's folder stands\n"
      "for its newest checkpoint, else its weights.\n"
      "A damaged file is an error that names what is wrong (exit code 3).\n"
      "Example: bantam inspect runs/quickstart/weights.safetensors");
  const auto options = std::make_shared<InspectOptions>();
  command->add_option("PATH", options->path, "A file of safetensors or PyTorch, ONNX model,\ncheckpoint or run")
      ->required();
  command->add_flag("--json", options->json, "One JSON object, with the tensors of all files");
  command->callback([&action, options] {
    action = [options] {
      const run::Inspection inspection = run::inspect(options->path);
      if (options->json)
        print_json(inspection);
      else
        print_text(inspection);
      return 0;
    };
  });
}

}  // namespace bantam::cli
