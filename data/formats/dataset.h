// Dataset: one split of labelled images in host memory. Readers of formats make it; loaders read it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bantam/base/shape.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam {

/// What is known of a split before anything is read.
struct DatasetFacts {
  std::int64_t size = 0;                 ///< images
  Shape image_shape;                     ///< (height, width, channels)
  std::vector<std::string> class_names;  ///< one a class; labels are indices into it
};

/// Images (size, height, width, channels) uint8 and labels (size) int32, in memory of the runtime's CPU allocator
/// (category input). A value: copies share the memory. Once filled it does not change, and any number of threads may
/// read it.
class Dataset {
 public:
  /// Takes memory for `facts`, to be filled through `images_out` and `labels_out`. Throws OutOfMemory, and DataError
  /// for more than 2^31 - 1 images.
  Dataset(Runtime& runtime, DatasetFacts facts);
  /// A stand-in with no data, for meta devices.
  explicit Dataset(DatasetFacts facts);
  /// The same, which takes as much of the meta device's memory as the data would of its target's: of the CPU's, where
  /// data lie, all (of the whole device's, not of a share); of a GPU's nothing.
  static std::shared_ptr<const Dataset> stand_in(Runtime& runtime, DatasetFacts facts, Device device);

  bool has_data() const { return images_.defined(); }
  const DatasetFacts& facts() const { return facts_; }
  std::int64_t size() const { return facts_.size; }
  const Shape& image_shape() const { return facts_.image_shape; }
  std::int64_t classes() const { return static_cast<std::int64_t>(facts_.class_names.size()); }
  const std::vector<std::string>& class_names() const { return facts_.class_names; }

  /// All images, NHWC; empty without data.
  std::span<const std::uint8_t> images() const;
  /// All labels; empty without data.
  std::span<const std::int32_t> labels() const;
  /// For readers of formats only, before the set is shared.
  std::span<std::uint8_t> images_out() { return {images_.as<std::uint8_t>(), images_.bytes()}; }
  std::span<std::int32_t> labels_out() { return {labels_.as<std::int32_t>(), static_cast<std::size_t>(size())}; }

 private:
  DatasetFacts facts_;
  Tensor images_;
  Tensor labels_;
  std::vector<Tensor> reserved_;  // a stand-in's memory
};

/// The splits of a data set: what is trained on, and what is held out.
struct DatasetSplits {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> test;
};

}  // namespace bantam
