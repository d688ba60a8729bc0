// Walks a list of layers and blocks and adds nodes to a graph; what does not fit is reported at the layer's place in
// the file.
#include "bantam/models/yaml/graph_reader.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "bantam/base/config/config_attempts.h"
#include "bantam/base/text.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/layers/shared_options.h"
#include "bantam/models/yaml/graph_building.h"
#include "bantam/models/yaml/network.h"

namespace bantam::models {
namespace {

/// Entries of lists that one model reads, each repetition counted: blocks in blocks multiply.
constexpr std::int64_t kMostEntries = std::int64_t{1} << 17;
/// Blocks within one another.
constexpr int kMostDepth = 32;

/// Where the entries of a list stand.
struct Place {
  std::string prefix;                  ///< of their names: "" or "block1/"
  NodeId last = 0;                     ///< what the next one reads; of a whole list: its input
  const OutputNames* names = nullptr;  ///< that the list sees
  const ConfigScope& scope;            ///< of its expressions
  int depth = 0;                       ///< blocks around it
};

/// The keys that every layer and block may have, beside the options of its kind.
struct EntryWords {
  std::optional<ConfigNode> name, inputs;
  std::optional<std::int64_t> repeat;
  bool when = true;
};

std::string read_name(const ConfigNode& node) {
  std::string name = node.as_text();
  if (!is_entry_name(name)) node.fail(fmt::format("a name is made of {}, got '{}'", kEntryNameLetters, shown(name)));
  return name;
}

EntryWords read_words(ConfigMap& options) {
  EntryWords words;
  words.name = options.find(
      {"name",
       "The layer's or block's name in reports, in saved weights, in `recompute` and in `inputs`: letters, digits, _, "
       "- and ., unique in the model or its block.",
       "", "the kind, with a number from the second on: conv2d, conv2d_2"});
  if (words.name) (void)read_name(*words.name);
  words.inputs = options.find({"inputs",
                               "What it reads: names of layers and blocks before it, in its block or around it. "
                               "`input` is what the block reads, or the model.",
                               "[skip, input]", "the layer before it"});
  if (words.inputs) (void)words.inputs->as_texts();
  if (const auto repeat = options.find({"repeat",
                                        "How often it stands here, the output of one the first input of the next, each "
                                        "with weights of its own. A `name` has a number then: name_1, name_2, …; the "
                                        "name alone is the last one's output.",
                                        "3", "once"}))
    words.repeat = repeat->as_integer({.min = 1, .max = kMostEntries});
  if (const auto when = options.find({"when",
                                      "Whether it is there at all: most often an expression, `$(stride > 1)`, of a "
                                      "block's parameters. See NETWORKS.md.",
                                      "true", "true"}))
    words.when = when->as_boolean() || when->is_described();
  return words;
}

/// One entry of a list.
struct Entry {
  std::string kind;
  ConfigNode at;
  EntryWords words;
};

/// A list's nodes, one layer or block after the other.
class GraphReader {
 public:
  GraphReader(GraphBuilding& graph, const BlockTable& blocks, const ConfigScope& model)
      : graph_(graph), blocks_(blocks), model_(model) {}

  /// Returns the last node; what the list reads where `when` leaves no entry.
  NodeId read_list(const ConfigNode& list, Place place) {
    if (place.depth > kMostDepth)
      list.fail_at_key(fmt::format("blocks are nested too deeply: more than {} in one another", kMostDepth));
    OutputNames names(place.names, place.last);
    ConfigAttempts attempt(list);
    for (const ConfigNode& item : list.items()) {
      attempt([&] { read_item(item, place, names); });
      if (attempt.failed()) graph_.skip_rest();
    }
    attempt.finish();
    return place.last;
  }

  /// A block that a list may name as it names layers.
  struct BlockKind {
    std::string_view kind;
    std::optional<NodeId> (GraphReader::*read)(ConfigMap& options, const Place& place, OutputNames& names);
    Shape example;  ///< an input, where a description reads the block by itself
  };
  static const BlockKind kBlocks[3];

  std::optional<NodeId> read_block(ConfigMap& options, const Place& place, OutputNames& names) {
    options.describe(
        "A chain of layers under one name: one unit of recompute, and a prefix of its layers' names.",
        "block:\n  name: head\n  body:\n    - dense: {units: 64, activation: relu}\n    - dense: {units: 10}");
    const Entry entry{"block", options.self(), read_words(options)};
    if (!entry.words.when) return leave_out(entry, names);
    const ConfigNode body = checked_list(
        options.node({"body", "The layers and blocks, the output of one the input of the next.", "[relu]"}));
    options.finish();
    return repeated(entry, place, names, [&](const std::string& name, const std::vector<NodeId>& inputs) {
      return read_list(body, {name + "/", single(entry, inputs), &names, place.scope, place.depth + 1});
    });
  }

