// `bantam import`: weights of other programs to a file that a configuration's `model.weights` names; ONNX models with
// their networks.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/import/import_onnx.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/options/written_file.h"
#include "bantam/cli/print/output.h"
#include "bantam/models/zoo/zoo.h"
#include "bantam/run/weights/published_weights.h"
#include "bantam/run/weights/torchvision_names.h"
#include "bantam/run/weights/torchvision_weights.h"

namespace bantam::cli {
namespace {

constexpr const char* kAbout =
    "Reads a state_dict of a torchvision network (.safetensors, .pt or .pth; nothing\n"
    "in it is executed) and writes the same weights with the zoo's names and\n"
    "layouts. timm's and transformers' networks are read, too. Which network it is\n"
    "follows from the tensors, or is named with --model. With --classes of another\n"
    "number than the file's, the classifier is left out. A file without one, with\n"
    "prefixes (backbone.) or with more tensors is read, too, and so is a module that\n"
    "was saved whole.\n"
    "Reads an ONNX model (.onnx) and writes its network and weights: NAME.yaml, the\n"
    "`model` of a configuration, and NAME.safetensors. -o says NAME.\n"
    "Example: bantam import resnet50.pth --classes 2 -o resnet50.safetensors\n"
    "         bantam import resnet50.onnx --classes 2";

struct ImportOptions {
  std::string file, out, from;
  run::TorchvisionOptions torchvision;
  std::vector<std::int64_t> size;
  std::string output;
  bool json = false;
};

/// The model of a configuration that begins with the file.
std::string model_text(const run::ConvertedWeights& weights, const ImportOptions& options) {
  std::int64_t classes = options.torchvision.classes > 0 ? options.torchvision.classes : weights.classes;
  if (classes == 0) classes = models::find_zoo_model(weights.model)->defaults.classes;
  const std::string width =
      options.torchvision.width != 1.0 ? fmt::format(", width: {}", options.torchvision.width) : "";
  const models::ZooModel& zoo = *models::find_zoo_model(weights.model);
  Shape images = zoo.defaults.input.with(2, weights.channels);
  if (weights.side > 0) images = {weights.side, weights.side, weights.channels};
  const std::string input =
      images != zoo.defaults.input ? fmt::format(", input: [{}, {}, {}]", images[0], images[1], images[2]) : "";
  std::string file = yaml_text(options.out);
  if (!weights.left_out.empty()) {
    std::set<std::string> layers;
    for (const std::string& name : weights.left_out)
      layers.insert(fmt::format("\"{}/*\"", name.substr(0, name.rfind('/'))));
    file = fmt::format("{{file: {}, skip: [{}]}}", file, fmt::join(layers, ", "));
  }
  return fmt::format("model: {{zoo: {}, classes: {}{}{}, weights: {}}}", weights.model, classes, width, input, file);
}

void print_text(const run::ConvertedWeights& weights, const ImportOptions& options,
                const run::PublishedCheck& published) {
  const std::string classes = weights.classes > 0 ? fmt::format("of {}", counted(weights.classes, "class", "classes"))
                                                  : "without its classifier";
  const std::string_view owner = run::naming_program(weights.model);
  const std::string by = weights.program == owner ? "" : fmt::format(", by {}'s names", weights.program);
  print_out("{}: {}'s {} {}{}{}{}{}\n", printable_line(options.file), owner, run::torchvision_function(weights.model),
            classes, by, weights.found_at.empty() ? "" : fmt::format(", in '{}'", shown(weights.found_at)),
            weights.prefix.empty() ? "" : fmt::format(", without the prefix '{}'", shown(weights.prefix)),
            weights.head.empty() || weights.classes == 0
                ? ""
                : fmt::format(", whose classifier is '{}'", shown(weights.head)));
  if (!weights.module.empty())
    print_out("its tensors are those of a whole module, {}, of which nothing was executed\n", shown(weights.module));
  if (!published.text.empty()) print_out("{}{}\n", published.warns ? "warning: " : "", published.text);
  for (const std::string& note : weights.notes) print_out("note: {}\n", note);
  if (!weights.left_out.empty())
    print_out("{}: {}\n", weights.classes > 0 ? "left out, for other classes" : "to be trained from the start",
              printable_line(join(weights.left_out, ", ", ", ")));
  std::vector<std::string> unused = weights.ignored;
  std::erase_if(unused, [](const std::string& name) { return name.ends_with("num_batches_tracked"); });
  if (!unused.empty()) print_out("not used: {}\n", shown_message(join(unused, ", ", ", "), 400));
  print_out("{}: {} for {}, {}\n", printable_line(options.out), counted(weights.file.tensors.size(), "tensor"),
            weights.model, format_byte_size(weights.file.tensor_bytes()));
  print_out("train from it: {}\n", printable(model_text(weights, options)));
  if (weights.classes == 0 && options.torchvision.classes == 0)
    print_out("with the number of your classes: --classes N writes it\n");
}

/// Imports an ONNX model. Throws ConfigError for options of weights files.
int run_import_onnx(const ImportOptions& options) {
  if (!options.torchvision.model.empty() || options.torchvision.width != 1.0)
    throw ConfigError("--model and --width are of torchvision's networks; an ONNX model says what it is");
  return import_onnx({.file = options.file,
                      .out = options.out,
                      .size = options.size,
                      .classes = options.torchvision.classes,
                      .output = options.output,
                      .json = options.json});
}

int run_import(ImportOptions options) {
  if (options.from != "torchvision" && options.from != "onnx" && !options.from.empty())
    throw ConfigError(fmt::format("--from: unknown '{}'; there are torchvision and onnx", shown(options.from)));
  if (options.from == "onnx" || (options.from.empty() && is_onnx_file(options.file))) return run_import_onnx(options);
  if (!options.size.empty()) throw ConfigError("--size is of ONNX models whose images have no size");
  if (!options.output.empty()) throw ConfigError("--output is of ONNX models with several outputs");
  options.out = file_to_write(options.out, options.file, "bantam");
  const run::ConvertedWeights weights = run::import_torchvision(options.file, options.torchvision);
  const run::PublishedCheck published = run::check_published(options.file);
  write_safetensors(options.out, weights.file);
  if (!options.json) {
    print_text(weights, options, published);
    return 0;
  }
  const nlohmann::ordered_json json = {{"file", options.out},
                                       {"model", weights.model},
                                       {"classes", weights.classes},
                                       {"tensors", weights.file.tensors.size()},
                                       {"bytes", weights.file.tensor_bytes()},
                                       {"names", weights.program},
                                       {"channels", weights.channels},
                                       {"found_at", weights.found_at},
                                       {"module", weights.module},
                                       {"prefix", weights.prefix},
                                       {"ignored", weights.ignored},
                                       {"left_out", weights.left_out},
                                       {"classifier", weights.head},
                                       {"published", published.warns ? "" : published.text},
                                       {"notes", weights.notes}};
  print_out("{}\n", json_text(json));
  return 0;
}

}  // namespace

void add_import(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("import", "Weights or an ONNX model to train from");
  command->footer(kAbout);
  const auto options = std::make_shared<ImportOptions>();
  command->add_option("FILE", options->file, "A state_dict (.safetensors, .pt or .pth), or a\nmodel (.onnx)")
      ->required();
  command->add_option("-o,--out", options->out,
                      "The safetensors file to write; default: FILE's\nname with -bantam, in the current folder");
  command->add_option("--from", options->from,
                      "torchvision, whose names the tensors have, or\nonnx; default: by FILE's ending");
  command->add_option("--model", options->torchvision.model,
                      "The zoo's network; default: the one that\nhas the tensors");
  command->add_option("--classes", options->torchvision.classes, "Classes of the network to train")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  command->add_option("--width", options->torchvision.width, "Width of the zoo's network: width_mult")
      ->capture_default_str();
  command->add_option(
      "--key", options->torchvision.key,
      "Which network of a file with several: keys to a\nstate_dict (state_dict_ema), or a prefix (teacher)");
  command
      ->add_option("--size", options->size, "HEIGHT,WIDTH of the images of an ONNX model that\nhas no numbers for them")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  command->add_option("--output", options->output,
                      "The output to import of an ONNX model with\nseveral; what only others need is left out");
  command->add_flag("--json", options->json, "One JSON object instead of text");
  command->callback([&action, options] { action = [options] { return run_import(*options); }; });
}

}  // namespace bantam::cli
