// An archive of NumPy arrays as a data set, such as Keras's mnist.npz.
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/config/config.h"
#include "bantam/base/config/config_path.h"
#include "bantam/base/error.h"
#include "bantam/data/files/once.h"
#include "bantam/data/files/zip.h"
#include "bantam/data/formats/array_reader.h"
#include "bantam/data/formats/held_out.h"

namespace bantam {
namespace {

/// An archive that is opened when its first array is.
class Archive {
 public:
  explicit Archive(FoundPath path) : path_(std::move(path)) {}
  const ZipFile& zip() {
    opened_.run([this] {
      std::error_code error;
      if (!path_.is_there && !path_.folders.empty() && !std::filesystem::exists(path_.path, error))
        throw DataError(fmt::format("{}: there is no such file{}", path_.path.string(), path_.places()));
      zip_ = std::make_unique<ZipFile>(path_.path);
    });
    return *zip_;
  }

 private:
  FoundPath path_;
  Once opened_;
  std::unique_ptr<ZipFile> zip_;
};

/// Names of the arrays; empty: there is none.
struct ArrayNames {
  std::string images, labels, targets, test_images, test_labels, test_targets;
  bool has_test() const { return !test_images.empty(); }
};

std::string read_array_name(ConfigMap& keys, ConfigKey key) {
  const auto node = keys.find(key);
  return node ? node->as_text() : "";
}

/// Keras's names without the key.
ArrayNames read_names(ConfigMap& data) {
  const auto node = data.find({"keys", "Names of the arrays in the archive.",
                               "{images: x_train, labels: y_train, test_images: x_test, test_labels: y_test}",
                               "Keras's: x_train, y_train, x_test and y_test"});
  if (!node) return {"x_train", "y_train", "", "x_test", "y_test", ""};
  ConfigMap keys = node->as_map();
  ArrayNames names;
  names.images = keys.text({"images", "Images or rows of numbers, one a sample.", "x_train"});
  names.labels = read_array_name(keys, {"labels", "Class numbers, or rows of numbers.", "y_train", "no labels"});
  names.targets = read_array_name(keys, {"targets", "Numbers to be predicted, of any shape.", "t_train", "no targets"});
  names.test_images = read_array_name(
      keys, {"test_images", "Those of the held-out samples.", "x_test", "a share of the training samples"});
  names.test_labels = read_array_name(keys, {"test_labels", "Those of the held-out samples.", "y_test", "no labels"});
  names.test_targets =
      read_array_name(keys, {"test_targets", "Those of the held-out samples.", "t_test", "no targets"});
  keys.finish();
  const bool described = node->is_described();
  if (!described && names.labels.empty() && names.targets.empty())
    node->fail("expected the key 'labels' or 'targets' beside 'images'");
  if (!described && names.has_test() && names.test_labels.empty() == !names.labels.empty())
    node->fail("expected 'test_labels' beside 'test_images' where there are 'labels', and only there");
  if (!described && names.has_test() && names.test_targets.empty() == !names.targets.empty())
    node->fail("expected 'test_targets' beside 'test_images' where there are 'targets', and only there");
  return names;
}

}  // namespace

/// `data: {format: npz}`: path, keys, split, layout, classes.
SampleSplits npz_format(ConfigMap& data) {
  data.describe(
      "An archive of NumPy arrays (numpy.savez, savez_compressed), by default with Keras's names. Arrays that are not "
      "compressed are read in place.",
      "data:\n  format: npz\n  path: data/mnist.npz\n  pipeline: [shuffle, batch: {size: 32}]");
  const FoundPath found = find_path(data.node({"path", "The .npz file.", "data/mnist.npz"}));
  const std::string path = found.path.string();
  const auto archive = std::make_shared<Archive>(found);
  const ArrayNames names = read_names(data);
  const double share = read_split_share(data, names.has_test());
  const ArrayOptions options = read_array_options(data);
  const auto array = [&](const std::string& name) -> OpenArray {
    if (name.empty()) return {};
    return [archive, name] { return archive->zip().open(name + ".npy"); };
  };
  auto train = std::make_shared<const ArrayReader>(
      SplitArrays{array(names.images), array(names.labels), array(names.targets), path}, options, nullptr);
  if (!names.has_test()) return split_off(std::move(train), share);
  auto test = std::make_shared<const ArrayReader>(
      SplitArrays{array(names.test_images), array(names.test_labels), array(names.test_targets), path}, options, train);
  return {std::move(train), std::move(test)};
}

}  // namespace bantam
