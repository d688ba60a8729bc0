// Dataset: a whole split in host memory (`cache: ram`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bantam/data/formats/sample_reader.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam {

/// Images (size, height, width, channels) or (size, features), uint8 or float32, and the targets, each (size, …), in
/// memory of the runtime's CPU allocator (category input). A value: copies share the memory. Once filled it does not
/// change, and any number of threads may read it.
class Dataset {
 public:
  /// Allocates memory for `facts`, to be filled through `field_out`. Throws OutOfMemory, and as check_facts.
  Dataset(Runtime& runtime, DatasetFacts facts);
  /// A stand-in with no data, for meta devices.
  explicit Dataset(DatasetFacts facts);
  /// The same with the allocations of the real data set: on the meta CPU the bytes of all data (in the whole device's
  /// pool, not in a share's), on a meta GPU none.
  static std::shared_ptr<const Dataset> stand_in(Runtime& runtime, DatasetFacts facts, Device device);

  bool has_data() const { return !fields_.empty(); }
  const DatasetFacts& facts() const { return facts_; }
  std::int64_t size() const { return facts_.size; }
  const Shape& image_shape() const { return facts_.image_shape; }
  std::int64_t classes() const { return static_cast<std::int64_t>(facts_.class_names.size()); }
  const std::vector<std::string>& class_names() const { return facts_.class_names; }

  /// All of field `field`, sample after sample: 0 the images, then the targets. Empty without data.
  std::span<const std::byte> field(std::size_t field) const;
  /// All images, NHWC; empty without data. Throws DTypeError where they are not uint8.
  std::span<const std::uint8_t> images() const;
  /// The first target as class numbers; empty without data. Throws DTypeError where it is not int32.
  std::span<const std::int32_t> labels() const;

  /// For whoever fills the set, before it is shared.
  std::span<std::byte> field_out(std::size_t field);
  std::span<std::uint8_t> images_out();
  std::span<std::int32_t> labels_out();

 private:
  DatasetFacts facts_;
  std::vector<Tensor> fields_;    // images, then targets
  std::vector<Tensor> reserved_;  // a stand-in's memory
};

/// Called while a split is read, by one thread at a time: how many samples are. What it throws ends the reading.
using OnSamplesRead = std::function<void(std::int64_t read, std::int64_t samples)>;

/// Reads all samples once, in parallel. Throws DataError, OutOfMemory.
std::shared_ptr<const Dataset> read_dataset(Runtime& runtime, const SampleReader& reader,
                                            const OnSamplesRead& on_read = {});

/// A reader of samples that lie in memory already.
std::shared_ptr<const SampleReader> reader_of(std::shared_ptr<const Dataset> dataset);

}  // namespace bantam
