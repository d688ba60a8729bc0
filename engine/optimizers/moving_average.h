// WeightAverage: the memory of a model's average (EmaOptions), and its kernels.
#pragma once

#include "bantam/engine/model/model.h"
#include "bantam/engine/optimizers/optimizer.h"

namespace bantam {

/// Float32, as large as the parameter arena and the running statistics; on the device. At first the weights as they are
/// when it is made. Belongs to an Optimizer.
class WeightAverage {
 public:
  /// Throws ConfigError for options out of range.
  WeightAverage(Model& model, const EmaOptions& options, const Context& context);

  /// The averages become weights and running statistics as they are now: of a model whose weights were loaded.
  void begin() const;
  /// Follows an update's kernels, in order of the stream.
  void move(const Context& context, const kernels::UpdateControl* control) const;
  /// Exchanges weights and running statistics with their averages, and makes the compute copies of what the model has
  /// then. A second call restores every bit.
  void swap();
  /// Whether the model has the averages now.
  bool swapped() const { return swapped_; }
  /// The averages, laid out as the arena's slots; null where there is no parameter.
  float* values() const { return average_.as<float>(); }
  /// "ema/weights/…" and "ema/buffers/…", in the model's names.
  void register_state(StateRegistry& registry) const;

 private:
  Model& model_;
  EmaOptions options_;
  Tensor average_, buffers_;
  bool swapped_ = false;
};

}  // namespace bantam
