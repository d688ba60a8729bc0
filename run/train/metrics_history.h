// MetricsHistory: the curves of a run's metrics.jsonl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
  /// The last whole epoch, from 1, and the mean loss of its training samples.
  std::optional<std::pair<std::int64_t, double>> epoch_loss;
  /// The extremes of each value of evaluations, by the log's names ("validation_loss"): the least and the largest, each
  /// with the first epoch that has it, from 1.
  struct Extremes {
    double least = 0, largest = 0;
    std::int64_t least_epoch = 0, largest_epoch = 0;
  };
  std::map<std::string, Extremes> evaluations;
  std::int64_t epoch = 0, update = 0;  ///< whole epochs that are logged, and updates of the one after
  std::int64_t updates = 0;            ///< the last that is logged, of the whole run
  double seconds = 0;                  ///< of training until there, over all sessions
  std::int64_t updates_per_epoch = 0;  ///< of the longest epoch that is logged

  /// Null where there is none of that name.
  const MetricCurve* find(const std::string& name) const;
};

/// A run's metrics.jsonl, which may be growing. Used by one thread at a time.
class MetricsFile {
 public:
  explicit MetricsFile(std::filesystem::path path);
  ~MetricsFile();
  MetricsFile(MetricsFile&&) noexcept;
  MetricsFile& operator=(MetricsFile&&) noexcept;

  /// Reads on from where the last call ended (from the beginning, where the file has become shorter), whole lines
  /// alone, and returns all curves, each of at most `most_points` (see thinned). A file that is not there has no
  /// curves. `on_line` is called before each line; what it throws ends the call, and the next one reads on. Throws
  /// DataError where the file cannot be read, or a line is no JSON object.
  MetricsHistory read(std::size_t most_points, const std::function<void()>& on_line = {});

 private:
  class Reader;
  std::filesystem::path path_;
  std::uint64_t bytes_ = 0, lines_ = 0;  // read
  std::unique_ptr<Reader> reader_;
};

/// The curve with at most `most` points: the first and last one, and of equal numbers of neighbours the least and the
/// largest.
MetricCurve thinned(MetricCurve curve, std::size_t most);

}  // namespace bantam::run
