// A few samples of a split for people to look at.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// At most `count` samples but those in `without`, ascending: where each sample has one class, as many of every class
/// as of the others, as far as there are so many; within a class, and where samples have no class of their own, spread
/// evenly. Reads the targets of at most 4,096 samples; those that cannot be read are left out.
std::vector<std::int32_t> spread_samples(const SampleReader& reader, std::int64_t count,
                                         std::span<const std::int64_t> without = {});

}  // namespace bantam
