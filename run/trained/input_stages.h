// InputStages: what an image passes before it is a network's input, as those need to know who use the network
// elsewhere.
#pragma once

#include <string>
#include <vector>

#include "bantam/base/json.h"
#include "bantam/data/delivery/data_config.h"
#include "bantam/data/pipeline/pipeline.h"
#include "bantam/data/survey/pipeline_steps.h"
#include "bantam/run/config/run_config.h"
#include "bantam/run/trained/predicted_table.h"

namespace bantam::run {

struct InputStages {
  /// How an image file becomes pixels: upright, as EXIF and XMP say, with these channels and values. The first step.
  bool decodes = false;
  std::int64_t channels = 3;
  ImageValues values = {};
  std::vector<PipelineStep> steps;  ///< of evaluation, in their order; sizes are those of image files' images
  NormalizeOptions normalize;       ///< the options of the step `normalize`, if there is one
  RowInput row = {};                ///< of models that read rows of a table; then there are no other steps

  bool empty() const { return !decodes && row.features.empty(); }
};

/// Reads the stages in `data.pipeline` and `data.evaluation`; the data are not needed. Empty where the configuration
/// does not say how image files become the model's input. `classes`: of the labels.
InputStages input_stages(const RunConfig& config, std::int64_t classes);

/// "decode (RGB, upright), resize (shorter side 73), center_crop (64 x 64), normalize (scale 0.5, mean 0.1, 0.2, 0.3,
/// std 1)". Sizes are width x height.
std::string to_text(const InputStages& stages);
/// [{"stage": "decode", "channels": 3, "exif": true}, {"stage": "resize", "shorter_side": 73}, {"stage": "center_crop",
/// "height": 64, "width": 64}, {"stage": "normalize", "scale": 0.5, "mean": [0.1, 0.2, 0.3], "std": [1.0]}]. "decode"
/// has "background": [255, 255, 255] and "range": "stored" where the configuration has such keys. Of rows [{"stage":
/// "columns", "names": ["a", "b"], "missing": [1.5, 2]}, {"stage": "standardize", "mean": [1.5, 2], "std": [0.5, 3]}].
nlohmann::ordered_json to_json(const InputStages& stages);

}  // namespace bantam::run
