// MetricsHistory: the curves of a run's metrics.jsonl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace bantam::run {

/// One quantity over the run, in the log's own names: "loss", "learning_rate", "validation_accuracy".
struct MetricCurve {
  std::string name;
  std::vector<double> updates;  ///< of the whole run, ascending
  std::vector<double> seconds;  ///< of training until there, over all sessions
  std::vector<double> values;   ///< finite
  std::size_t points = 0;       ///< that the log has; more than `values` where the curve was thinned
};

struct MetricsHistory {
  std::vector<MetricCurve> curves;     ///< in the order in which the log names them
  std::map<std::string, double> test;  ///< of the test samples, by name without "test_"; empty: not evaluated
  std::int64_t updates = 0;            ///< the last that is logged, of the whole run
  std::int64_t updates_per_epoch = 0;  ///< of the longest epoch that is logged

  /// Null where there is none of that name.
  const MetricCurve* find(const std::string& name) const;
};

/// Reads the whole lines of the file; what a run under way has written of its next line is passed over. A curve of more
/// than `most_points` keeps the least and the largest value of equally many neighbours. A file that is not there has
/// no curves. Throws DataError where it cannot be read, or a line is no JSON object.
MetricsHistory read_metrics_history(const std::filesystem::path& path, std::size_t most_points);

/// The curve with at most `most` points: the first and last one, and of equal numbers of neighbours the least and the
/// largest.
MetricCurve thinned(MetricCurve curve, std::size_t most);

}  // namespace bantam::run
