// NumPy's .npy files as a data set: an array of images and one of labels or targets, of each split.
#include <filesystem>
#include <optional>
#include <utility>

#include "bantam/base/config/config.h"
#include "bantam/base/config/config_path.h"
#include "bantam/data/formats/array_reader.h"
#include "bantam/data/formats/held_out.h"

namespace bantam {
namespace {

OpenArray read_array(ConfigMap& files, ConfigKey key) {
  const auto node = files.find(key);
  if (!node) return {};
  return open_named(find_path(*node));
}

/// The keys of one split's files, in the section itself or in one of its own.
SplitArrays read_files(ConfigMap& files) {
  SplitArrays arrays;
  const ConfigNode images = files.node(
      {"images", "File of the images or rows of numbers, one a sample: images.npy, also compressed (.gz, .xz).",
       "train_images.npy"});
  arrays.images = open_named(find_path(images));
  arrays.labels = read_array(files, {"labels",
                                     "File of the labels: class numbers, or rows of numbers (one-hot, or to be "
                                     "predicted), which losses call targets.",
                                     "train_labels.npy", "no labels"});
  arrays.targets = read_array(
      files, {"targets", "File of numbers to be predicted, of any shape.", "train_targets.npy", "no targets"});
  if (!arrays.labels && !arrays.targets && !files.self().is_described())
    files.self().fail("expected the key 'labels' or 'targets' beside 'images'");
  return arrays;
}

}  // namespace

/// `data: {format: npy}`: train and test, or one set's images, labels and targets and its split; layout, classes.
SampleSplits npy_format(ConfigMap& data) {
  data.describe(
      "NumPy arrays: uint8 and bool images as bytes, all other numbers as float32. Files that are not compressed are "
      "read in place, so that a set may be larger than memory.",
      "data:\n  format: npy\n  train: {images: train_images.npy, labels: train_labels.npy}\n"
      "  test: {images: test_images.npy, labels: test_labels.npy}\n"
      "  pipeline: [shuffle, batch: {size: 32}]");
  const auto train = data.find({"train", "Files of the training samples: images, labels and targets.",
                                "{images: train_images.npy, labels: train_labels.npy}", "the section's own files"});
  std::optional<ConfigNode> test;
  SplitArrays arrays;
  if (train) {
    ConfigMap files = train->as_map();
    arrays = read_files(files);
    files.finish();
    test = data.find({"test", "Files of the held-out samples.", "{images: test_images.npy, labels: test_labels.npy}",
                      "a share of the training samples"});
  }
  if (!train || data.self().is_described()) arrays = read_files(data);
  const double share = read_split_share(data, test.has_value());
  const ArrayOptions options = read_array_options(data);
  auto reader = std::make_shared<const ArrayReader>(std::move(arrays), options, nullptr);
  if (!test) return split_off(std::move(reader), share);
  ConfigMap files = test->as_map();
  auto held_out = std::make_shared<const ArrayReader>(read_files(files), options, reader);
  files.finish();
  return {std::move(reader), std::move(held_out)};
}

}  // namespace bantam
