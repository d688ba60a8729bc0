// Reading `parameters` and `blocks`, checks that need no use, and arguments.
#include "bantam/models/yaml/blocks.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "bantam/base/config/expression.h"
#include "bantam/base/text.h"
#include "bantam/models/yaml/graph_reader.h"

namespace bantam::models {
namespace {

constexpr std::size_t kMostParameters = 100, kMostBlocks = 1000, kMostNameBytes = 100;
constexpr std::string_view kExtents[] = {"channels", "height", "width"};

bool is_one_of(const std::string& name, std::span<const std::string_view> words) {
  return std::ranges::find(words, name) != words.end();
}

bool is_name(const std::string& text) {
  return !text.empty() && begins_name(text.front()) && std::ranges::all_of(text, continues_name);
}

void check_parameter_name(const std::string& name, const ConfigNode& at) {
  if (!is_name(name))
    at.fail_at_key(fmt::format("a parameter's name is made of letters, digits and '_', got '{}'", shown(name)));
  if (is_one_of(name, kEntryWords) || is_one_of(name, kExtents) || Expression::is_reserved(name))
    at.fail_at_key(fmt::format("no parameter may be called '{}': the word has a meaning of its own", name));
}

BlockParameters read_parameters(ConfigMap& section, const ConfigKey& key) {
  const auto node = section.find(key);
  if (!node || (node->is_null() && !node->is_described())) return {};
  BlockParameters parameters = node->entries();
  if (parameters.size() > kMostParameters)
    node->fail_at_key(fmt::format("at most {} parameters, got {}", kMostParameters, parameters.size()));
  for (const auto& [name, value] : parameters) check_parameter_name(name, value);
  return parameters;
}

BlockDefinition read_block(const std::string& name, const ConfigNode& node, const std::vector<std::string>& reserved) {
  if (!is_entry_name(name))
    node.fail_at_key(fmt::format("a block's name is made of {}, got '{}'", kEntryNameLetters, shown(name)));
  if (std::ranges::find(reserved, name) != reserved.end())
    node.fail_at_key(fmt::format("'{}' is a layer: call the block something else", name));
  ConfigMap section = node.as_map();
  BlockParameters parameters = read_parameters(
      section, {"parameters", "Names that a use of the block may set, with their defaults; null: it has to.",
                "{filters: null, stride: 1}", "none"});
  const ConfigNode layers =
      section.node({"layers", "The layers and blocks, as in the model's `layers`.", "[conv2d: {filters: $(filters)}]"});
  describe_network(layers);
  section.finish();
  if (layers.items().empty()) layers.fail_at_key("a block's list of layers is empty");
  return {name, std::move(parameters), layers};
}

/// Names that expressions of one list may say, and those of them that they do say. A default may say an outer name that
/// the parameter itself has: `parameters: {classes: $(classes)}`.
class Usage {
 public:
  explicit Usage(const std::vector<std::string>& outer) : known_(outer) {
    known_.insert(known_.end(), std::begin(kExtents), std::end(kExtents));
  }

  void check(const BlockParameters& parameters) {
    for (const auto& [name, value] : parameters) {
      check(value);
      known_.push_back(name);
      own_.insert(name);
    }
  }
  void check(const ConfigNode& node) {
    ConfigTemplate::check(node, known_,
                          [&](const std::string& name) { (own_.contains(name) ? used_ : used_outer_).insert(name); });
  }
  /// Parameters that were checked before, and other names.
  const std::set<std::string>& used() const { return used_; }
  const std::set<std::string>& used_outer() const { return used_outer_; }