  std::optional<NodeId> read_residual(ConfigMap& options, const Place& place, OutputNames& names) {
    options.describe(
        "A residual block: activation(body(x) + shortcut(x)).",
        "residual:\n  body:\n    - conv2d: {filters: 64, kernel: 3, padding: same, bias: false}\n    - batch_norm\n"
        "  shortcut:\n    - conv2d: {filters: 64, kernel: 1, bias: false}\n    - batch_norm\n  activation: relu");
    const Entry entry{"residual", options.self(), read_words(options)};
    if (!entry.words.when) return leave_out(entry, names);
    const ConfigNode body =
        checked_list(options.node({"body", "The layers and blocks of the sum's first part.", "[relu]"}));
    const auto shortcut =
        options.find({"shortcut",
                      "The layers and blocks of the sum's second part, such as a 1 × 1 convolution where the body "
                      "changes the shape.",
                      "[relu]", "the block's input as it is"});
    if (shortcut) (void)checked_list(*shortcut);
    const LayerPtr sum = add(layers::read_activation(options));
    options.finish();
    return repeated(entry, place, names, [&](const std::string& name, const std::vector<NodeId>& inputs) {
      Place inside{name + "/", single(entry, inputs), &names, place.scope, place.depth + 1};
      const NodeId first = read_list(body, inside);
      inside.prefix += "shortcut_";
      const NodeId second = shortcut ? read_list(*shortcut, inside) : inputs[0];
      return graph_.add(graph_.unused_name(name + "/add"), sum, {first, second}, entry.at);
    });
  }

  std::optional<NodeId> read_multi_head_attention(ConfigMap& options, const Place& place, OutputNames& names) {
    options.describe(
        "Multi-head self-attention of a transformer: `qkv`, a dense layer of 3 · heads · head_size units, `attention`, "
        "and `project`, a dense layer back to the input's channels. Without norm and shortcut: put it into a residual "
        "block.",
        "residual:\n  body:\n    - layer_norm\n    - multi_head_attention: {heads: 4}");
    const Entry entry{"multi_head_attention", options.self(), read_words(options)};
    if (!entry.words.when) return leave_out(entry, names);
    const std::int64_t heads = options.integer(layers::kHeads, layers::kCount);
    const auto head_size = options.find(
        {"head_size", "Channels of a head: a multiple of 4 from 8 to 128.", "64", "the input's channels / heads"});
    const auto given_size = head_size ? std::optional(head_size->as_integer(layers::kCount)) : std::nullopt;
    DenseOptions qkv{.bias = options.boolean({"qkv_bias", "Whether the dense layer `qkv` has a bias."}, true)};
    DenseOptions project{.bias = options.boolean({"bias", "Whether the dense layer `project` has a bias."}, true)};
    qkv.initializer = project.initializer = layers::read_initializer(options);
    options.finish();
    return repeated(entry, place, names, [&](const std::string& name, const std::vector<NodeId>& inputs) {
      const NodeId input = single(entry, inputs);
      const Shape& in = graph_.graph().node(input).output;
      if (graph_.skips_rest()) return input;
      if (in.rank() < 2)
        entry.at.fail_at_key(fmt::format(
            "multi_head_attention: expected an input (tokens, channels) or (height, width, channels), got {}",
            to_string(in)));
      if (!given_size && in[-1] % heads != 0)
        entry.at.fail_at_key(
            fmt::format("multi_head_attention: the {} channels of {} do not divide into {} heads; say head_size",
                        in[-1], to_string(in), heads));
      qkv.units = 3 * heads * given_size.value_or(in[-1] / heads);
      project.units = in[-1];
      NodeId last = graph_.add(name + "/qkv", dense(qkv), {input}, entry.at);
      last = graph_.add(name + "/attention", attention({.heads = heads}), {last}, entry.at);
      return graph_.add(name + "/project", dense(project), {last}, entry.at);
    });
  }

  /// The options of the last entry read in the outermost list; nothing where no entry was kept.
  const std::optional<ConfigNode>& last_entry() const { return last_entry_; }

