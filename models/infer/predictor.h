// Predictor: a trained network for inference, from any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "bantam/base/api.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/runtime/runtime.h"
#include "bantam/engine/train/safetensors.h"

BANTAM_API_BEGIN
namespace bantam {

/// How many samples and calls a predictor runs at once, and in which precision.
struct PredictorOptions {
  Precision precision = {};
  std::int64_t most_batch = 32;  ///< samples of one pass; larger calls are cut into such
  int lanes = 1;                 ///< calls that run at the same time; others wait. Each has an arena of its own
  bool fold_batch_norm = true;   ///< fold_for_inference; false: the graph's own operations
  /// On a GPU libraries' kernels are chosen by timing while it is made: faster, and two predictors may then differ in
  /// rounding. Nothing elsewhere.
  bool time_algorithms = true;
};

/// Weights lie on the device once, beside an arena for each lane, whose size is planned when it is made: a call
/// allocates no memory of devices, nor page-locked memory. Passes are planned for most_batch samples and for each power
/// of two below, and a call's samples are cut into such passes; on a GPU each is captured once, and one that is nearly
/// full may be filled up. Results of a sample depend neither on the other samples of its call nor on other threads. In
/// float32 on the CPU a convolution, depthwise or without groups, and a dense layer compute the same bits in passes of
/// every size; otherwise passes of two sizes may differ in rounding.
class Predictor {
 public:
  /// `weights` has all parameters and buffers of `graph`, and no other tensors. The runtime must outlive it. Throws
  /// OutOfMemory, DataError naming the file and a tensor that is missing, or that the graph does not have, Error for a
  /// layer that cannot be planned (Layer::supports_meta) and for options below 1.
  Predictor(Runtime& runtime, Device device, const Graph& graph, const SafetensorsFile& weights,
            PredictorOptions options = {});
  ~Predictor();
  Predictor(Predictor&&) noexcept;
  Predictor& operator=(Predictor&&) = delete;

  /// `inputs`: float32 in host memory, (batch, input shape), as the training's batches have them (normalised, NHWC).
  /// `outputs`: (batch, output shape), what the graph's last layer computes. Thread-safe; blocks until it is done.
  /// Throws ShapeError where the lengths do not agree.
  void predict(std::span<const float> inputs, std::span<float> outputs);
  /// For measurements: the passes of a call of `batch` samples, on inputs that lie in a lane's memory on the GPU:
  /// without the copy of the inputs; that of the outputs is part of a pass. Elsewhere nothing runs.
  void run_resident(std::int64_t batch);

  const Shape& input_shape() const;     ///< of a sample
  const Shape& output_shape() const;    ///< of a sample
  std::uint64_t planned_bytes() const;  ///< of weights and arenas on the device

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bantam
BANTAM_API_END
