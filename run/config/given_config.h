// A configuration whose samples a program brings: they take the place of a data set that the file would name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "bantam/data/formats/sample_reader.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

struct GivenData {
  /// `validation` may be null: then `data.validation` of the configuration holds samples out, or nothing is evaluated.
  SampleSplits samples;
  std::int64_t batch_size = 0;  ///< in the place of the pipeline's; 0: that, or 32 where there is no pipeline
};

/// As parse_run_config of a text. The section `data` may be missing; without a pipeline samples are shuffled, bytes
/// scaled to [0, 1], and batches made ahead. What is added stands in the document, so that its resolved text shows it.
/// Throws ConfigError, DataError where the images of the splits have different types, and what the samples' facts
/// throw.
RunConfig parse_run_config(std::string_view text, const std::filesystem::path& path,
                           std::span<const std::string> overrides, const GivenData& given);

/// read_document of samples that are given.
RunConfig read_document(ConfigDocument document, const std::string& name, const SampleSplits& given);

}  // namespace bantam::run
