// Operations in order of execution, and who reads whose output.
#include "bantam/run/log/graph_def.h"

#include <vector>

#include "bantam/base/protobuf.h"
#include "bantam/base/text.h"
#include "bantam/engine/fusion/fusion.h"

namespace bantam::run {
namespace {

// GraphDef, NodeDef, an entry of its map of attributes, AttrValue
constexpr std::uint32_t kNode = 1, kVersions = 4;
constexpr std::uint32_t kName = 1, kOp = 2, kInput = 3, kAttribute = 5;
constexpr std::uint32_t kKey = 1, kEntryValue = 2;
constexpr std::uint32_t kListField = 1, kTextField = 2, kTruthField = 5, kListOfShapes = 7;

void add_attribute(ProtoWriter& node, std::string_view key, const ProtoWriter& value) {
  ProtoWriter entry;
  entry.bytes(kKey, key);
  entry.message(kEntryValue, value);
  node.message(kAttribute, entry);
}

void add_text(ProtoWriter& node, std::string_view key, std::string_view text) {
  ProtoWriter value;
  value.bytes(kTextField, text);
  add_attribute(node, key, value);
}

/// A batch's shape, whose first axis is of any size: TensorBoard writes it beside the edges.
void add_output_shape(ProtoWriter& node, const Shape& sample) {
  ProtoWriter shape, list, value;
  const auto add = [&shape](std::int64_t size) {
    ProtoWriter dimension;
    dimension.integer(1, size);
    shape.message(2, dimension);
  };
  add(-1);
  for (int axis = 0; axis < sample.rank(); ++axis) add(sample[axis]);
  list.message(kListOfShapes, shape);
  value.message(kListField, list);
  add_attribute(node, "_output_shapes", value);
}

ProtoWriter node_of(std::string_view name, std::string_view runs) {
  ProtoWriter node;
  node.bytes(kName, name);
  node.bytes(kOp, runs);
  return node;
}

/// Its layers are those from the first to the last.
ProtoWriter operation(const Graph& graph, const NodePlan& plan, const std::vector<NodeId>& operation_of) {
  ProtoWriter node = node_of(graph.node(plan.first).name,
                             plan.fusion != nullptr ? plan.fusion->name : graph.node(plan.first).layer->kind());
  std::vector<std::string> names;
  for (NodeId layer = plan.first; layer <= plan.last; ++layer) {
    names.push_back(graph.node(layer).name);
    for (const NodeId input : graph.node(layer).inputs)
      if (input < plan.first) node.bytes(kInput, graph.node(operation_of[static_cast<std::size_t>(input)]).name);
  }
  if (names.size() > 1) add_text(node, "layers", join(names, ", ", ", "));
  add_output_shape(node, graph.node(plan.last).output);
  ProtoWriter recomputed;
  recomputed.integer(kTruthField, plan.recomputed ? 1 : 0);
  add_attribute(node, "recomputed", recomputed);
  return node;
}

}  // namespace

std::string graph_def(const Graph& graph, const StepProgram& program, std::string_view loss) {
  ProtoWriter def, input = node_of(graph.node(0).name, "input"), versions;
  add_output_shape(input, graph.input_shape());
  def.message(kNode, input);
  std::vector<NodeId> operation_of(graph.nodes().size(), 0);  // its first layer, of each layer
  for (const ProgramSegment& segment : program.segments)
    for (const NodePlan& plan : segment.nodes) {
      for (NodeId layer = plan.first; layer <= plan.last; ++layer)
        operation_of[static_cast<std::size_t>(layer)] = plan.first;
      def.message(kNode, operation(graph, plan, operation_of));
    }
  ProtoWriter end = node_of("training/loss", loss);
  end.bytes(kInput, graph.node(operation_of[static_cast<std::size_t>(graph.output())]).name);
  def.message(kNode, end);
  versions.integer(1, 22);  // of the producer, as PyTorch's writer has it
  def.message(kVersions, versions);
  return def.text();
}

}  // namespace bantam::run
