// Internal: ArrayReader: a split that is arrays, of NumPy's files or of an archive's members.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bantam/data/files/npy_array.h"
#include "bantam/data/files/once.h"
#include "bantam/data/formats/sample_reader.h"

namespace bantam {

/// Opens the file of an array; empty: the split has no such array.
using OpenArray = std::function<std::unique_ptr<FileBytes>()>;

/// The arrays of a split. Each has a row a sample.
struct SplitArrays {
  OpenArray images;          ///< (n, height, width, channels), (n, height, width) or (n, features)
  OpenArray labels;          ///< class numbers (n), (n, 1) or (n, height, width); other ones are read as targets
  OpenArray targets;         ///< numbers of any shape
  std::string archive = {};  ///< the file that holds them all; empty: each is a file
};

struct ArrayOptions {
  bool channels_first = false;       ///< images are (n, channels, height, width)
  std::vector<std::string> classes;  ///< names of the labels 0, 1, …; none: numbers to the training samples' greatest
};

/// uint8 and bool images are bytes, all others float32. Labels of whole numbers become the int32 field "labels"; those
/// of floating point, and `targets`, the float32 field "targets". NaN and infinities are refused, by the row in the
/// file, when a sample is read. Files are opened when they are first needed, and read in place where they are not
/// compressed.
class ArrayReader : public SampleReader {
 public:
  /// `training`: the reader whose class names this one has; null: it is the training samples'.
  ArrayReader(SplitArrays arrays, ArrayOptions options, std::shared_ptr<const ArrayReader> training);

  DatasetFacts facts() const override;
  void check(bool verify, int threads) const override;
  void read(std::int64_t index, std::span<const std::span<std::byte>> fields) const override;
  void read_targets(std::int64_t index, std::span<const std::span<std::byte>> targets) const override;
  std::string name_of(std::int64_t index) const override;
  std::vector<std::string> files_of(std::int64_t index) const override;
  std::uint64_t resident_bytes() const override;

 private:
  void open() const;
  void open_images() const;
  void open_labels() const;
  void open_targets() const;
  std::vector<std::string> class_names() const;
  std::int64_t greatest_label() const;
  void read_image(std::int64_t index, std::span<std::byte> image) const;
  void read_labels(std::int64_t index, std::span<std::byte> labels) const;

  SplitArrays arrays_;
  ArrayOptions options_;
  std::shared_ptr<const ArrayReader> training_;
  mutable Once opened_;
  mutable std::optional<NpyArray> images_, labels_, targets_;
  mutable DatasetFacts facts_;
};

/// The keys `layout` and `classes`.
ArrayOptions read_array_options(ConfigMap& data);

/// The share that is split off: the key `split`, which is refused where samples are `held_out` already.
double read_split_share(ConfigMap& data, bool held_out);

}  // namespace bantam
