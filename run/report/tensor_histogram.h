// ReportedHistogram: how the values of a layer's weights, or of their gradients, are spread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "bantam/engine/train/safetensors.h"

namespace bantam::run {

struct ReportedHistogram {
  std::string tensor;  ///< "stem/weight"
  std::string kind;    ///< "weight" or "gradient"
  std::int64_t update = 0;
  double minimum = 0, maximum = 0, mean = 0, deviation = 0;
  std::vector<double> edges;  ///< ascending, one more than counts
  std::vector<double> counts;
};

/// The histogram (run/log/histogram.h) of a weight's values. No edges and counts where there are no finite values.
ReportedHistogram histogram_of(const std::string& name, const HostTensor& tensor);

/// The histograms of a file's tensors, by name.
std::vector<ReportedHistogram> histograms_of(const SafetensorsFile& file);

/// A run's histograms.jsonl (an object a line), in its order: of at most 8 updates, evenly chosen, the first and the
/// last among them; of fewer where they would be more than `most` histograms, and of the last in any case, unless
/// `most` is 0. A line that is written in part is passed over; a file that is not there is empty. The file may be much
/// larger than what is returned. `on_line` is called before each line; what it throws ends the call. Throws DataError
/// naming a line that is none.
std::vector<ReportedHistogram> read_histograms(const std::filesystem::path& path, std::size_t most,
                                               const std::function<void()>& on_line = {});

}  // namespace bantam::run
