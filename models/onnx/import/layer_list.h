// LayerList: the layers of a network that is imported, in the order in which a configuration lists them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/base/shape.h"
#include "bantam/engine/train/safetensors.h"
#include "bantam/models/onnx/import/view.h"

namespace bantam::onnx {

/// One entry of `layers:`, with its weights.
struct ImportedLayer {
  std::string kind;
  std::vector<std::pair<std::string, std::string>> options = {};  ///< values in YAML's flow style
  std::vector<int> inputs = {};                                   ///< places in the list, or kInput
  std::map<std::string, HostTensor> tensors = {};                 ///< by the layer's own names: "weight"
  std::string name = {};                                          ///< that it shall have; empty: any
  std::string node = {};                                          ///< that it comes from, for messages
  Shape output = {};
  bool removed = false;
  LayerPtr read = {};  ///< of the options as they were checked; null where they have changed since

  const std::string* option(std::string_view key) const;
  void set(std::string_view key, std::string value);
  void erase(std::string_view key);
  /// "conv2d: {filters: 8, kernel: 3}", or the kind alone.
  std::string text(std::span<const std::pair<std::string, std::string>> more = {}) const;
};

class LayerList {
 public:
  explicit LayerList(const Shape& input) : input_(input) {}

  /// Appends the layer and returns its place. Throws DataError where it does not fit its inputs.
  int add(ImportedLayer layer);
  /// Reads the layer's options once more, which were changed.
  void check(int layer);

  ImportedLayer& operator[](int layer) { return layers_[static_cast<std::size_t>(layer)]; }
  const ImportedLayer& operator[](int layer) const { return layers_[static_cast<std::size_t>(layer)]; }
  const Shape& shape(int layer) const { return layer == kInput ? input_ : (*this)[layer].output; }
  int size() const { return static_cast<int>(layers_.size()); }
  /// How many layers read each, once for each input; before `simplify` also those that nothing needs.
  std::vector<int> readers() const;

  /// Removes what `output` does not need, writes activations as options of the layers before them, and
  /// squeeze-and-excitation as one layer. `output` is then the last layer.
  void simplify(int output);
  /// The layers that are left, with unique names where they need one. Throws DataError where tensors do not have the
  /// shapes that the layers declare.
  void finish();

 private:
  void remove_unused(int output);
  void merge_activations();
  void merge_squeeze_excite(int layer, const std::vector<int>& readers);
  void compact();
  void name_all();
  void check_tensors(int layer) const;

  Shape input_;
  std::vector<ImportedLayer> layers_;
};

/// Names and shapes of what the layer declares: "weight", "running_mean".
std::map<std::string, Shape> declared_tensors(const ImportedLayer& layer, std::span<const Shape> inputs);

/// The value of `model.layers`, an entry a line, of a list that is finished.
std::string layers_text(const LayerList& layers);

/// A layer's name of the path that an exporter wrote: "/layer1/layer1.0/conv1/Conv" is "layer1.0.conv1". Empty where it
/// has no letters. At most 90 characters, all of which a name may have.
std::string name_of_path(std::string_view path, std::string_view op);

}  // namespace bantam::onnx
