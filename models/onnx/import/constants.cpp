// The table of constants, and which nodes are computed.
#include "bantam/models/onnx/import/constants.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/models/onnx/import/node.h"

namespace bantam::onnx {

Constants::Constants(const Model& model) {
  for (const Tensor& tensor : model.initializers) {
    if (!by_name_.emplace(tensor.name, &tensor).second)
      throw DataError(fmt::format("two initializers have the name '{}'", shown(tensor.name)));
    elements_ += tensor.elements();
  }
}

const Tensor* Constants::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

void Constants::set(const std::string& name, Tensor tensor) {
  if (by_name_.contains(name)) throw DataError(fmt::format("two values have the name '{}'", shown(name)));
  computed_elements_ += tensor.elements();
  computed_.push_back(std::move(tensor));
  by_name_.emplace(name, &computed_.back());
  computed_names_.insert(name);
}

std::int64_t Constants::most_elements() const { return (std::int64_t{1} << 22) + 8 * elements_; }

bool Constants::reads_constants_alone(const Node& node) const {
  // What the network computes are floating-point numbers: their type says nothing more.
  if (node.op == "CastLike" && node.inputs.size() == 2) return by_name_.contains(node.inputs[0]);
  return std::ranges::all_of(node.inputs,
                             [&](const std::string& input) { return input.empty() || by_name_.contains(input); });
}

bool Constants::compute(const Node& node) {
  // Of a norm the first output alone is computed; the others are running statistics.
  const bool one = node.outputs.size() == 1 || (node.op == "BatchNormalization" && !node.outputs.empty());
  if (!one || !node.domain.empty()) return false;
  std::vector<const Tensor*> inputs;
  for (const std::string& input : node.inputs) inputs.push_back(find(input));
  Computed computed;
  try {
    computed = onnx::compute(node, inputs, most_elements() - computed_elements_);
  } catch (const DataError& error) {
    const std::string what = error.what();
    if (what.starts_with(describe(node))) throw;
    fail(node, what);
  }
  if (!computed.known) return false;
  if (node.op == "Constant") elements_ += computed.tensor.elements();
  if (node.op.starts_with("Reduce")) computed_elements_ += inputs[0]->elements();  // the work counts, too
  if (computed.tensor.elements() > most_elements() - computed_elements_)
    fail(node, "computes a constant that is too large");
  computed.tensor.name = node.outputs[0];
  set(node.outputs[0], std::move(computed.tensor));
  return true;
}

}  // namespace bantam::onnx
