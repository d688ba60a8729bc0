// The exponential moving average of a model's weights and running statistics, and its exchange with them.
#pragma once

#include <cstdint>

#include "bantam/base/api.h"

BANTAM_API_BEGIN
namespace bantam {
class Optimizer;
class BANTAM_INTERNAL WeightAverage;

/// An exponential moving average of weights and running statistics, in float32, moved by every update that is done
/// (not by skipped ones), after timm's ModelEmaV3: a = a + (1 - d)(w - a), where d is 0 at the first averaging.
struct EmaOptions {
  double decay = 0.999;  ///< d, in [0, 1)
  /// d of averaging k is min(decay, 1 - k^(-2/3)): 0.37 at the second, 0.79 at the tenth, 0.95 at the hundredth.
  bool warmup = false;
  std::int64_t every = 1;  ///< updates an averaging
  bool evaluate = true;    ///< a Trainer's evaluations are of the averages, not of the weights
};

/// As long as it lives, the model has the averages of its weights and running statistics (OptimizerOptions::ema) in
/// their place, for an evaluation or save_weights; then every bit is as before. Without averages nothing happens. In
/// order of the model's stream; the host does not wait. One at a time; the optimizer must outlive it, and throws Error
/// where it is asked for an update meanwhile.
///
///     {
///       const AveragedWeights averages(optimizer);
///       save_weights(model, "weights-ema.safetensors");
///     }
class AveragedWeights {
 public:
  explicit AveragedWeights(Optimizer& optimizer);
  ~AveragedWeights();
  AveragedWeights(const AveragedWeights&) = delete;
  AveragedWeights& operator=(const AveragedWeights&) = delete;

 private:
  WeightAverage* average_;
};

}  // namespace bantam
BANTAM_API_END
