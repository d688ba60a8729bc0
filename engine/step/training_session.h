// TrainingSession: a model on a device with its optimizer and step, made in the one right order.
#pragma once

#include <utility>

#include "bantam/engine/model/model.h"
#include "bantam/engine/optimizers/optimizer.h"
#include "bantam/engine/step/training_step.h"

namespace bantam {

struct SessionOptions {
  ModelOptions model;
  OptimizerOptions optimizer;
  LossOptions loss;
  ReplicaOptions replicas = {};
};

/// Owns what a training step works on; the runtime must outlive it. Making it allocates the model's parameters, then
/// the optimizer's moments, then the step's metrics: plans count on that order. Not to be moved: the parts refer to
/// each other.
class TrainingSession {
 public:
  /// Throws what making a Model, an Optimizer and a TrainingStep throws.
  TrainingSession(Runtime& runtime, Device device, Graph graph, const SessionOptions& options)
      : model_(runtime, device, std::move(graph), options.model),
        optimizer_(model_, options.optimizer),
        step_(model_, optimizer_, options.loss, options.replicas) {}
  TrainingSession(const TrainingSession&) = delete;
  TrainingSession& operator=(const TrainingSession&) = delete;

  Model& model() { return model_; }
  const Model& model() const { return model_; }
  Optimizer& optimizer() { return optimizer_; }
  const Optimizer& optimizer() const { return optimizer_; }
  TrainingStep& step() { return step_; }

 private:
  Model model_;
  Optimizer optimizer_;
  TrainingStep step_;
};

}  // namespace bantam
