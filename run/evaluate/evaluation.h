// evaluate: a trained model on one of its sets, with the numbers of the run's own evaluations and what is reported of
// each class beside them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/engine/metrics/metric.h"
#include "bantam/run/trained/task.h"
#include "bantam/run/trained/trained_model.h"

namespace bantam::run {

/// Which of a configuration's samples.
enum class EvaluatedSet : std::uint8_t {
  training,
  validation,
  test,
  all  ///< training and validation samples together, of a set without parts of its own
};

/// "training", "validation", "test", "all"; the inverse throws ConfigError.
std::string_view to_string(EvaluatedSet set);
EvaluatedSet parse_evaluated_set(std::string_view text);

struct EvaluateOptions {
  EvaluatedSet set = EvaluatedSet::validation;
  int threads = 0;                                                             ///< of the CPU; 0: all processors
  std::function<bool()> stop = {};                                             ///< asked before every batch
  std::function<void(std::int64_t done, std::int64_t batches)> on_batch = {};  ///< before each batch, and at the end
  std::function<void(std::string_view)> on_warning = {};                       ///< must not throw
};

/// `stop` said so.
class EvaluationStopped : public Error {
 public:
  using Error::Error;
};

/// Sizes in bytes.
struct Evaluation {
  Task task = Task::classes;
  EvaluatedSet set = EvaluatedSet::validation;
  std::int64_t batch_size = 1;
  /// Loss, accuracy and the configuration's metrics: the bits of the run's own evaluation of these weights and samples.
  Metrics metrics;
  /// Counted beside them. Of classes: confusion_matrix, or, where there are more than kMostMatrixClasses, f1; then
  /// top_k. Of several labels: f1, auc. Of values: mse, mae, r2.
  std::vector<MetricValue> more;
  double seconds = 0;                                            ///< the time of all batches
  std::uint64_t planned_peak_bytes = 0, planned_pool_bytes = 0;  ///< of the device's allocator, known before it began
  std::uint64_t peak_bytes = 0;                                  ///< in use
  std::int64_t broken_samples = 0;                               ///< that `on_error: skip` replaced
  std::vector<std::string> broken_reasons;                       ///< reasons for the first few
};

inline constexpr std::int64_t kMostMatrixClasses = 2048;

/// Evaluates on the configuration's device, within its limits, in the batches of its evaluations: the memory is
/// planned and reserved before the first sample is read, and no set lies in it. `model.config` has data. Throws
/// EvaluationStopped, ConfigError where there is no such set, DeviceError, DataError (also where the data's classes
/// have other names than the model's), OutOfMemory.
Evaluation evaluate(const TrainedModel& model, const EvaluateOptions& options = {});

}  // namespace bantam::run
