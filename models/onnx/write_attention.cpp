// attention: ONNX' operator from opset 23 on, before it its products and softmax.
#include <cmath>

#include "bantam/models/onnx/layer_writers.h"

namespace bantam::onnx {
namespace {

/// (batch, tokens, heads · size) as (batch, heads, tokens, size), or (batch, heads, size, tokens).
std::string by_head(GraphWriter& writer, const std::string& x, std::int64_t tokens, std::int64_t heads,
                    bool transposed = false) {
  const std::vector<std::int64_t> perm =
      transposed ? std::vector<std::int64_t>{0, 2, 3, 1} : std::vector<std::int64_t>{0, 2, 1, 3};
  return writer.add("Transpose", {writer.reshape(x, {0, tokens, heads, -1})}, {{"perm", perm}});
}

/// softmax(q·kᵀ/√size)·v. Queries are scaled, so that the products of float16 stay small.
std::string write_products(GraphWriter& writer, const std::vector<std::string>& qkv, std::int64_t tokens,
                           std::int64_t heads, std::int64_t channels) {
  const std::int64_t size = channels / heads;
  const std::string scale = writer.scalar(static_cast<float>(1.0 / std::sqrt(static_cast<double>(size))));
  const std::string q = writer.add("Mul", {by_head(writer, qkv[0], tokens, heads), scale});
  const std::string k = by_head(writer, qkv[1], tokens, heads, true), v = by_head(writer, qkv[2], tokens, heads);
  const std::string p = writer.add("Softmax", {writer.add("MatMul", {q, k})}, {{"axis", std::int64_t{-1}}});
  const std::string o =
      writer.add("Transpose", {writer.add("MatMul", {p, v})}, {{"perm", std::vector<std::int64_t>{0, 2, 1, 3}}});
  return writer.reshape(o, {0, tokens, channels});
}

LayerValue write_attention(GraphWriter& writer, const LayerInputs& layer) {
  const std::int64_t heads = layer.options<AttentionOptions>().heads, channels = layer.output[-1];
  const std::int64_t tokens = layer.output.elements() / channels;
  const bool sequence = layer.output.rank() == 2;
  std::string x = writer.channels_last(layer.value());
  if (!sequence) x = writer.reshape(x, {0, tokens, 3 * channels});
  const std::vector<std::string> qkv = writer.split(x, {channels, channels, channels});
  std::string y = writer.options().opset < 23
                      ? write_products(writer, qkv, tokens, heads, channels)
                      : writer.add("Attention", qkv, {{"q_num_heads", heads}, {"kv_num_heads", heads}});
  if (!sequence) y = writer.reshape(y, batched(0, layer.output));
  return {.shape = layer.output, .last = y};
}

}  // namespace

LayerWriters attention_writers() { return {{"attention", write_attention}}; }

}  // namespace bantam::onnx
