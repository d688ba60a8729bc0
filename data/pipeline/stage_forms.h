// StageForms: in which of its forms each stage of a pipeline is used, and the sizes that images have on their way.
#pragma once

#include "bantam/data/augment/augmentation.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// The stages of a pipeline in three parts, one after the other.
struct StageForms {
  /// Region forms without chance that leave images of one size: part of reading, so that a cache keeps their results.
  Augmentations reading;
  Augmentations worker;  ///< region and host forms, whenever a batch has the sample
  Augmentations placed;  ///< device forms: windows and mirroring that the kernel image_batch applies
  Shape stored;          ///< the shape of images after reading; (0, 0, channels): files of differing sizes
  Shape gathered;        ///< their shape after the workers' stages, as the kernel reads them; likewise

  /// Whether images have one size where the kernel reads them.
  bool has_one_size() const { return gathered.elements() > 0; }
};

/// Throws ShapeError where images do not suit a stage, and ConfigError for a stage that changes pixels on the host
/// after one that has a device form only.
StageForms stage_forms(const Augmentations& stages, const DatasetFacts& facts);

/// Whether a target has a value a pixel of its image: it moves with the image's pixels.
bool is_pixel_target(const SampleField& target, const Shape& image_shape);

/// Facts of the same samples with images of shape `images`, and pixel targets that follow them; all stored as values
/// where that is one size.
DatasetFacts with_image_shape(DatasetFacts facts, const Shape& images);

}  // namespace bantam
