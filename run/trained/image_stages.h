// ImageStages: how a configuration makes a model's input of image files.
#pragma once

#include "bantam/data/delivery/data_config.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/data/pipeline/pipeline.h"
#include "bantam/run/config/run_config.h"

namespace bantam::run {

struct ImageStages {
  PipelineOptions pipeline;  ///< of evaluation, without mixing, each file read when its batch is made
  std::int64_t channels = 3;
  ImageValues values = {};  ///< what files are decoded to beside their channels
  /// The one size of a data set's images (CIFAR's, say): files of another are resized to it first. 0 × 0: there is
  /// none, and the stages bring files of any size to the model's.
  ImageSize size = {};
};

/// From `data.pipeline` and `data.evaluation`; the data themselves are not looked for. `classes`: of the labels. Throws
/// ConfigError where there are none, where the model does not read images, and where their sizes do not agree.
ImageStages image_stages(const RunConfig& config, std::int64_t classes);

/// The stages of evaluation for samples that are numbers, of these facts. Throws ConfigError where they do not make the
/// model's input of them.
PipelineOptions sample_stages(const RunConfig& config, const DatasetFacts& facts);

}  // namespace bantam::run
