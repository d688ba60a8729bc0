// StepFloor: the bytes and operations that every way of running a step needs; measured steps are compared with them.
#pragma once

#include <cstdint>

#include "bantam/engine/graph/graph.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam {

/// The least work of one step: forward and backward of a batch, and an update.
struct StepWork {
  double bytes = 0;  ///< to and from device memory
  double flops = 0;  ///< of convolutions and dense layers; a multiply-add is two
};

/// Counts, for each layer with a GEMM or convolution: forward reads its input and writes its output; backward reads the
/// input and the output's gradient, and writes the input's (not the batch's). All else (activations, norms, sums,
/// pooling, biases, the loss) is counted as fused into these: where a pooling follows without a batch norm between,
/// only its output counts. The update reads and writes master weights, the optimizer's `moments` and gradients, all
/// float32, and writes the compute copy. Weights are not counted in forward and backward. `batch` samples.
StepWork least_step_work(const Graph& graph, std::int64_t batch, Precision precision, std::int64_t parameters,
                         int moments);

}  // namespace bantam
