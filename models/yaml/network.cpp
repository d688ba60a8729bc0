// A model's section: its name and input, and a list of layers or a network of the zoo.
#include "bantam/models/yaml/network.h"

#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/models/yaml/blocks.h"
#include "bantam/models/yaml/graph_building.h"
#include "bantam/models/yaml/graph_reader.h"
#include "bantam/models/yaml/model_weights.h"
#include "bantam/models/zoo/zoo.h"

namespace bantam::models {
namespace {

constexpr std::string_view kModelName = "name", kModelNameMeaning = "The model's name in reports.";
constexpr std::string_view kInputMeaning =
    "Shape of a sample as the pipeline delivers it: [height, width, channels], or [features].";
const ConfigKey kZoo{"zoo", "Name of a well-known network, in place of `input` and `layers`.",
                     "separable_cnn | resnet18_cifar", "a network of `layers`"};

Shape read_shape(const ConfigNode& node) {
  const std::vector<std::int64_t> extents = node.as_integers({.min = 1, .max = 1 << 20});
  if (extents.size() != 1 && extents.size() != 3)
    node.fail(fmt::format("{}: expected [height, width, channels] or [features], got {} extents", node.path(),
                          extents.size()));
  try {
    return Shape(std::span<const std::int64_t>(extents));
  } catch (const ShapeError& error) {
    node.fail(error.what());
  }
}

ModelSpec read_list(ConfigMap& options, const std::string& default_name) {
  std::string name = options.text({kModelName, kModelNameMeaning, "", "the file's name"}, default_name);
  const ConfigNode input = options.node({"input", kInputMeaning, "[32, 32, 3] | [784]"});
  Shape shape = read_shape(input);
  const ConfigNode list = options.node({"layers",
                                        "The layers and blocks, each a name or a name with its options; the output of "
                                        "one is the input of the next, or of those that name it in `inputs`. The last "
                                        "one's is the model's. See NETWORKS.md.",
                                        "[flatten, {dense: {units: 64, activation: relu}}, {dense: {units: 10}}]"});
  describe_network(list);
  const BlockTable blocks(options, list, reserved_block_names());
  options.finish();
  ReadGraph read = read_graph(list, shape, blocks);
  return {std::move(name), std::move(read.graph), input, read.last};
}

/// Always with the whole zoo: of resnet152 the nearest name is another network. One letter apart it is a slip.
[[noreturn]] void fail_unknown_model(const ConfigNode& at) {
  const std::string name = at.as_text();
  const std::vector<std::string> names = zoo_names();
  const auto near = nearest(name, names);
  at.fail_at_key(fmt::format("unknown zoo model '{}'{} the zoo has {}", shown(name),
                             near && edit_distance(name, *near) <= 1 ? fmt::format("; did you mean '{}'?", *near) : ";",
                             join(names, ", ", " and ")));
}

ZooOptions read_zoo_options(ConfigMap& options, const ZooModel& model) {
  ZooOptions zoo = model.defaults;
  zoo.classes = options.integer({"classes", "Values of the output: the classes of the data."},
                                {.min = 1, .max = 1 << 24}, zoo.classes);
  if (model.has_width)
    zoo.width = options.number({"width", "Factor of all layers' channels: 0.5 is half as wide.", "0.5"},
                               {.min = 0, .max = 64, .min_open = true}, zoo.width);
  if (model.has_drop_path)
    zoo.drop_path = options.number(
        {"drop_path",
         "Stochastic depth: probability that a sample skips the last block; those before it less, down to 0.", "0.1"},
        {.min = 0, .max = 1, .max_open = true}, zoo.drop_path);
  const auto extents = zoo.input.extents();
  (void)options.integers({"input", kInputMeaning}, {.min = 1, .max = 1 << 20}, {extents.begin(), extents.end()});
  return zoo;
}

ModelSpec read_zoo(ConfigMap& options) {
  const ConfigNode at = options.node(kZoo);
  const ZooModel* model = find_zoo_model(at.as_text());
  if (!model) fail_unknown_model(at);
  ZooOptions zoo;
  options.read_choice("zoo", std::string(model->name), zoo_names(),
                      [&](const std::string& name) { zoo = read_zoo_options(options, *find_zoo_model(name)); });
  const ConfigNode input = options.node("input");
  zoo.input = read_shape(input);
  // Most of these networks would take it for an image of three rows.
  if (zoo.input.rank() == 3 && zoo.input[1] == zoo.input[2])
    if (const std::string hint = channels_first_hint(zoo.input); !hint.empty())
      input.fail(fmt::format("an image of {} rows and {} channels is none that '{}' is for{}", zoo.input[0],
                             zoo.input[2], model->name, hint));
  std::string name = options.text({kModelName, kModelNameMeaning, "", "the network's"}, model->name);
  options.finish();
  try {
    Graph graph = model->build(zoo);
    check_weights(graph);
    return {std::move(name), std::move(graph), input, at};
  } catch (const ShapeError& error) {
    input.fail(error.what() + channels_first_hint(zoo.input));
  }
}

}  // namespace

ModelSpec read_model(const ConfigNode& model, const std::string& default_name) {
  ConfigMap options = model.as_map();
  options.describe(
      "The network: a list of layers, or, with `zoo`, a well-known one.",
      "model:\n  input: [32, 32, 3]\n  layers:\n    - conv2d: {filters: 32, kernel: 3, padding: same, bias: false}\n"
      "    - batch_norm: {activation: relu}\n    - max_pool\n    - flatten\n    - dense: {units: 10}");
  std::optional<ModelWeights> weights = read_model_weights(options);
  ModelSpec spec = options.has(kZoo) ? read_zoo(options) : read_list(options, default_name);
  spec.weights = std::move(weights);
  return spec;
}

}  // namespace bantam::models
