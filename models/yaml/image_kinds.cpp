// Readers of layers that change height and width.
#include "bantam/models/yaml/kinds.h"
#include "bantam/models/yaml/layer_options.h"

namespace bantam::models {

Kinds image_kinds() { return {}; }

}  // namespace bantam::models
