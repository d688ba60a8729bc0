// Normalisations: batch, layer, group, instance and global response norm.
#include <cmath>

#include "bantam/engine/layers/norm_options.h"
#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

/// The layer's vector, or `otherwise` for each channel.
std::vector<float> vector_or(const GraphWriter& writer, bool wanted, std::string_view name, std::int64_t channels,
                             float otherwise) {
  if (wanted) return writer.weight(name, {channels});
  return std::vector<float>(static_cast<std::size_t>(channels), otherwise);
}

/// The four vectors that BatchNormalization reads, each with one value a channel.
struct NormVectors {
  std::vector<float> scale, shift, mean, variance;
};

NormVectors vectors_of(const GraphWriter& writer, const BatchNormOptions& options, std::int64_t channels) {
  NormVectors norm{vector_or(writer, options.scale, "scale", channels, 1.0f),
                   vector_or(writer, options.shift, "shift", channels, 0.0f), writer.weight("running_mean", {channels}),
                   writer.weight("running_variance", {channels})};
  // In float16 small variances have no digits and large ones no number: the scale has their root, in float32.
  for (std::size_t c = 0; writer.options().float16 && c < norm.scale.size(); ++c) {
    const double epsilon = options.epsilon, variance = norm.variance[c];
    norm.scale[c] = static_cast<float>(norm.scale[c] * std::sqrt((1.0 + epsilon) / (variance + epsilon)));
    norm.variance[c] = 1.0f;
  }
  return norm;
}

/// BatchNormalization of x, whose second axis has the channels.
std::string normalized(GraphWriter& writer, const std::string& x, const LayerValue& like, Order order,
                       const BatchNormOptions& options) {
  const NormVectors norm = vectors_of(writer, options, like.shape[-1]);
  LayerValue flat = like;  // the operator's vectors have one axis, also those of images
  if (flat.shape.rank() == 3) order = Order::channels_last;
  return writer.add("BatchNormalization",
                    {x, writer.channel_constant("scale", flat, order, norm.scale),
                     writer.channel_constant("shift", flat, order, norm.shift),
                     writer.channel_constant("running_mean", flat, order, norm.mean),
                     writer.channel_constant("running_variance", flat, order, norm.variance)},
                    {{"epsilon", options.epsilon}, {"momentum", 1.0f - options.running_rate()}});
}

LayerValue write_batch_norm(GraphWriter& writer, const LayerInputs& layer) {
  const BatchNormOptions* norm = batch_norm_options(layer.layer);
  const BatchNormOptions& options = norm != nullptr ? *norm : layer.options<BatchNormOptions>();
  LayerValue& x = layer.value();
  if (x.shape.rank() == 3) (void)writer.channels_first(x);
  const Order order = x.order();
  std::string y = x.in(order);
  const bool rows = x.shape.rank() != 1 && order == Order::channels_last;  // (batch, …, C): as (rows, C)
  if (rows) y = writer.reshape(y, {-1, x.shape[-1]});
  y = normalized(writer, y, x, order, options);
  if (rows) y = writer.reshape(y, batched(-1, x.shape));
  return x.as(order, write_activation(writer, y, options.activation));
}

/// x times the layer's scale plus its shift, where it has them.
std::string scaled(GraphWriter& writer, std::string x, const LayerValue& like, Order order, bool scale, bool shift) {
  if (scale) x = writer.add("Mul", {x, writer.channel_weight("scale", like, order)});
  if (shift) x = writer.add("Add", {x, writer.channel_weight("shift", like, order)});
  return x;
}

/// The mean over the last axis, which stays as an extent of 1. From opset 18 on ReduceMean reads its axes as an input.
std::string last_mean(GraphWriter& writer, const std::string& x) {
  return writer.add("ReduceMean", {x}, {{"axes", std::vector<std::int64_t>{-1}}});
}

/// A reduction over `axes`, which stay as extents of 1.
std::string reduced(GraphWriter& writer, const char* op, const std::string& x, const std::vector<std::int64_t>& axes) {
  if (writer.options().opset < 18) return writer.add(op, {x}, {{"axes", axes}});
  return writer.add(op, {x, writer.integers("axes", axes)});
}

/// (x - mean)/√(variance + epsilon) over the last axis, in float32: what opset 16 has no operator for.
std::string write_moments(GraphWriter& writer, std::string x, float epsilon) {
  const bool half = writer.options().float16;
  if (half) x = writer.cast(x, Type::float32);
  const float two = 2.0f;
  const std::string centred = writer.add("Sub", {x, last_mean(writer, x)});
  const std::string squares = writer.add("Pow", {centred, writer.float32("two", {}, std::span(&two, 1))});
  const std::string variance =
      writer.add("Add", {last_mean(writer, squares), writer.float32("epsilon", {}, std::span(&epsilon, 1))});
  const std::string y = writer.add("Div", {centred, writer.add("Sqrt", {variance})});
  return half ? writer.cast(y, Type::float16) : y;
}

