// SampleReader: one split of a data set, read sample by sample. Each format implements it; so can any program, which
// registers it where `data.format` is to name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bantam/base/config/config.h"
#include "bantam/base/config/registry.h"
#include "bantam/base/dtype.h"
#include "bantam/base/shape.h"

namespace bantam {

/// One field of every sample.
struct SampleField {
  std::string name;  ///< of the batch's tensor
  Shape shape;       ///< of one sample, without the batch axis; rank 0: one value
  DType dtype = DType::int32;

  std::size_t bytes() const { return static_cast<std::size_t>(shape.elements()) * size_of(dtype); }
  bool operator==(const SampleField&) const = default;
};

/// What is known of a split before anything is read.
struct DatasetFacts {
  std::int64_t size = 0;                 ///< samples, at most 2^31 - 1
  Shape image_shape;                     ///< (height, width, channels) of the field "images", uint8
  std::vector<std::string> class_names;  ///< of the numbers in "labels", where that is a target of class numbers
  /// All fields but the images, which batches get as they are stored: class numbers, vectors, masks, …
  std::vector<SampleField> targets = {{"labels", {}, DType::int32}};

  /// The images, then the targets.
  std::vector<SampleField> fields() const;
  /// Bytes of one sample's fields.
  std::uint64_t sample_bytes() const;
  /// Whether the only target is one int32 a sample, as the device's own gather of batches (`cache: device`) needs it.
  bool has_int32_target() const;
};

/// Throws ShapeError for images that are not (height, width, channels) and DataError for more samples than 32-bit
/// numbers name, and for two fields of one name.
void check_facts(const DatasetFacts& facts);

/// One split of a data set. `check` and `read` may be called from any thread, several at once.
class SampleReader {
 public:
  virtual ~SampleReader() = default;
  /// Size, fields and class names. Opens no file, so that a run can be planned without its data.
  virtual DatasetFacts facts() const = 0;
  /// Called before the first `read`, and not for plans: checks that files are there and have the right size; with
  /// `verify` also their contents, where checksums are published. Throws DataError.
  virtual void check(bool verify, int threads) const {
    (void)verify;
    (void)threads;
  }
  /// Writes sample `index` of [0, size) into the caller's buffers, one a field in the order of `facts().fields()`, each
  /// of exactly that field's bytes: an image as rows of pixels of interleaved channels. May be slow (decoding); returns
  /// the same bytes at every call. Throws DataError that names file and sample.
  virtual void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const = 0;
};

/// The splits of a data set: training and validation.
struct SampleSplits {
  std::shared_ptr<const SampleReader> train;
  std::shared_ptr<const SampleReader> validation;
};

/// The first `samples` of a reader (all, where it has no more).
std::shared_ptr<const SampleReader> first_samples(std::shared_ptr<const SampleReader> reader, std::int64_t samples);

/// Samples `chosen` of a reader, in that order; sample i of the result is sample chosen[i].
std::shared_ptr<const SampleReader> chosen_samples(std::shared_ptr<const SampleReader> reader,
                                                   std::vector<std::int32_t> chosen);

/// Reads a format's own keys of `data:` and returns readers of both splits; opens no file. Keys of all formats
/// (`limit`, `verify`, `pipeline`) are read by the caller, who also refuses the keys that nobody asked for.
using SampleFormat = std::function<SampleSplits(ConfigMap& data)>;

/// The table. The built-in formats are those that data/CMakeLists.txt lists. A program adds one before it reads a
/// configuration that names it:
///
///     sample_formats().add("my_format", [](ConfigMap& data) { return open_mine(data.text("path")); });
Registry<SampleFormat>& sample_formats();

}  // namespace bantam
