// `bantam export`: a run's weights for torchvision, or its network as an ONNX file.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>

#include "bantam/base/config/config.h"
#include "bantam/base/error.h"
#include "bantam/base/folder_file.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/export/export_onnx.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/options/written_file.h"
#include "bantam/cli/print/output.h"
#include "bantam/run/config/config_text.h"
#include "bantam/run/weights/torchvision_names.h"
#include "bantam/run/weights/torchvision_weights.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "--onnx writes any network as a file for inference. Without it the weights of one\n"
    "of the zoo's networks become a state_dict of the same network of torchvision,\n"
    "in a safetensors file; which network follows from the tensors.\n"
    "Example: bantam export runs/pets --onnx pets.onnx --fold-batch-norm\n"
    "         bantam export runs/pets -o pets.safetensors";

/// Groups of flags, by what is written.
constexpr const char* kOfTorchvision = "With torchvision";

struct ExportOptions {
  std::string path, out, to = "torchvision";
  run::TorchvisionOptions torchvision;
  OnnxFileOptions onnx;
  bool json = false;
};

/// The weights of a run's folder, or the file itself.
std::filesystem::path weights_of(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  (void)open_file({.path = path / "weights.safetensors"}, O_RDONLY);  // refuses what leads out of the run's folder
  return path / "weights.safetensors";
}

/// The width that a run's configuration has; else `otherwise`.
double width_of(const std::filesystem::path& run, double otherwise) {
  const std::filesystem::path config = run / "config.yaml";
  std::error_code error;
  if (!std::filesystem::is_regular_file(config, error)) return otherwise;
  const ConfigDocument document = ConfigDocument::parse(run::read_config_text(config), config.string(), {});
  const auto width = document.map().node("model").as_map().find("width");
  return width ? width->as_number() : otherwise;
}

int run_export(ExportOptions options) {
  if (!options.onnx.file.empty()) {
    options.onnx.path = options.path;
    options.onnx.json = options.json;
    return export_onnx(options.onnx);
  }
  if (options.to == "onnx") throw ConfigError("--to: an ONNX file is written by --onnx FILE");
  if (options.to != "torchvision")
    throw ConfigError(fmt::format("--to: unknown '{}'; there is torchvision", shown(options.to)));
  if (options.out.ends_with(".onnx"))
    throw ConfigError(fmt::format("--out names a safetensors file; an ONNX file is written by --onnx {}", options.out));
  if (options.torchvision.width == 1.0) options.torchvision.width = width_of(options.path, 1.0);
  const std::filesystem::path from = weights_of(options.path);
  options.out =
      file_to_write(options.out, options.out.empty() ? std::filesystem::path(options.path) : from, "torchvision");
  const run::ConvertedWeights weights = run::export_torchvision(from, options.torchvision);
  write_safetensors(options.out, weights.file);
  const std::string function = run::torchvision_function(weights.model);
  const std::string_view program = run::naming_program(weights.model);
  if (options.json) {
    const nlohmann::ordered_json json = {{"file", options.out},
                                         {"model", weights.model},
                                         {std::string(program), function},
                                         {"classes", weights.classes},
                                         {"tensors", weights.file.tensors.size()}};
    print_out("{}\n", json_text(json));
    return 0;
  }
  print_out("{}: {} tensors of {}'s {}\n", printable_line(options.out), weights.file.tensors.size(), program, function);
  const double width = options.torchvision.width;
  const bool is_timm = program == "timm";
  print_out("load it in Python:\n  model = {}{}{}num_classes={}{}{})\n",
            is_timm ? "timm.create_model(\"" : "torchvision.models.", function, is_timm ? "\", " : "(", weights.classes,
            width != 1.0 ? fmt::format(", width_mult={}", width) : "",
            weights.side > 0 ? fmt::format(", {}={}", is_timm ? "img_size" : "image_size", weights.side) : "");
  if (const std::string changes = run::torchvision_changes(weights.model); !changes.empty())
    print_out("  {}\n", changes);
  print_out("  model.load_state_dict(safetensors.torch.load_file(\"{}\"))\n", printable_line(options.out));
  return 0;
}

/// Throws ConfigError where a flag of the other format was typed.
void check_flags(const CLI::App& command, const std::string& other, bool needs_onnx) {
  for (const CLI::Option* option : command.get_options())
    if (option->count() > 0 && option->get_group() == other)
      throw ConfigError(
          fmt::format("{} {}", option->get_name(), needs_onnx ? "goes with --onnx FILE" : "does not go with --onnx"));
}

}  // namespace

void add_export(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("export", "A run's network as an ONNX file, or its\nweights for torchvision");
  command->footer(kAbout);
  const auto options = std::make_shared<ExportOptions>();
  command->add_option("PATH", options->path, "A run, or a file of weights")->required();
  command->add_option("--onnx", options->onnx.file, "Write the network as this ONNX file");
  const auto torchvision = [](CLI::Option* option) { return option->group(kOfTorchvision); };
  torchvision(command->add_option("-o,--out", options->out,
                                  "The safetensors file to write; default: PATH's\nname with -torchvision, here"));
  torchvision(command->add_option("--to", options->to, "Whose names the tensors shall have: torchvision"))
      ->capture_default_str();
  torchvision(
      command->add_option("--model", options->torchvision.model, "The zoo's network, where tensors fit several"));
  torchvision(command->add_option("--width", options->torchvision.width, "Its width_mult; default: the run's"))
      ->capture_default_str();
  add_onnx_flags(*command, options->onnx);
  command->add_flag("--json", options->json, "One JSON object instead of text");
  command->callback([&action, command, options] {
    check_flags(*command, options->onnx.file.empty() ? kOfOnnx : kOfTorchvision, options->onnx.file.empty());
    action = [options] { return run_export(*options); };
  });
}

}  // namespace bantam::cli
