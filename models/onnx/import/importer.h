// Importer: walks over a model's nodes and keeps, for each value, where it lies; and what converters of nodes ask of
// it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bantam/models/onnx/import/constants.h"
#include "bantam/models/onnx/import/layer_list.h"
#include "bantam/models/onnx/import/node.h"
#include "bantam/models/onnx/import/view.h"
#include "bantam/models/onnx/onnx_import.h"

namespace bantam::onnx {

/// Products of queries and keys, (…, tokens, size) times (…, size, tokens), which attention alone reads: views with the
/// batch, both (…, tokens, size).
struct Products {
  View queries, keys;
  double factor = 1;  ///< that they are multiplied by
  bool softmax = false;
};

class Importer {
 public:
  Importer(const Model& model, const ImportOptions& options);

  ImportedNetwork network();

  // For converters. Numbers of inputs count from 0; all throw DataError naming the node.

  bool has(const Node& node, std::size_t input) const;
  bool is_constant(const Node& node, std::size_t input) const;
  /// A value that the network computes.
  const View& value(const Node& node, std::size_t input) const;
  /// One that it does not; null where the input is left out.
  const Tensor* constant(const Node& node, std::size_t input) const;
  const Tensor& needed_constant(const Node& node, std::size_t input, std::string_view what) const;
  /// Whether the input is a constant that nodes compute, so that it is no parameter of the network.
  bool is_computed(const Node& node, std::size_t input) const {
    return has(node, input) && constants_.is_computed(node.inputs[input]);
  }
  /// Inputs as constants; null where they are values or left out.
  std::vector<const Tensor*> constants(const Node& node) const;

  /// The layer whose output (h, w, c) is this value (batch, c, h, w). Channels that were shuffled are so by a layer.
  int image(const Node& node, std::size_t input) { return image(node, value(node, input)); }
  int image(const Node& node, const View& view);
  /// An image whose channels are those of groups, interleaved, as the view of a layer that does it; others as they are.
  View unshuffled(const Node& node, const View& view);
  /// The view by a layer whose output has this shape, and the same values in the same order.
  View ordered(const Node& node, View view, const Shape& shape);
  /// The view of a value (batch, n) by a layer whose output is (n), in any order.
  View vector(const Node& node, std::size_t input) { return vector(node, value(node, input)); }
  View vector(const Node& node, const View& view);
  /// The view by a layer whose output's axes are those of the view in this order: by `reshape`, or `permute` where the
  /// values lie otherwise.
  View in_order(const Node& node, const View& view, std::span<const std::size_t> order);
  /// The view by a layer whose output's last axis is this axis of the view: `view` itself, or its axes in their order
  /// with this one last.
  View innermost(const Node& node, const View& view, std::size_t axis);

  LayerList& layers() { return layers_; }
  const LayerList& layers() const { return layers_; }
  /// Appends a layer that comes from the node; its name is the node's unless `name` says another.
  int add(const Node& node, ImportedLayer layer);
  /// The node's first output, the only one that is used, lies so.
  void define(const Node& node, View view);
  /// The node's output of that number lies so.
  void define_output(const Node& node, std::size_t output, View view);
  bool is_used(const std::string& value) const { return uses_.contains(value); }
  /// More than one value is made of the layer's output: it must stay as it is.
  void share(int layer) { shared_.insert(layer); }
  void define_constant(const Node& node, Tensor tensor);
  /// The node's output is an image that the layer makes.
  void define_image(const Node& node, int layer) { define(node, image_view(layer, layers_.shape(layer))); }

  /// Whether nothing but the value that is converted reads the layer, so that the layer may be changed.
  bool is_exclusive(int layer) const;
  /// `constant`, broadcast to the view, as one value for each of the last axis of the layer's output; nothing where it
  /// differs along others.
  std::optional<std::vector<float>> channel_values(const Node& node, const View& view, const Tensor& constant) const;

  /// A sequence's elements.
  void define_sequence(const Node& node, std::vector<View> views);
  const std::vector<View>* sequence(const std::string& value) const;