LayerValue write_layer_norm(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<LayerNormOptions>();
  LayerValue& x = layer.value();
  // A vector (a flattened image, say) is normalised as a whole, in any order; else the last axis must be the channels.
  const Order order = x.shape.rank() == 1 ? x.order() : Order::channels_last;
  const std::string name = order == Order::channels_last ? writer.channels_last(x) : x.first;
  if (writer.options().opset < 17)
    return x.as(order,
                scaled(writer, write_moments(writer, name, options.epsilon), x, order, options.scale, options.shift));
  const std::vector<float> scale = vector_or(writer, options.scale, "scale", x.shape[-1], 1.0f);
  std::vector<std::string> inputs{name, writer.channel_constant("scale", x, order, scale)};
  if (options.shift) inputs.push_back(writer.channel_weight("shift", x, order));
  return x.as(order,
              writer.add("LayerNormalization", inputs, {{"axis", std::int64_t{-1}}, {"epsilon", options.epsilon}}));
}

/// InstanceNormalization of (batch, groups, …) without scale and shift.
std::string instance_norm(GraphWriter& writer, const std::string& x, std::int64_t groups, float epsilon) {
  const std::vector<float> ones(static_cast<std::size_t>(groups), 1.0f), zeros(ones.size(), 0.0f);
  return writer.add("InstanceNormalization",
                    {x, writer.constant("ones", {groups}, ones), writer.constant("zeros", {groups}, zeros)},
                    {{"epsilon", epsilon}});
}

/// A group's channels stand together where channels are the second axis: each group is then an instance norm's channel.
LayerValue write_group_norm(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<GroupNormOptions>();
  LayerValue& x = layer.value();
  const bool image = x.shape.rank() == 3;
  const std::int64_t channels = x.shape[-1], groups = options.groups == 0 ? channels : options.groups;
  const std::vector<std::int64_t> swap = {0, 2, 1};
  std::string y = image ? writer.channels_first(x) : writer.channels_last(x);
  if (!image) y = writer.add("Transpose", {writer.reshape(y, {0, -1, channels})}, {{"perm", swap}});
  y = instance_norm(writer, writer.reshape(y, {0, groups, -1}), groups, options.epsilon);
  if (image) y = writer.reshape(y, {0, channels, x.shape[0], x.shape[1]});
  if (!image) {
    y = writer.add("Transpose", {writer.reshape(y, {0, channels, -1})}, {{"perm", swap}});
    y = writer.reshape(y, batched(0, x.shape));
  }
  const Order order = image ? Order::channels_first : Order::channels_last;
  y = scaled(writer, y, x, order, options.scale, options.shift);
  return x.as(order, write_activation(writer, y, options.activation));
}

/// Each channel's norm over the positions, divided by the mean of the norms, in float32 whatever the graph computes in.
LayerValue write_global_response_norm(GraphWriter& writer, const LayerInputs& layer) {
  const auto& options = layer.options<GlobalResponseNormOptions>();
  const LayerValue& x = layer.value();
  const Order order = x.order();
  const bool first = order == Order::channels_first, half = writer.options().float16;
  const auto rank = static_cast<std::int64_t>(x.shape.rank());
  std::vector<std::int64_t> positions;
  for (std::int64_t axis = 1; axis < rank; ++axis) positions.push_back(first ? axis + 1 : axis);
  const std::string norm =
      reduced(writer, "ReduceL2", half ? writer.cast(x.in(order), Type::float32) : x.in(order), positions);
  const std::string mean = writer.add("Add", {reduced(writer, "ReduceMean", norm, {first ? 1 : rank}),
                                              writer.float32("epsilon", {}, std::span(&options.epsilon, 1))});
  std::string response = writer.add("Div", {norm, mean});
  if (half) response = writer.cast(response, Type::float16);
  const std::string y = scaled(writer, writer.add("Mul", {x.in(order), response}), x, order, true, true);
  return x.as(order, writer.add("Add", {y, x.in(order)}));
}

}  // namespace

LayerWriters norm_writers() {
  return {{"batch_norm", write_batch_norm},
          {"layer_norm", write_layer_norm},
          {"group_norm", write_group_norm},
          {"instance_norm", write_group_norm},
          {"global_response_norm", write_global_response_norm}};
}

}  // namespace bantam::onnx
