// Internal: the weights by which an epoch's samples are drawn.
#pragma once

#include "bantam/data/formats/sample_reader.h"
#include "bantam/data/pipeline/epoch_order.h"

namespace bantam {

/// Throws ConfigError where the samples have no class numbers that could be balanced, or no weights. Reads nothing.
void check_sampling(const SampleReader& reader, const EpochSampling& sampling);

/// Reads all labels where classes are balanced. Empty where each sample comes as often as others. Throws DataError, and
/// ConfigError as check_sampling.
SampleWeights weights_of(const SampleReader& reader, const EpochSampling& sampling, int threads);

}  // namespace bantam
