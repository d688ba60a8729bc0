// The options of any batch norm. Layer::options has none of a frozen one, so that no pattern of norms over the batch
// fits it.
#pragma once

#include "bantam/engine/layers/layers.h"

namespace bantam {

/// Returns the options of a batch norm, frozen or not; null for other layers.
const BatchNormOptions* batch_norm_options(const Layer& layer);

/// A batch norm whose statistics are those of all ranks' micro-batches, where a step exchanges them
/// (ops::sync_batch_norm); else as batch_norm. No fusion includes it.
LayerPtr synchronised_batch_norm(BatchNormOptions options);
/// Whether it is one.
bool is_synchronised(const Layer& layer);

}  // namespace bantam
