// MetricSums: what a loss adds up on the device over the batches of an update or an evaluation.
#pragma once

namespace bantam::kernels {

/// Sums over batches, on the device, double so that a million steps add up.
struct MetricSums {
  double loss = 0;     ///< Σ of per-sample losses
  double correct = 0;  ///< samples whose largest logit (the first, among equals) is the label
  double samples = 0;  ///< that count: not those whose positions are all ignored
};

}  // namespace bantam::kernels
