// The list, with unique names.

#include "bantam/base/error.h"
#include "bantam/engine/autograd/parameters.h"

namespace bantam {

void StateRegistry::require_new(const std::string& name) {
  if (!names_.insert(name).second) throw Error("state: two entries are named '" + name + "'");
}

void StateRegistry::add(std::string name, Tensor tensor) {
  require_new(name);
  tensors_.push_back({std::move(name), std::move(tensor)});
}

void StateRegistry::add_counter(std::string name, std::function<std::int64_t()> get,
                                std::function<void(std::int64_t)> set) {
  require_new(name);
  counters_.push_back({std::move(name), std::move(get), std::move(set)});
}

void StateRegistry::add_numbers(std::string name, std::function<std::vector<double>()> get,
                                std::function<void(const std::vector<double>&)> set) {
  require_new(name);
  numbers_.push_back({std::move(name), std::move(get), std::move(set)});
}

}  // namespace bantam
