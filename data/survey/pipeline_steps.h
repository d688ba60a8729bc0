// A pipeline, stage by stage, with the sizes that images have on their way.
#pragma once

#include <string>
#include <vector>

#include "bantam/data/pipeline/pipeline.h"

namespace bantam {

/// One stage that changes samples.
struct PipelineStep {
  std::string name;
  ImageSize size = {};            ///< the size of images after it; 0: not one size yet
  std::int64_t shorter_side = 0;  ///< where they have not one size, but one shorter side: its pixels; else 0
  bool chance = false;            ///< whether random numbers matter
};

/// The augmentations in their order, the normalisation where it changes anything, and what mixes finished batches.
std::vector<PipelineStep> pipeline_steps(const PipelineOptions& options, const DatasetFacts& facts);

}  // namespace bantam
