// The table of constants, and which nodes are computed.
#include "bantam/models/onnx/import/constants.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/models/onnx/import/node.h"

namespace bantam::onnx {

namespace {

/// Elements of one byte count a quarter: where they are computed with, they have eight bytes.
std::int64_t elements_of(const Tensor& tensor) {
  return facts_of(tensor.type).bytes == 1 ? tensor.elements() / 4 : tensor.elements();
}

}  // namespace

Constants::Constants(const Model& model) {
  for (const Tensor& tensor : model.initializers) {
    if (!by_name_.emplace(tensor.name, &tensor).second)
      throw DataError(fmt::format("two initializers have the name '{}'", shown(tensor.name)));
    elements_ += elements_of(tensor);
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

void Constants::count_reading(const Node& node) {
  if (node.op == "Shape" || node.op == "Size") return;  // they read no values
  std::int64_t largest = 0;
  for (const std::string& input : node.inputs)
    if (const Tensor* tensor = find(input)) {
      read_elements_ += tensor->elements();
      largest = std::max(largest, tensor->elements());
    }
  // Each further input is combined with the result of those before it.
  if (node.op == "Min" || node.op == "Max") read_elements_ += largest * std::ssize(node.inputs);
  const std::int64_t most = (std::int64_t{1} << 25) + 16 * elements_;
  if (read_elements_ > most)
    fail(node, fmt::format("the nodes so far read constants of {} values, and the model's own constants allow {}",
                           format_count(read_elements_), format_count(most)));
}

bool Constants::reads_constants_alone(const Node& node) const {
  // CastLike reads its second input's type alone: floating-point if the network computes it, so it may be no constant.
  if (node.op == "CastLike" && node.inputs.size() == 2) return by_name_.contains(node.inputs[0]);
  return std::ranges::all_of(node.inputs,
                             [&](const std::string& input) { return input.empty() || by_name_.contains(input); });
}

bool Constants::compute(const Node& node) {
  // BatchNormalization counts as a node of one output: the others, running statistics, are not computed.
  const bool one = node.outputs.size() == 1 || (node.op == "BatchNormalization" && !node.outputs.empty());
  if (!one || !node.domain.empty()) return false;
  count_reading(node);
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
  if (computed.tensor.dims.size() > kMostAxes)
    fail(node, fmt::format("computes a constant of more than {} axes", kMostAxes));
  if (node.op == "Constant") elements_ += elements_of(computed.tensor);
  if (node.op.starts_with("Reduce")) computed_elements_ += inputs[0]->elements();  // the work counts, too
  if (computed.tensor.elements() > most_elements() - computed_elements_)
    fail(node, "computes a constant that is too large");
  computed.tensor.name = node.outputs[0];
  set(node.outputs[0], std::move(computed.tensor));
  return true;
}

}  // namespace bantam::onnx
