// The two files that an ONNX model becomes.
#include "bantam/cli/import/import_onnx.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>

#include "bantam/base/atomic_file.h"
#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/print/output.h"
#include "bantam/models/onnx/onnx_import.h"
#include "bantam/models/yaml/network.h"

namespace bantam::cli {
namespace {

namespace fs = std::filesystem;

struct Files {
  std::string config, weights;
};

/// NAME.yaml and NAME.safetensors. Throws ConfigError where one is there already and `out` is empty.
Files files_to_write(const ImportOnnxOptions& options) {
  fs::path name = options.out.empty() ? fs::path(options.file).stem() : fs::path(options.out);
  if (name.extension() == ".yaml" || name.extension() == ".safetensors") name.replace_extension();
  Files files{name.string() + ".yaml", name.string() + ".safetensors"};
  std::error_code error;
  for (const std::string& file : {files.config, files.weights}) {
    if (fs::equivalent(options.file, file, error)) throw ConfigError("-o names the file that is read");
    if (options.out.empty() && fs::exists(file, error))
      throw ConfigError(
          fmt::format("{} is there already: -o {} replaces it", printable_line(file), printable_line(name.string())));
  }
  return files;
}

std::string indented(const std::string& text) {
  std::string result = "  ";
  for (std::size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) result += "  ";
  }
  return result;
}

std::string exporter_of(const onnx::Model& model) {
  if (model.producer.empty()) return fmt::format("opset {}", model.opset);
  return fmt::format("{}{}{}, opset {}", shown(model.producer, 40), model.producer_version.empty() ? "" : " ",
                     shown(model.producer_version, 20), model.opset);
}

std::string weights_text(const Files& files, const onnx::ImportedNetwork& network) {
  std::string file = yaml_text(files.weights);
  if (network.left_out.empty()) return file;
  const std::string& first = network.left_out.front();
  return fmt::format("{{file: {}, skip: [\"{}/*\"]}}", file, first.substr(0, first.rfind('/')));
}

std::string config_text(const ImportOnnxOptions& options, const onnx::Model& model, const Files& files,
                        const onnx::ImportedNetwork& network) {
  std::string text =
      fmt::format("# {} ({}) as `bantam import` reads it. `bantam train` needs `data` and `train` beside it.\n",
                  shown(fs::path(options.file).filename().string()), exporter_of(model));
  for (const std::string& note : network.notes) text += fmt::format("# {}\n", shown(note, 200));
  return text + fmt::format("model:\n  weights: {}\n{}", weights_text(files, network), indented(network.yaml));
}

/// Reads the model that the text describes: a configuration that cannot be read back is not written.
models::ModelSpec read_back(const std::string& text, const std::string& name) {
  const ConfigDocument document = ConfigDocument::parse(text, name);
  return models::read_model(document.map().node("model"));
}

void print_text(const ImportOnnxOptions& options, const onnx::Model& model, const Files& files,
                const onnx::ImportedNetwork& network, const Graph& graph) {
  print_out("{}: {}, {} nodes\n", printable_line(options.file), exporter_of(model),
            format_count(std::ssize(model.nodes)));
  print_out("{}: {} layers of {} to {}\n", printable_line(files.config), format_count(graph.output()),
            to_string(graph.input_shape()), to_string(graph.output_shape()));
  print_out("{}: {} tensors, {}\n", printable_line(files.weights), network.weights.tensors.size(),
            format_byte_size(network.weights.tensor_bytes()));
  if (!network.left_out.empty())
    print_out("left out, for other classes: {}\n", printable_line(join(network.left_out, ", ", ", ")));
  for (const std::string& note : network.notes) print_out("note: {}\n", printable(note));
  print_out("train it with the sections data and train beside its model, as `bantam init --data DIR` writes them\n");
}

void print_json(const onnx::Model& model, const Files& files, const onnx::ImportedNetwork& network,
                const Graph& graph) {
  const auto extents = [](const Shape& shape) {
    return std::vector<std::int64_t>(shape.extents().begin(), shape.extents().end());
  };
  const nlohmann::ordered_json json = {{"config", files.config},
                                       {"weights", files.weights},
                                       {"opset", model.opset},
                                       {"producer", model.producer},
                                       {"layers", graph.output()},
                                       {"input", extents(graph.input_shape())},
                                       {"output", extents(graph.output_shape())},
                                       {"tensors", network.weights.tensors.size()},
                                       {"bytes", network.weights.tensor_bytes()},
                                       {"left_out", network.left_out},
                                       {"notes", network.notes}};
  print_out("{}\n", json_text(json));
}

/// A network of several convolutions that PyTorch wrote without any norm.
bool lacks_norms(const onnx::Model& model) {
  constexpr std::ptrdiff_t kSeveral = 5;
  const auto has = [](std::string_view part) {
    return [part](const auto& node) { return node.op.find(part) != std::string::npos; };
  };
  return model.producer.starts_with("pytorch") && std::ranges::count_if(model.nodes, has("Conv")) >= kSeveral &&
         std::ranges::none_of(model.nodes, has("Normalization"));
}

onnx::ImportedNetwork imported(const ImportOnnxOptions& options, const onnx::Model& model) {
  try {
    return onnx::import_model(model, {.size = options.size, .classes = options.classes, .output = options.output});
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", options.file, error.what()));
  }
}

}  // namespace

std::string yaml_text(const std::string& name) {
  const auto is_plain = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '/'; };
  const bool plain = std::ranges::all_of(name, [&](char c) { return is_plain(c) || c == '-'; }) && is_plain(name[0]);
  return plain ? name
               : nlohmann::ordered_json(name).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

bool is_onnx_file(const std::string& file) {
  std::string extension = fs::path(file).extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return extension == ".onnx";
}

int import_onnx(const ImportOnnxOptions& options) {
  const Files files = files_to_write(options);
  const onnx::Model model = onnx::read(options.file);
  onnx::ImportedNetwork network = imported(options, model);
  if (lacks_norms(model))
    network.notes.emplace_back(
        "the model has no batch norms; where its network had some, the exporter folded them, and training is slower "
        "to settle: torch.onnx.export(…, optimize=False) keeps them");
  const auto names = model.metadata.find("class_names");
  if (names != model.metadata.end() && network.left_out.empty()) network.weights.metadata.insert(*names);
  const std::string text = config_text(options, model, files, network);
  const models::ModelSpec spec = read_back(text, files.config);
  write_safetensors(files.weights, network.weights);
  write_file_atomically(files.config, text);
  if (options.json)
    print_json(model, files, network, spec.graph);
  else
    print_text(options, model, files, network, spec.graph);
  return 0;
}

}  // namespace bantam::cli
