// Readers of normalisations beside batch_norm.
#include "bantam/models/yaml/kinds.h"
#include "bantam/models/yaml/layer_options.h"

namespace bantam::models {

Kinds norm_kinds() { return {}; }

}  // namespace bantam::models
