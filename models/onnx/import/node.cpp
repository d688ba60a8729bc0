// Attributes of a node by their type.
#include "bantam/models/onnx/import/node.h"

#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"

namespace bantam::onnx {
namespace {

template <class Value>
Value attribute_of(const Node& node, const std::string& name, Value otherwise, std::string_view expected) {
  const auto found = node.attributes.find(name);
  if (found == node.attributes.end()) return otherwise;
  if (const Value* value = std::get_if<Value>(&found->second)) return *value;
  fail(node, fmt::format("attribute '{}': expected {}", name, expected));
}

}  // namespace

std::string describe(const Node& node) {
  const std::string op = node.domain.empty() ? node.op : node.domain + "." + node.op;
  if (!node.name.empty()) return fmt::format("node '{}' ({})", shown(node.name), shown(op));
  return fmt::format("node of '{}' ({})", node.outputs.empty() ? "" : shown(node.outputs[0]), shown(op));
}

void fail(const Node& node, std::string_view what) { throw DataError(fmt::format("{}: {}", describe(node), what)); }

bool has_attribute(const Node& node, const std::string& name) { return node.attributes.contains(name); }

std::int64_t integer(const Node& node, const std::string& name, std::int64_t otherwise) {
  return attribute_of(node, name, otherwise, "an integer");
}

float number(const Node& node, const std::string& name, float otherwise) {
  return attribute_of(node, name, otherwise, "a number");
}

std::string text(const Node& node, const std::string& name, std::string otherwise) {
  return attribute_of(node, name, std::move(otherwise), "text");
}

std::vector<std::int64_t> integers(const Node& node, const std::string& name, std::vector<std::int64_t> otherwise) {
  return attribute_of(node, name, std::move(otherwise), "integers");
}

std::size_t checked_axis(const Node& node, std::int64_t axis, std::size_t rank) {
  const auto axes = static_cast<std::int64_t>(rank);
  if (axis < -axes || axis >= axes) fail(node, fmt::format("axis {} of a value of {} axes", axis, rank));
  return static_cast<std::size_t>(axis < 0 ? axis + axes : axis);
}

}  // namespace bantam::onnx
