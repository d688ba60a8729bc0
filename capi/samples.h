// Internal: samples that the caller has in arrays, or makes in a callback, as a SampleReader.
#pragma once

#include <memory>

#include "bantam/bantam_c.h"
#include "bantam/capi/arrays.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam::capi {

/// Reads `samples`, whose `release` is called when the reader is gone, and also where this throws. Labels get the class
/// names of `training` where there is one, else the struct's, else numbers up to the greatest label. Throws
/// BadArgument, and DataError for a label that is no class.
std::shared_ptr<const SampleReader> samples_reader(const bantam_samples& samples,
                                                   const SampleReader* training = nullptr);

/// The images of an array alone, each with a label 0 of `classes`, which are named by their numbers, in the caller's
/// memory, which must outlive the reader.
std::shared_ptr<const SampleReader> images_reader(const HostArray& images, std::int64_t classes);

}  // namespace bantam::capi
