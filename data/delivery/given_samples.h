// Internal: samples that a program brings itself, in the place of a format's.
#pragma once

#include "bantam/data/delivery/data_config.h"

namespace bantam {

/// As read_data_config, of samples that are there already: `format` may be missing, else it is `program`. `given` has
/// training samples; validation samples may be null where `data.validation` says where they come from. Throws
/// ConfigError, and ShapeError and DTypeError for samples that are neither images nor vectors.
DataOptions read_data_config(const ConfigNode& data, const SampleSplits& given);

}  // namespace bantam