  /// Values whose batch is not their first axis alone are views with the batch.

  /// The number of samples in them.
  std::int64_t samples() const { return batch_.value_or(kOpenBatch); }
  /// The node's input as such a view, wherever its batch is.
  View with_batch(const Node& node, std::size_t input) const;
  /// Null where the input's batch is its first axis, or where it is none.
  const View* moved(const Node& node, std::size_t input) const;
  /// The node's output of that number is `view`, a view with the batch.
  void define_moved(const Node& node, std::size_t output, View view);

  /// Null where the input is none.
  const Products* products(const Node& node, std::size_t input) const;
  void define_products(const Node& node, Products products);

  std::int64_t opset() const { return model_.opset; }
  /// The batch's number where the model has one.
  std::optional<std::int64_t> batch() const { return batch_; }
  /// Once, whatever says it.
  void note(std::string text);
  bool is_output(const std::string& value) const { return value == output_; }

 private:
  Shape input_shape();
  bool has_channels_last() const;
  void define_input();
  void find_needed(const std::vector<Node>& nodes);
  void convert_all();
  void convert(const Node& node);
  int output_layer();
  void leave_out_classifier(int layer);

  const Model& model_;
  ImportOptions options_;
  Constants constants_;
  Value input_;
  std::vector<int> input_axes_;  // of the layer's input shape, by axis of the model's input
  std::optional<std::int64_t> batch_;
  std::string output_;
  std::vector<Node> nodes_;  // those that the output needs
  LayerList layers_;
  std::int64_t layer_elements_ = 0;  // of the tensors of all that were added
  std::map<std::string, View> values_;
  std::map<std::pair<int, std::int64_t>, int> shuffles_;  // by layer and groups
  std::map<std::string, std::vector<View>> sequences_;
  std::map<std::string, View> moved_;
  std::map<std::string, Products> products_;
  std::map<std::string, int> uses_;  // of values, by needed nodes and the output
  std::set<int> shared_;             // layers that several values or readers have
  std::vector<std::string> notes_;
};

/// By an op's name: what adds its layers.
using Converter = void (*)(Importer& importer, const Node& node);
using Converters = std::span<const std::pair<std::string_view, Converter>>;
Converters convolution_converters();  ///< Conv, ConvTranspose, Gemm, MatMul
Converters norm_converters();
Converters pool_converters();
Converters activation_converters();
Converters arithmetic_converters();
Converters image_converters();  ///< Pad, Resize, DepthToSpace, Concat
Converters part_converters();   ///< Slice, Split, Gather and their like
Converters view_converters();   ///< Flatten, Reshape, Transpose, Shape, what changes nothing
Converters attention_converters();
/// Converters of nodes that read products, or a value whose batch is not its first axis, where these differ from the
/// others.
Converters moved_converters();

/// The values from `begin` to before `end` of an axis of a view (without the batch's), every `step`-th: crop, slice or
/// channel_slice, or the view itself where that is all.
View cut(Importer& importer, const Node& node, View view, std::size_t axis, std::int64_t begin, std::int64_t end,
         std::int64_t step = 1);
/// Sizes of the parts of an axis of `extent` values that a Split has: given one by one, or their number, of which the
/// last one may be smaller.
std::vector<std::int64_t> split_sizes(Importer& importer, const Node& node, std::int64_t extent);
/// The view times the constant matrix of a MatMul or a Gemm, over its last axis, and with the bias: a dense layer or,
/// of an image, a convolution of 1 x 1.
View matrix_product(Importer& importer, const Node& node, const View& view);
/// The sum, difference, product or quotient that the node computes of the view and its input of that number, a
/// constant.
View with_constant(Importer& importer, const Node& node, View view, std::size_t constant);
/// The view repeated along its axes of one value so that it has these extents.
View broadcast(Importer& importer, const Node& node, const View& view, std::span<const std::int64_t> extents);

/// "3" of {3, 3}, "[3, 5]" of others.
std::string pair_text(std::int64_t a, std::int64_t b);

}  // namespace bantam::onnx
