// Internal: ArrayReader: a split that is arrays, of NumPy's files or of an archive's members.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bantam/base/config/config_path.h"
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

/// The form in which an array stores labels.
enum class LabelForm : std::uint8_t {
  automatic,  ///< by type and shape: class numbers where they are integers, one a sample or a pixel, else values
  classes,    ///< class numbers, of any type
  one_hot,    ///< rows of zeros with a one at the class
  values      ///< numbers, or the presence of a class each
};

struct ArrayOptions {
  bool channels_first = false;       ///< images are (n, channels, height, width)
  std::vector<std::string> classes;  ///< of first_label and those after it; none: numbers to the training's greatest
  LabelForm form = LabelForm::automatic;
  std::int64_t first_label = 0;  ///< the number that the first class has in the array
};

/// uint8 and bool images are bytes, all others float32. Labels that are classes (LabelForm) become the int32 field
/// "labels", from 0 on; others, and `targets`, the float32 field "targets". NaN and infinities are refused, by the row
/// in the file, when a sample is read. Files are opened when they are first needed, and read in place where they are
/// not compressed.
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
  /// Reads another set's arrays like these: where that set names no classes, it has those of these samples.
  std::shared_ptr<const SampleReader> read_alike(std::shared_ptr<const SampleReader> other) const override;

 private:
  std::vector<SampleField> fields() const override;
  void open() const;
  bool has_classes() const;
  std::int64_t label_of(std::int64_t row) const;
  void open_images() const;
  void open_labels() const;
  void open_targets() const;
  std::vector<std::string> class_names() const;
  std::int64_t greatest_label() const;
  std::vector<std::string> names_of_texts() const;
  void check_label(std::int64_t index, std::int64_t label, std::int64_t most) const;
  void read_image(std::int64_t index, std::span<std::byte> image) const;
  void read_labels(std::int64_t index, std::span<std::byte> labels) const;

  SplitArrays arrays_;
  ArrayOptions options_;
  std::shared_ptr<const ArrayReader> training_;
  mutable Once opened_;
  mutable std::optional<NpyArray> images_, labels_, targets_;
  mutable DatasetFacts facts_;
  mutable std::unordered_map<std::string, std::int64_t> numbers_;  // of class names, where labels are text
};

/// Opens a file that a configuration names; where it is not there, the DataError says where it was looked for.
OpenArray open_named(FoundPath file);

/// The keys `layout`, `classes`, `label_form` and `first_label`.
ArrayOptions read_array_options(ConfigMap& data);

/// The share that is split off: the key `split`, which is refused where samples are `held_out` already.
double read_split_share(ConfigMap& data, bool held_out);

}  // namespace bantam
