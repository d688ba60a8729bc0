// Readers of layers that join, weigh or drop inputs.
#include "bantam/models/yaml/kinds.h"
#include "bantam/models/yaml/layer_options.h"

namespace bantam::models {

Kinds join_kinds() { return {}; }

}  // namespace bantam::models
