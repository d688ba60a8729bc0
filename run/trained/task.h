// Task: what a network's output says, as its loss reads it.
#pragma once

#include <cstdint>
#include <string_view>

#include "bantam/run/config/run_config.h"

namespace bantam::run {

enum class Task : std::uint8_t {
  classes,       ///< one class a sample: the largest output
  multi_label,   ///< any number of classes a sample: each output's sigmoid
  segmentation,  ///< one class a position (pixel)
  masks,         ///< any number of classes a position
  values         ///< numbers
};

/// "classes", "multi_label", "segmentation", "masks", "values".
std::string_view to_string(Task task);

/// By the loss (Loss::output_kind), by the tensors that it reads, and by whether a sample has one class.
Task task_of(const RunConfig& config);

/// Whether the loss reads class numbers (kLabels).
bool reads_labels(const RunConfig& config);

}  // namespace bantam::run
