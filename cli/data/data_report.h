// The report of `bantam data` on a configuration's data, as text and as JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bantam/base/json.h"
#include "bantam/data/survey/pipeline_steps.h"
#include "bantam/data/survey/split_survey.h"

namespace bantam::cli {

struct DataReport {
  struct Split {
    std::string name;  ///< training, validation or test
    SplitSurvey survey;
  };

  std::string config, format;
  std::vector<Split> splits;   ///< training first
  NormalizeOptions normalize;  ///< the pipeline's
  std::vector<PipelineStep> training, evaluation;
  std::int64_t epoch_samples = 0;  ///< of training
  std::string draw;                ///< how an epoch's samples are drawn: each, balanced or weighted
  std::string cache;               ///< ram, device, disk or off
  bool cache_is_auto = false;
  std::uint64_t cache_bytes = 0;  ///< the caches of all splits together; 0: nothing is cached
  bool caches_files = false;      ///< as stored; else samples after the stages that belong to reading
  bool checked = false;           ///< every sample was read and decoded
  bool one_size = true;           ///< whether training images get one size, without which there are no batches
};

/// A `normalize` stage by the training split's own mean and deviation, as YAML: of each channel, or, as
/// channels_to_normalize says, of all values; empty where nothing was read.
std::string normalize_line(const DataReport& report);

nlohmann::ordered_json json_of(const DataReport& report);

/// Names of classes are as long as lines of so many columns allow; names of files may be longer.
std::string text_of(const DataReport& report, std::size_t columns = 80);

}  // namespace bantam::cli