 private:
  using ReadOne = std::function<NodeId(const std::string& name, const std::vector<NodeId>& inputs)>;

  void read_item(const ConfigNode& item, Place& place, OutputNames& names) {
    count_entry(item);
    const bool copied = !item.is_described() && ConfigTemplate::has_expressions(item);
    const auto output = read_entry(copied ? ConfigTemplate::copy(item, place.scope) : item, place, names);
    if (!output) return;
    place.last = *output;
    if (place.depth == 0) last_entry_ = item.as_named().options;
  }

  void count_entry(const ConfigNode& at) {
    if (++entries_ > kMostEntries)
      at.fail_at_key(fmt::format("too many layers: with repetitions, a model's lists have more than {} entries",
                                 format_count(kMostEntries)));
  }

  static ConfigNode checked_list(const ConfigNode& list) {
    describe_network(list);
    if (list.items().empty()) list.fail_at_key("a block's list of layers is empty");
    return list;
  }

  std::optional<NodeId> read_entry(const ConfigNode& item, const Place& place, OutputNames& names) {
    const ConfigNode::Named named = item.as_named();
    ConfigMap options = named.options.as_map();
    for (const auto& [kind, read, input] : kBlocks)
      if (named.name == kind) return (this->*read)(options, place, names);
    if (const Reader<LayerPtr>* read = layer_kinds().find(named.name)) {
      const Entry entry{named.name, named.options, read_words(options)};
      if (!entry.words.when) return leave_out(entry, names);
      return read_layer(entry, (*read)(options), options, place, names);
    }
    if (const BlockDefinition* block = blocks_.find(named.name)) return read_use(*block, options, place, names);
    std::vector<std::string> known = reserved_block_names();
    std::ranges::move(blocks_.names(), std::back_inserter(known));
    named.options.fail_unknown("layer", named.name, known);
  }

  NodeId read_layer(const Entry& entry, const LayerPtr& layer, const ConfigMap& options, const Place& place,
                    OutputNames& names) {
    options.finish();
    return repeated(entry, place, names, [&](const std::string& name, const std::vector<NodeId>& inputs) {
      return graph_.add(name, layer, inputs, entry.at);
    });
  }

  std::optional<NodeId> read_use(const BlockDefinition& block, ConfigMap& options, const Place& place,
                                 OutputNames& names) {
    const Entry entry{block.name, options.self(), read_words(options)};
    if (!entry.words.when) return leave_out(entry, names);
    check_ring(entry, block);
    active_.push_back(&block);
    const ConfigUse* use = ConfigTemplate::use(entry.at, fmt::format("block '{}'", block.name));
    const NodeId last = repeated(entry, place, names, [&](const std::string& name, const std::vector<NodeId>& inputs) {
      const NodeId input = single(entry, inputs);
      const ConfigScope scope = scope_of_use(block, options, graph_.graph().node(input).output, model_, use);
      options.finish();
      const ConfigNode layers = ConfigTemplate::copy(block.layers, scope, use);
      return read_list(layers, {name + "/", input, &names, scope, place.depth + 1});
    });
    active_.pop_back();
    return last;
  }

  void check_ring(const Entry& entry, const BlockDefinition& block) const {
    auto inner = std::ranges::find(active_, &block);
    if (inner == active_.end()) return;
    std::string ring;
    for (; inner != active_.end(); ++inner) ring += (*inner)->name + " → ";
    entry.at.fail_at_key(fmt::format("block '{}' is used within itself: {}{}", block.name, ring, block.name));
  }

  static std::optional<NodeId> leave_out(const Entry& entry, OutputNames& names) {
    if (entry.words.name) names.leave_out(entry.words.name->as_text());
    return std::nullopt;
  }

  /// The nodes of an entry as often as it says; returns the last one.
  NodeId repeated(const Entry& entry, const Place& place, OutputNames& names, const ReadOne& read_one) {
    std::vector<NodeId> inputs = inputs_of(entry, place, names);
    std::string called = entry.words.name ? entry.words.name->as_text() : "";
    for (std::int64_t i = 1; i <= entry.words.repeat.value_or(1); ++i) {
      if (i > 1) count_entry(entry.at);
      const std::string name = name_of(entry, place, i);
      inputs[0] = read_one(name, inputs);
      graph_.reserve(name);  // also of a block without nodes
      names.set(name.substr(place.prefix.size()), inputs[0]);
      if (called.empty()) called = name.substr(place.prefix.size());
    }
    names.set(called, inputs[0]);  // an entry's name is its last repetition's output
    return inputs[0];
  }

