// StateRegistry: the one list of all that outlives a step. Checkpoints, comparison and roll-back walk it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bantam/engine/autograd/tensor.h"

namespace bantam {

/// One named piece of state: a tensor on the device. A model's are "weights/<parameter>" and "buffers/<buffer>"
/// ("weights/dense/weight", "buffers/norm/running_mean"); an optimizer's "optimizer/control", "optimizer/moment1" and
/// "optimizer/moment2", as far as it has them.
struct StateEntry {
  std::string name;
  Tensor tensor;
};

/// Entries in a fixed order; names are unique.
class StateRegistry {
 public:
  void add(std::string name, Tensor tensor);
  /// Host values, kept by their owner, read at save and written at load: a training run's "trainer/epoch",
  /// "trainer/update" and so on.
  void add_counter(std::string name, std::function<std::int64_t()> get, std::function<void(std::int64_t)> set);
  /// Called after a load, so that owners rebuild what derives from state (compute copies).
  void on_load(std::function<void()> function) { on_load_.push_back(std::move(function)); }

  const std::vector<StateEntry>& tensors() const { return tensors_; }
  struct Counter {
    std::string name;
    std::function<std::int64_t()> get;
    std::function<void(std::int64_t)> set;
  };
  const std::vector<Counter>& counters() const { return counters_; }
  void loaded() const {
    for (const auto& function : on_load_) function();
  }

 private:
  std::vector<StateEntry> tensors_;
  std::vector<Counter> counters_;
  std::vector<std::function<void()>> on_load_;
};

}  // namespace bantam
