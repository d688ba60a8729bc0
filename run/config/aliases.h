// Names that PyTorch, Keras and Lightning have for precisions, losses, metrics and optimizers.
#pragma once

#include <string>

#include "bantam/base/config/config.h"

namespace bantam::run {

/// Replaces them in a configuration by the names of this program, which are then saved with the run.
void replace_foreign_names(const ConfigDocument& document);

/// The same of one precision, as a flag says it: "mixed_float16" of "16-mixed"; other texts are returned as they are.
std::string precision_name(const std::string& text);

}  // namespace bantam::run