  std::vector<NodeId> inputs_of(const Entry& entry, const Place& place, const OutputNames& names) const {
    const auto& given = entry.words.inputs;
    if (!given || given->is_described() || graph_.skips_rest()) return {place.last};
    std::vector<NodeId> inputs;
    for (const ConfigNode& item : given->items()) inputs.push_back(names.find(item.as_text(), item));
    if (inputs.empty()) given->fail_at_key("inputs names at least one layer or block, got an empty list");
    return inputs;
  }

  static NodeId single(const Entry& entry, const std::vector<NodeId>& inputs) {
    if (inputs.size() > 1) entry.words.inputs->fail_at_key(fmt::format("a block has one input, got {}", inputs.size()));
    return inputs[0];
  }

  /// Makes the name of repetition `i`, from 1 on: the entry's name, with "_i" if it repeats, or one of its kind.
  std::string name_of(const Entry& entry, const Place& place, std::int64_t i) {
    if (!entry.words.name) return graph_.unused_name(place.prefix + entry.kind);
    const ConfigNode& given = *entry.words.name;
    const std::string plain = place.prefix + given.as_text();
    std::string name = entry.words.repeat ? fmt::format("{}_{}", plain, i) : plain;
    if (graph_.is_taken(name) || (i == 1 && graph_.is_taken(plain)))
      given.fail(fmt::format("the name '{}' is taken", graph_.is_taken(name) ? name : plain));
    if (entry.words.repeat) graph_.reserve(plain);
    return name;
  }

  GraphBuilding& graph_;
  const BlockTable& blocks_;
  const ConfigScope& model_;
  std::vector<const BlockDefinition*> active_;  // those that are being read, from the outside in
  std::int64_t entries_ = 0;
  std::optional<ConfigNode> last_entry_;
};

const GraphReader::BlockKind GraphReader::kBlocks[] = {
    {"residual", &GraphReader::read_residual, {56, 56, 64}},
    {"block", &GraphReader::read_block, {64}},
    {"multi_head_attention", &GraphReader::read_multi_head_attention, {196, 384}}};

std::vector<std::string> kinds_of_blocks() {
  std::vector<std::string> kinds;
  for (const GraphReader::BlockKind& block : GraphReader::kBlocks) kinds.emplace_back(block.kind);
  return kinds;
}

void describe_layer(const std::string& kind, const ConfigNode& value) {
  ConfigMap options = value.as_map();
  (void)read_words(options);
  (void)layer_kinds().at(kind)(options);
  options.finish();
}

void describe_block(const std::string& kind, const ConfigNode& value) {
  const GraphReader::BlockKind& block = *std::ranges::find(GraphReader::kBlocks, kind, &GraphReader::BlockKind::kind);
  GraphBuilding graph(block.example);
  const BlockTable blocks;
  const ConfigScope scope;
  GraphReader reader(graph, blocks, scope);
  OutputNames names(nullptr, 0);
  ConfigMap options = value.as_map();
  (void)(reader.*block.read)(options, {.scope = scope}, names);
}

}  // namespace

std::vector<std::string> reserved_block_names() {
  std::vector<std::string> names = layer_kinds().names();
  std::ranges::move(kinds_of_blocks(), std::back_inserter(names));
  return names;
}

void describe_network(const ConfigNode& list) {
  if (!list.is_described()) return;
  list.describe_entries("layer", layer_kinds().names(), describe_layer);
  list.describe_entries("block", kinds_of_blocks(), describe_block);
  const std::vector<std::string> tables = {"layer", "block"};
  ConfigTemplate::describe(list, tables, reserved_block_names(), "blocks");
}

void check_weights(const Graph& graph) {
  WeightCount weights;
  for (NodeId node = 1; node <= graph.output(); ++node) weights.add(graph, node);
}

ReadGraph read_graph(const ConfigNode& list, const Shape& input, const BlockTable& blocks) {
  const ConfigScope model = blocks.model_scope(input);
  GraphBuilding graph(input);
  GraphReader reader(graph, blocks, model);
  const NodeId output = reader.read_list(list, {.scope = model});
  if (!reader.last_entry() && list.is_described()) return {graph.release_graph(), list};
  if (!reader.last_entry() || graph.graph().output() == 0) list.fail_at_key("a model needs at least one layer");
  graph.check_readers(output);
  return {graph.release_graph(), *reader.last_entry()};
}

}  // namespace bantam::models
