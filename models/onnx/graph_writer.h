// GraphWriter: the ONNX model of a graph while its layers are written one after the other. Knows where values lie, and
// in which order of axes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/engine/train/safetensors.h"
#include "bantam/models/onnx/onnx_export.h"
#include "bantam/models/onnx/onnx_model.h"

namespace bantam::onnx {

/// ONNX' operators of images read (batch, channels, height, width); our layers (batch, height, width, channels).
enum class Order : std::uint8_t { channels_last, channels_first };

/// A layer's output: the ONNX value, or two where both orders are there. Images of rank 3 may have channels first.
struct LayerValue {
  Shape shape;        ///< ours, without the batch axis
  std::string last;   ///< name of the value in our order; empty: there is none
  std::string first;  ///< name with channels first
  /// (H, W, C) of a flattened image, whose values stand in the order (C, H, W) in `first`.
  Shape image = {};

  Order order() const { return first.empty() ? Order::channels_last : Order::channels_first; }
  const std::string& in(Order order) const { return order == Order::channels_first ? first : last; }
  /// Another value of the same shape and order.
  LayerValue as(Order order, std::string name) const;
};

class GraphWriter {
 public:
  /// `weights` must outlive it.
  GraphWriter(const SafetensorsFile& weights, const ExportOptions& options) : weights_(weights), options_(options) {}

  /// Begins a layer: the nodes written from now on belong to it, and their names begin with its name.
  void begin(std::string layer);
  /// The value that the layer's last node writes gets the layer's name, unless it is one that the layer passes on.
  void end(LayerValue& value);
  const std::string& layer() const { return layer_; }
  const ExportOptions& options() const { return options_; }

  /// Adds the graph's input, as the options say.
  LayerValue input(const Shape& shape);
  /// Adds the graph's output and returns the model.
  Model finish(LayerValue& output);

  /// Adds a node and returns the name of its output.
  std::string add(std::string_view op, std::vector<std::string> inputs,
                  std::map<std::string, Attribute> attributes = {});

  /// Adds a Split of the last axis into parts of these extents, and returns their names.
  std::vector<std::string> split(const std::string& x, std::initializer_list<std::int64_t> extents);

  /// The value's name in an order; adds a Transpose where it is not there.
  const std::string& channels_last(LayerValue& value);
  const std::string& channels_first(LayerValue& value);
  /// The order in which all of them can be read with the fewest Transposes; they are in it then.
  Order common_order(std::span<LayerValue* const> values);

  /// Constants; the names of the first two begin with the layer's. `values` of the type that the graph computes in.
  std::string constant(std::string_view name, std::vector<std::int64_t> dims, std::span<const float> values);
  std::string float32(std::string_view name, std::vector<std::int64_t> dims, std::span<const float> values);
  std::string integers(std::string_view name, std::span<const std::int64_t> values);
  std::string integers(std::string_view name, std::initializer_list<std::int64_t> values) {
    return integers(name, std::span(values.begin(), values.size()));
  }
  std::string scalar(float value) { return constant("value", {}, std::span(&value, 1)); }

  /// The layer's tensor of that short name ("weight"). Throws DataError where it is missing or has another shape.
  std::vector<float> weight(std::string_view name, const Shape& shape) const;
  /// Values of a channel each, as a constant that is broadcast over the channels of `like` in `order`.
  std::string channel_constant(std::string_view name, const LayerValue& like, Order order, std::vector<float> values);
  /// The same with the values of the layer's tensor.
  std::string channel_weight(std::string_view name, const LayerValue& like, Order order);

  /// x as float16 (or float32), in graphs of the other type.
  std::string cast(const std::string& x, Type type);
  std::string reshape(const std::string& x, std::span<const std::int64_t> dims);
  std::string reshape(const std::string& x, std::initializer_list<std::int64_t> dims) {
    return reshape(x, std::span(dims.begin(), dims.size()));
  }

 private:
  std::string unused(std::string name);
  Value batch_value(std::string name, const Shape& shape) const;
  void rename(const std::string& from, const std::string& to);
  std::string preprocessed(std::string x, const Shape& shape);

  const SafetensorsFile& weights_;
  const ExportOptions& options_;
  Model model_;
  std::string layer_;
  std::size_t first_node_ = 0;          // of the layer
  std::set<std::string> names_;         // of values and constants
  std::set<std::string> other_orders_;  // values that are another value's with its axes in another order
};

/// `first`, then the extents of `shape`: a shape with the batch axis, for Reshape.
std::vector<std::int64_t> batched(std::int64_t first, const Shape& shape);

}  // namespace bantam::onnx
