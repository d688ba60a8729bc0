// The answers of a trained model to samples that it was not trained on: losses, confusions and the worst answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/data/images/image.h"
#include "bantam/engine/metrics/metric.h"
#include "bantam/run/trained/task.h"
#include "bantam/run/trained/trained_model.h"

namespace bantam::run {

struct HeldOutOptions {
  std::int64_t most_samples = 10'000;  ///< where there are more, so many are chosen, evenly spread
  std::size_t shown = 32;              ///< samples of each list
  int threads = 0;                     ///< of the CPU; 0: all processors
  std::function<bool()> stop = {};     ///< asked before every batch
  std::function<void(std::int64_t done, std::int64_t samples)> on_batch = {};  ///< before each batch, and at the end
  std::function<void(std::string_view)> on_warning = {};                       ///< must not throw
};

/// One held-out sample.
struct AnsweredSample {
  std::int64_t index = 0;  ///< of the set
  std::string name;        ///< its file, or its number
  std::string truth;       ///< its target in words; empty where that is a mask
  std::vector<std::pair<std::string, double>>
      said;                     ///< by weight: classes and probabilities, numbers, shares of pixels
  double loss = 0;              ///< by the configuration's loss
  double right = 0;             ///< 0 or 1, or the share of right positions; NaN: there is none
  Image image;                  ///< as the network sees it; empty where samples are vectors
  Image truth_mask, said_mask;  ///< a colour a class; empty without masks
};

struct HeldOutAnswers {
  Task task = Task::classes;
  std::int64_t samples = 0, of = 0;                            ///< looked at; that there are
  double loss = 0;                                             ///< their mean
  double accuracy = std::numeric_limits<double>::quiet_NaN();  ///< the mean of AnsweredSample::right
  std::vector<std::string> names;                              ///< of the outputs
  MetricTable matrix;                  ///< labels down, answers across; empty: not one class a sample or position
  std::vector<AnsweredSample> worst;   ///< of the largest loss first; a loss that is not finite is the largest
  std::vector<AnsweredSample> random;  ///< chosen by the configuration's seed, in the set's order
};

/// Runs the validation samples through the model, in the batches and stages of its evaluations, on the configuration's
/// device and within its limits. `model.config` has data. Throws EvaluationStopped, ConfigError, DeviceError,
/// DataError, OutOfMemory.
HeldOutAnswers answer_held_out(const TrainedModel& model, const HeldOutOptions& options = {});

}  // namespace bantam::run
