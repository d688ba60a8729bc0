// Two runs side by side: what differs in their configurations, and what they came to.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bantam/run/runs.h"

namespace bantam::run {

/// A run, and the last numbers of its metrics.jsonl.
struct ComparedRun {
  ListedRun run;
  std::vector<std::pair<std::string, std::string>> config;  ///< of config.yaml: ConfigDocument::values
  /// The numbers on the last lines of kinds epoch, evaluation and test: "loss", "validation_loss", "test_accuracy", …,
  /// in the lines' order.
  std::vector<std::pair<std::string, double>> results;
  std::optional<double> images_per_s;  ///< the speed of the last epoch, or of the last update before its end
  std::optional<std::uint64_t> peak_bytes, pool_bytes;
  std::string weights_sha256;  ///< of weights.safetensors; empty: there is none
};

/// A key whose values differ; nothing: that run does not have it.
struct DifferentKey {
  std::string key;
  std::optional<std::string> first, second;
};

/// A number that at least one of the runs has.
struct ComparedNumber {
  std::string name;
  std::optional<double> first, second;
};

struct RunComparison {
  ComparedRun first, second;
  std::vector<DifferentKey> config;     ///< in the first one's order, then the second one's
  std::vector<ComparedNumber> results;  ///< likewise
  bool same_weights = false;            ///< both have weights.safetensors, of the same bytes
  /// Whether a larger RunRecord::best is better; nothing where the runs do not both have one of the same metric.
  std::optional<bool> larger_is_better;
};

/// Reads the folders of two runs, which may be under way. Throws DataError where one is no run or its configuration
/// cannot be read.
RunComparison compare_runs(const std::filesystem::path& first, const std::filesystem::path& second);

}  // namespace bantam::run
