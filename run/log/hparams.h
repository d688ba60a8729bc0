// A run's configuration and its end, as TensorBoard's hparams page reads them (messages of its plugin_data.proto).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bantam/base/protobuf.h"

namespace bantam::run {

/// Values by their paths, as ConfigDocument::values.
using ConfigValues = std::vector<std::pair<std::string, std::string>>;

/// Those that decide what a run comes to: of `train`, the pipeline, the seed, the precision and the model but for its
/// layers; no paths, nothing that is only logged.
ConfigValues hyperparameters(const ConfigValues& values);

/// The beginning: the hyperparameters, as numbers, booleans and text.
ProtoWriter hparams_start(const std::string& run, const ConfigValues& hyperparameters, double seconds_since_1970);

/// A scalar that runs are compared by: where its file lies from that of the hyperparameters, and its tag there.
struct MetricTag {
  std::string folder, tag;
};
/// The names of the hyperparameters, and the scalars that runs are compared by.
ProtoWriter hparams_experiment(const ConfigValues& hyperparameters, const std::vector<MetricTag>& metric_tags);
ProtoWriter hparams_end(bool success, double seconds_since_1970);

}  // namespace bantam::run