 private:
  std::vector<std::string> known_;
  std::set<std::string> own_, used_, used_outer_;
};

void check_used(const BlockParameters& parameters, const std::set<std::string>& used, const std::string& owner) {
  for (const auto& [name, value] : parameters)
    if (!used.contains(name))
      value.fail_at_key(fmt::format("no expression of {} uses the parameter '{}'", owner, name));
}

void set_extents(ConfigScope& scope, const Shape& input) {
  if (input.rank() > 0) scope.set("channels", input[input.rank() - 1]);
  if (input.rank() == 3) {
    scope.set("height", input[0]);
    scope.set("width", input[1]);
    return;
  }
  for (const char* extent : {"height", "width"})
    scope.set_missing(extent, fmt::format("there is no {}: the input {} is no image", extent, to_string(input)));
}

void set_parameter(ConfigScope& scope, const std::string& name, const ConfigNode& value) {
  if (value.is_null()) value.fail_at_key(fmt::format("the parameter '{}' needs a value", name));
  scope.set(name, value);
}

}  // namespace

bool is_entry_name(std::string_view text) {
  const auto allowed = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.'; };
  return !text.empty() && text.size() <= kMostNameBytes && std::ranges::all_of(text, allowed);
}

BlockTable::BlockTable(ConfigMap& model, const ConfigNode& layers, const std::vector<std::string>& reserved) {
  parameters_ = read_parameters(
      model, {"parameters",
              "Names with values for expressions in the model's layers and blocks: `$(classes)`. See NETWORKS.md.",
              "{depth: 3, classes: 10}", "none"});
  const auto blocks = model.find(
      {"blocks",
       "Named blocks, each a map of `parameters` (names with defaults; null where a use has to say the value) and "
       "`layers`. A block is used in a list of layers as a layer is: `- NAME: {parameter: value}`. See NETWORKS.md.",
       "{conv_relu: {parameters: {filters: null}, layers: [conv2d: {filters: $(filters), kernel: 3}, relu]}}", "none"});
  if (blocks && (!blocks->is_null() || blocks->is_described()))
    for (const auto& [name, node] : blocks->entries()) blocks_.push_back(read_block(name, node, reserved));
  if (blocks_.size() > kMostBlocks)
    blocks->fail_at_key(fmt::format("at most {} blocks, got {}", kMostBlocks, blocks_.size()));
  if (layers.is_described()) return;
  std::vector<std::string> shared;
  for (const auto& [name, value] : parameters_) shared.push_back(name);
  std::set<std::string> used;
  for (const BlockDefinition& block : blocks_) {
    Usage usage(shared);
    usage.check(block.parameters);
    usage.check(block.layers);
    used.insert(usage.used_outer().begin(), usage.used_outer().end());
    check_used(block.parameters, usage.used(), fmt::format("block '{}'", block.name));
  }
  Usage usage({});
  usage.check(parameters_);
  usage.check(layers);
  used.insert(usage.used().begin(), usage.used().end());
  check_used(parameters_, used, "the model");
}

const BlockDefinition* BlockTable::find(const std::string& name) const {
  const auto found = std::ranges::find(blocks_, name, &BlockDefinition::name);
  return found == blocks_.end() ? nullptr : &*found;
}

std::vector<std::string> BlockTable::names() const {
  std::vector<std::string> names;
  for (const BlockDefinition& block : blocks_) names.push_back(block.name);
  return names;
}

ConfigScope BlockTable::model_scope(const Shape& input) const {
  ConfigScope scope;
  set_extents(scope, input);
  for (const auto& [name, value] : parameters_) set_parameter(scope, name, ConfigTemplate::copy(value, scope));
  return scope;
}

ConfigScope scope_of_use(const BlockDefinition& block, ConfigMap& options, const Shape& input, const ConfigScope& model,
                         const ConfigUse* use) {
  ConfigScope scope(&model);
  set_extents(scope, input);
  for (const auto& [name, value] : block.parameters) {
    const std::optional<ConfigNode> given = value.is_null() ? options.node(name) : options.find(name);
    set_parameter(scope, name, given ? *given : ConfigTemplate::copy(value, scope, use));  // defaults say names before
  }
  return scope;
}

}  // namespace bantam::models
