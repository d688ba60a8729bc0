// Look-up by name.
#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/autograd/tensor.h"

namespace bantam {

const TensorFacts* find_facts(std::span<const TensorFacts> tensors, std::string_view name) {
  const auto found = std::ranges::find(tensors, name, &TensorFacts::name);
  return found == tensors.end() ? nullptr : &*found;
}

TensorMap::TensorMap(std::initializer_list<Entry> entries) {
  entries_.reserve(entries.size());
  for (const Entry& entry : entries) {
    if (find(entry.name) != nullptr) throw Error(fmt::format("tensors: '{}' is named twice", entry.name));
    entries_.push_back(entry);
  }
}

const Tensor* TensorMap::find(std::string_view name) const {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  return found == entries_.end() ? nullptr : &found->tensor;
}

const Tensor& TensorMap::at(std::string_view name) const {
  if (const Tensor* tensor = find(name)) return *tensor;
  std::vector<std::string> names;
  for (const Entry& entry : entries_) names.push_back(entry.name);
  throw Error(fmt::format("there is no tensor '{}'; there {} {}", name, names.size() == 1 ? "is" : "are",
                          names.empty() ? "none" : join(names, ", ", " and ")));
}

void TensorMap::set(std::string_view name, Tensor tensor) {
  const auto found = std::ranges::find(entries_, name, &Entry::name);
  if (found == entries_.end())
    entries_.emplace_back(name, std::move(tensor));
  else
    found->tensor = std::move(tensor);
}

}  // namespace bantam
