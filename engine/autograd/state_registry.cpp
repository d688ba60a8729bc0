// The list, with unique names.
#include <algorithm>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/parameters.h"

namespace bantam {
namespace {

template <class List>
void check_new(const List& list, const std::string& name) {
  if (std::ranges::any_of(list, [&](const auto& entry) { return entry.name == name; }))
    throw Error("state: two entries are named '" + name + "'");
}

}  // namespace

void StateRegistry::add(std::string name, Tensor tensor) {
  check_new(tensors_, name);
  check_new(counters_, name);
  tensors_.push_back({std::move(name), std::move(tensor)});
}

void StateRegistry::add_counter(std::string name, std::function<std::int64_t()> get,
                                std::function<void(std::int64_t)> set) {
  check_new(tensors_, name);
  check_new(counters_, name);
  counters_.push_back({std::move(name), std::move(get), std::move(set)});
}

}  // namespace bantam
