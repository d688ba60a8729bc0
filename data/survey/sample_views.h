// Samples as the network sees them: batches of a pipeline, turned back into pictures.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bantam/data/images/image.h"
#include "bantam/data/pipeline/pipeline.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam {

/// One sample of one epoch.
struct SampleView {
  Image image;         ///< 1, 3 or 4 channels; of more or two the first alone. Empty where samples are vectors
  Image mask;          ///< colours of a class a pixel; empty without such a target
  std::string target;  ///< the other targets in words: "cat", "0.7 cat, 0.3 dog", "0.12, 3.4"
};

/// A colour a class, of a class number a pixel, row by row.
Image class_picture(ImageSize size, std::span<const std::int32_t> labels);

/// All samples of `reader`, a few, in their order, in `epochs` epochs (the outer list), as `pipeline` makes them but
/// unshuffled and in one batch. The normalisation is undone: pixels are shown between 0 and 255; of float32 images
/// between the least and the largest value of the batch. Made on the CPU.
std::vector<std::vector<SampleView>> sample_views(Runtime& runtime, std::shared_ptr<const SampleReader> reader,
                                                  PipelineOptions pipeline, std::uint64_t seed, std::int64_t epochs);

}  // namespace bantam
