// WeightWatch: histograms of a model's weights and gradients at some updates, computed beside the training.
#pragma once

#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "bantam/engine/model/model.h"
#include "bantam/run/log/histogram.h"

namespace bantam::run {

/// A parameter at an update.
struct TensorHistogram {
  std::string tensor;  ///< the parameter's name
  bool of_gradient = false;
  Histogram histogram;
};

/// Histograms of all parameters after one update: the weights, then the gradients of those that train, in model order.
struct WatchedUpdate {
  std::int64_t update = 0;  ///< from 1, over all epochs
  std::vector<TensorHistogram> histograms;
};

/// Copies weights and gradients to host memory of its own and computes the histograms in a thread of its own: the model
/// is only read, so that training has the same bits, and the device's memory is as planned. Gradients are those that
/// the update read, before clipping, without the loss scale. Used by the thread that trains.
class WeightWatch {
 public:
  /// The memory is reserved: page-locked for a model on a CUDA device. Throws OutOfMemory.
  explicit WeightWatch(Model& model);
  ~WeightWatch();
  WeightWatch(const WeightWatch&) = delete;
  WeightWatch& operator=(const WeightWatch&) = delete;

  /// Between two updates, after `update`: copies, in order of the model's stream. Requires that no histograms are being
  /// computed; an update whose loss scale nobody set is dropped.
  void copy(std::int64_t update);
  /// The update that was copied last and is not collected; nothing: there is none.
  std::optional<std::int64_t> copied() const { return update_; }
  /// Sets the factor that the loss of that update was multiplied by: the histograms can be computed now.
  void set_loss_scale(float loss_scale);
  /// The histograms where they are complete; with `wait`, once they are. Nothing where nothing was copied.
  std::optional<WatchedUpdate> collect(bool wait);

 private:
  void begin();

  Model& model_;
  Tensor host_;  // weights, in float32 and where they are stored so in 16 bits, then gradients
  Event copied_;
  std::optional<std::int64_t> update_;
  std::optional<float> loss_scale_;
  std::future<WatchedUpdate> computed_;  // last: its thread reads host_
};

}  // namespace bantam::run
