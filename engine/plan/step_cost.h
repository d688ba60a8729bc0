// StepCost: how long a step takes by a roofline, node by node; good for comparing policies, not for promising seconds.
#pragma once

#include <cstdint>
#include <vector>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/graph/recompute_options.h"
#include "bantam/engine/runtime/precision.h"

namespace bantam {

/// What a device sustains on large tensors.
struct DeviceRates {
  double bytes_per_s = 1;
  double flops_per_s = 1;
};

/// Those of the device's profile (device_profile.h) in this precision. Policies are compared by them, so their ratio
/// matters more than they do.
DeviceRates typical_rates(Device device, Precision precision);

/// Seconds of one micro-batch.
struct StepCost {
  std::vector<double> forward;   ///< by node, with every norm written; 0 for the input
  std::vector<double> again;     ///< by node: run again, with a norm's statistics kept
  std::vector<double> touch;     ///< by node: to read or to write its output once
  std::vector<double> deferral;  ///< by node: what a norm saves that its reader applies where nothing runs again, or 0
  double step = 0;               ///< forward and backward of all nodes
};

/// Fitted to captured steps in mixed_float16 on an H200, ms measured (and predicted): resnet50 at batch 256 27.8
/// (27.5), mobilenet_v1 at 256 8.4 (8.8), resnet18_cifar at 512 5.3 (4.5). A node takes the longer of its arithmetic
/// (Layer::flops, of channels in eights) and its traffic (Layer::traffic, in the compute type).
StepCost predict_cost(const Graph& graph, std::int64_t batch, Precision precision, const DeviceRates& rates);

/// How long an update of some batch takes: a part that grows with it, and one that does not.
struct UpdateCost {
  double sample_seconds = 0;  ///< forward and backward of one more sample
  double fixed_seconds = 0;   ///< whatever the batch: kernels begin and end, and the update moves weights and moments

  double images_per_s(std::int64_t batch) const;
  /// How many more images/s the largest of batches has than this one, as a share: 0.04 is 4 %.
  double gain_beyond(std::int64_t batch) const;
  /// The least batch from which no larger one has `gain` (of gain_beyond) more images/s.
  std::int64_t enough_batch(double gain) const;
};

/// What an update is made of besides the layers.
struct UpdateSize {
  std::int64_t parameters = 0;
  int moments = 0;              ///< of the optimizer, a parameter (moment_slots)
  std::int64_t accumulate = 1;  ///< micro-batches that share an update
};

/// Of a micro-batch of captured or planned steps, where nothing runs again; by the same roofline, so good for comparing
/// batch sizes, not for promising images/s.
UpdateCost predict_update(const Graph& graph, Precision precision, const DeviceRates& rates, const UpdateSize& size);

/// Seconds to derive tensors in backward where nothing runs again, by the node whose output is made.
std::vector<double> derivation_seconds(const Graph& graph, Derive derive, const StepCost& cost);

/// The forward work that the policy does again, with the passes that derive tensors, as a share of a step without: 0.04
/// is 4 % more time. Fitted with the steps, on resnet50 at 256, ms measured (and predicted): [inner, whole, 14
/// stretches, most of them within blocks], which peaks at 3,830 MiB, 5.3 (5.0); [inner, whole, 12 within blocks], at
/// 6,011 MiB, 3.7 (2.6). Both were measured when a stretch still added up the gradients of its output first.
double extra_work(const Graph& graph, const RecomputeOptions& recompute, const StepCost& cost);

}  // namespace bantam
