// The built-in losses, and the table of losses that a configuration may name.
#pragma once

#include "bantam/base/config/config_registry.h"
#include "bantam/engine/layers/loss.h"

namespace bantam {

struct SoftmaxCrossEntropyLoss {
  float label_smoothing = 0.0f;  ///< in [0, 1): the share of a target that is spread over all classes
};

/// Of outputs (classes), against class numbers kLabels. Supports meta devices; joins fused heads. Throws ConfigError
/// for a smoothing outside [0, 1).
LossPtr softmax_cross_entropy(SoftmaxCrossEntropyLoss options = {});

/// Built-in: softmax_cross_entropy. Register before the first configuration is read:
///
///     losses().add("mean_squared_error", [](ConfigMap&) { return std::make_shared<MeanSquaredError>(); });
Registry<Reader<LossPtr>>& losses();

/// `loss: NAME`, whose options then stand beside it in `section`, or `loss: {NAME: {options}}`; softmax_cross_entropy
/// where the key is missing. Throws ConfigError.
LossPtr read_loss(ConfigMap& section);

}  // namespace bantam
