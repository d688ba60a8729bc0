// OutputReading: from a network's output for one sample to probabilities, numbers or masks.
#pragma once

#include <cstddef>
#include <span>

#include "bantam/base/shape.h"
#include "bantam/engine/losses/loss.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/predict/prediction.h"
#include "bantam/run/trained/task.h"

namespace bantam::run {

/// As the configuration's loss reads outputs. Immutable.
class OutputReading {
 public:
  /// `threshold` is of masks: a class is where its probability is at least this.
  OutputReading(const RunConfig& config, double threshold);

  Task task() const { return task_; }
  /// `output` is one sample's, row by row. Sets values, masks and counts of `prediction`.
  void read(std::span<const float> output, Prediction& prediction) const;

 private:
  std::size_t classes() const { return static_cast<std::size_t>(output_[-1]); }
  Image blank() const;
  void read_segmentation(std::span<const float> output, Prediction& prediction) const;
  void read_masks(std::span<const float> output, Prediction& prediction) const;

  Task task_;
  OutputKind kind_;
  Shape output_;
  double cut_;  // the logit of the threshold
};

}  // namespace bantam::run
