// The confusion matrix of targets that are probabilities of classes, as mixed or distilled labels are.
#pragma once

#include "bantam/engine/metrics/metric.h"

namespace bantam::run {

/// Samples by the largest target (row) and the largest output (column), counted on the host: it waits for the device.
/// It reads outputs (classes) and kTargets; for evaluations alone.
MetricPtr target_confusion();

}  // namespace bantam::run
