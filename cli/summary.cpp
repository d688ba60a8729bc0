// `bantam summary`: a model layer by layer: shapes, parameters, and the bytes of activations that each keeps for
// backward.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/base/json.h"
#include "bantam/base/printable.h"
#include "bantam/base/text.h"
#include "bantam/cli/options/options.h"
#include "bantam/cli/print/fitted_text.h"
#include "bantam/cli/print/output.h"
#include "bantam/cli/print/step_json.h"
#include "bantam/cli/print/terminal.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/graph/layer_depth.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/run/bench/step_session.h"
#include "bantam/run/fit/decisions.h"
#include "bantam/run/weights/initial_weights.h"

namespace bantam::cli {
namespace {

constexpr const char* kAboutSummary =
    "Show a model's layers, output shapes, parameters, and the bytes of activations\n"
    "that each layer holds at the end of forward. Nothing is read or allocated:\n"
    "memory is counted on a stand-in for the device, which need not be in this\n"
    "machine.\n"
    "Example: bantam summary configs/resnet50.yaml";

struct SummaryOptions {
  CommonOptions common;
  std::int64_t batch = 0;
  bool json = false;
};

struct LayerRow {
  std::string name, kind;
  Shape output;  // with the batch axis
  std::int64_t parameters = 0;
  std::uint64_t activation_bytes = 0;
  float rate = 1.0f;  // factor of the optimizer's learning rate for its first parameter; 0: frozen for good
};

struct ModelSummary {
  std::vector<LayerRow> layers;
  bool has_rates = false;  // train.layer_decay is set
  std::int64_t parameters = 0, trainable = 0;
  std::uint64_t activation_bytes = 0, loss_bytes = 0;
  MemoryStats step;
};

/// Bytes of live activations by owner, after forward and loss of a training step.
std::map<std::string, std::uint64_t> activations_by_owner(const StepSession& session, const LossOptions& loss) {
  Tape tape;
  Context context = session.training_context();
  context.tape = &tape;
  const Tensor seed = context.allocate({}, DType::float32, Category::other);
  const Tensor made = session.model().forward_loss(context, session.batch().tensors, *loss.loss, {.seed = seed});
  std::map<std::string, std::uint64_t> bytes;
  for (const Holder& holder : session.runtime().allocator(session.model().device()).holders())
    if (holder.category == Category::activation) bytes[holder.owner] += holder.bytes;
  return bytes;
}

struct NodeParameters {
  std::int64_t elements = 0;
  float rate = 0.0f;
};

/// The rates of every node's parameters by the node's name: a parameter is called "node/weight", or "node/part/weight".
std::map<std::string, NodeParameters> parameters_by_node(const Model& model, const Graph& graph, float layer_decay) {
  std::map<std::string, NodeParameters> nodes;
  for (const GraphNode& node : graph.nodes()) nodes[node.name] = {};
  const ParameterArena& arena = model.parameters();
  std::vector<std::string> names;
  for (const Parameter& parameter : arena.all()) names.push_back(parameter.name());
  const std::vector<float> scales = layer_decay_scales(graph, names, layer_decay);
  std::size_t at = 0;
  for (const Parameter& parameter : arena.all()) {
    std::string owner = parameter.name();
    while (!nodes.contains(owner) && owner.find('/') != std::string::npos) owner.resize(owner.rfind('/'));
    NodeParameters& node = nodes[owner];
    node.elements += parameter.shape().elements();
    const float scale = scales[at++];
    if (node.rate > 0.0f || parameter.frozen()) continue;
    const int group = parameter.group();
    node.rate = group < 0 ? scale : scale * arena.groups()[static_cast<std::size_t>(group)].learning_rate_scale;
  }
  return nodes;
}

ModelSummary summarize(const RunConfig& config, const StepCase& options) {
  RunConfig unlimited = config;
  unlimited.memory.limits.clear();
  StepCase eager = options;
  eager.mode = StepMode::eager;
  const StepSession session(unlimited, eager, Device::meta_of(config.device), 1);
  const auto activations = activations_by_owner(session, config.train.loss);
  const float layer_decay = config.train.optimizer.layer_decay;
  ModelSummary summary{.has_rates = layer_decay != 1.0f};
  const auto parameters = parameters_by_node(session.model(), config.model.graph, layer_decay);
  for (const GraphNode& node : config.model.graph.nodes()) {
    if (!node.layer) continue;
    const auto bytes = activations.find(node.name);
    const NodeParameters& own = parameters.at(node.name);
    summary.layers.push_back({node.name, std::string(node.layer->kind()), node.output.prepend(options.batch),
                              own.elements, bytes == activations.end() ? 0 : bytes->second, own.rate});
  }
  for (const auto& [owner, bytes] : activations) summary.activation_bytes += bytes;
  if (const auto loss = activations.find("loss"); loss != activations.end()) summary.loss_bytes = loss->second;
  summary.parameters = session.model().parameters().parameter_count();
  summary.trainable = session.model().parameters().trainable_count();
  StepSession steps(unlimited, options, Device::meta_of(config.device), 1);
  steps.run(2);
  summary.step = steps.memory();
  return summary;
}

void print_json(const RunConfig& config, const StepCase& options, const ModelSummary& summary) {
  nlohmann::ordered_json json = describe(config, options);
  json["parameters"] = summary.parameters;
  json["trainable_parameters"] = summary.trainable;
  json["activation_bytes"] = summary.activation_bytes;
  add_memory(json, summary.step);
  json["layers"] = nlohmann::ordered_json::array();
  for (const LayerRow& row : summary.layers) {
    const auto extents = row.output.extents();
    json["layers"].push_back({{"name", row.name},
                              {"kind", row.kind},
                              {"output", std::vector<std::int64_t>(extents.begin(), extents.end())},
                              {"parameters", row.parameters},
                              {"activation_bytes", row.activation_bytes}});
    if (summary.has_rates && row.parameters > 0) json["layers"].back()["learning_rate_scale"] = row.rate;
  }
  print_out("{}\n", json_text(json));
}

/// "(16,30,30,32)": without spaces, so that lines fit 80 columns.
std::string shape_text(const Shape& shape) { return fmt::format("({})", fmt::join(shape.extents(), ",")); }

std::string layers_table(const ModelSummary& summary, std::size_t most_of_name) {
  std::vector<Table::Column> columns = {
      {"layer", Align::left}, {"kind", Align::left}, {"output", Align::left}, {"parameters"}, {"activations"}};
  if (summary.has_rates) columns.push_back({"rate"});
  Table table(columns);
  std::string block;
  for (const LayerRow& row : summary.layers) {
    const std::size_t slash = row.name.find('/');
    const std::string in = slash == std::string::npos ? "" : row.name.substr(0, slash);
    if (in != block && !in.empty()) table.add_row({shown(in, most_of_name) + "/"});
    block = in;
    std::vector<std::string> cells = {shown(in.empty() ? row.name : "  " + row.name.substr(slash + 1), most_of_name),
                                      row.kind, shape_text(row.output), format_count(row.parameters),
                                      format_byte_size(row.activation_bytes)};
    if (summary.has_rates && row.parameters > 0) cells.push_back(fmt::format("{:.3g}", row.rate));
    table.add_row(cells);
  }
  if (summary.loss_bytes > 0) table.add_row({"loss", "", "", "", format_byte_size(summary.loss_bytes)});
  table.add_rule();
  table.add_row({"total", "", "", format_count(summary.parameters), format_byte_size(summary.activation_bytes)});
  return table.to_string();
}

void print_table(const RunConfig& config, const StepCase& options, const ModelSummary& summary) {
  constexpr std::size_t kLeastName = 12;
  const auto table_of = [&](std::size_t most_of_name) { return layers_table(summary, most_of_name); };
  print_out("{}: input {}, batch {}, {} on {}\n\n{}\n", printable_line(config.model.name),
            to_string(config.model.graph.input_shape()), options.batch, to_string(options.precision),
            to_string(config.device),
            fitted_text(static_cast<std::size_t>(table_columns(stdout)), kLeastName, table_of));
  print_out("{}, {} of them trainable\n", counted(summary.parameters, "parameter"), format_count(summary.trainable));
  print_out("A training step needs {} at its peak (recompute: {}):\n", format_byte_size(summary.step.peak_bytes),
            to_string(options.recompute));
  for (std::size_t i = 0; i < kCategories; ++i)
    if (const auto category = static_cast<Category>(i); summary.step.by_category_at_peak[category] > 0)
      print_out("  {:<11}{:>10}\n", to_string(category), format_byte_size(summary.step.by_category_at_peak[category]));
}

/// The batch size that was given, or the configuration's, decided where it is `auto`; 1 without data.
std::int64_t batch_of(const RunConfig& config, std::int64_t given) {
  if (given > 0 || !config.data) return std::max<std::int64_t>(given, 1);
  run::DecisionLog log;
  return run::decide_step(config, plan_target(config, std::nullopt), {}, log).data->pipeline.batch_size;
}

int run_summary(const SummaryOptions& options) {
  const RunConfig config = read_config(options.common);
  require_model_fits(config);
  run::require_weights(config);
  const StepCase step{batch_of(config, options.batch), config.precision, config.recompute};
  const ModelSummary summary = summarize(config, step);
  if (options.json)
    print_json(config, step, summary);
  else
    print_table(config, step, summary);
  return 0;
}

}  // namespace

void add_summary(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("summary", "Layers, shapes, parameters and activations");
  command->footer(kAboutSummary);
  const auto options = std::make_shared<SummaryOptions>();
  add_common_options(*command, options->common);
  add_precision_flag(*command, options->common);
  command->add_option("--batch,--batch-size,--batch-sizes", options->batch, "Batch size; default: the config's, or 1")
      ->check(CLI::Range(1, 1 << 24));
  command->add_flag("--json", options->json, "One JSON object instead of the table");
  command->callback([&action, options] { action = [options] { return run_summary(*options); }; });
}

}  // namespace bantam::cli
