// StepCost: how long a step takes by a roofline, node by node; good for comparing policies, not for promising seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/engine/graph.h"
#include "bantam/engine/precision.h"

namespace bantam {

/// What a device sustains on large tensors.
struct DeviceRates {
  double bytes_per_s = 1;
  double flops_per_s = 1;
  double image_share = 1;  ///< of that rate: what a convolution reaches that reads an image
};

/// Those of the device's profile (device_profile.h) in this precision. Policies are compared by them, so their ratio
/// matters more than they do.
DeviceRates typical_rates(Device device, Precision precision);

/// Seconds of one micro-batch.
struct StepCost {
  std::vector<double> forward;  ///< by node, with every norm written; 0 for the input
  std::vector<double> again;    ///< by node: run again, with a norm's statistics kept
  std::vector<double> touch;    ///< by node: to read or to write its output once
  double step = 0;              ///< forward and backward of all nodes
};

/// Fitted to resnet50 at batch 256 in mixed_float16 on an H200: 44.6 ms a step with every norm written, and in per cent
/// of it, measured, +12.5 with every cheap tensor derived by chains of two sums, +29.5 with all blocks run again.
/// A node takes the longer of its arithmetic (Layer::flops) and its traffic (Layer::traffic, in the compute type).
StepCost predict_cost(const Graph& graph, std::int64_t batch, Precision precision, const DeviceRates& rates);

/// The forward work that the policy does again, with the passes that derive tensors, as a share of a step without: 0.04
/// is 4 % more time.
double extra_work(const Graph& graph, const RecomputeOptions& recompute, const StepCost& cost);

}  // namespace bantam
