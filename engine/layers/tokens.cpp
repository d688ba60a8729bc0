// Layers of sequences of tokens: class_token and position_embedding.
#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

/// The only input, which must be (tokens, channels) or an image, whose pixels are its tokens.
const Shape& with_tokens(std::string_view kind, std::span<const Shape> inputs) {
  const Shape& in = single(kind, inputs);
  if (in.rank() != 2 && in.rank() != 3)
    throw ShapeError(fmt::format("{}: expected an input (tokens, channels) or (height, width, channels), got {}", kind,
                                 to_string(in)));
  return in;
}

/// Initializers that look at fans have those of a square matrix.
Initializer of_vectors(const InitializerOptions& initializer, std::int64_t channels) {
  const auto fan = static_cast<double>(channels);
  return make_initializer(initializer, {fan, fan});
}

class ClassTokenLayer : public BuiltInLayer {
 public:
  explicit ClassTokenLayer(ClassTokenOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "class_token"; }
  NodeTraits traits() const override { return {.skips_unused_output = true, .separates_inner_ops = true}; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = with_tokens(kind(), inputs);
    check_positive(kind(), "count", options_.count);
    return {options_.count + in.with(-1, 1).elements(), in[-1]};
  }

  /// The tokens of the whole batch, and x, as rows of a sample side by side.
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const Shape vectors{options_.count, inputs[0][-1]};
    Parameter& token = scope.parameter("token", vectors, of_vectors(options_.initializer, vectors[1]), false, false);
    return bind_function(
        [&token, in = inputs[0].elements(), out = output_shape(inputs)](const Context& context, const Tensor& x) {
          const Context inner = context.inner();
          const std::int64_t batch = x.shape()[0];
          Tensor tokens = context.allocate(token.shape().prepend(batch), x.dtype());
          zero_bytes(tokens.data(), tokens.bytes(), context.stream);
          tokens = ops::bias_add(inner, std::move(tokens), token.value());
          const Tensor parts[] = {ops::reshape(inner, tokens, {batch, token.shape().elements()}),
                                  ops::reshape(inner, x, {batch, in})};
          return ops::reshape(context, ops::concat(context, parts), out.prepend(batch));
        });
  }

 private:
  Described describe() const override { return options_; }
  ClassTokenOptions options_;
};

class PositionEmbeddingLayer : public BuiltInLayer {
 public:
  explicit PositionEmbeddingLayer(PositionEmbeddingOptions options) : options_(std::move(options)) {}
  std::string_view kind() const override { return "position_embedding"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return with_tokens(kind(), inputs); }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    Parameter& embedding =
        scope.parameter("embedding", inputs[0], of_vectors(options_.initializer, inputs[0][-1]), false, false);
    return bind_function([&embedding](const Context& context, Tensor x) {
      return ops::bias_add(context, std::move(x), embedding.value());
    });
  }

 private:
  Described describe() const override { return options_; }
  PositionEmbeddingOptions options_;
};

}  // namespace

LayerPtr class_token(ClassTokenOptions options) { return std::make_shared<ClassTokenLayer>(std::move(options)); }
LayerPtr position_embedding(PositionEmbeddingOptions options) {
  return std::make_shared<PositionEmbeddingLayer>(std::move(options));
}

namespace layers {

LayerPtr read_class_token(ConfigMap& options) {
  options.describe(
      "Trained tokens before a sample's: (tokens, channels) to (count + tokens, channels). An image (height, width, "
      "channels) becomes tokens, row after row. Without weight decay.",
      "class_token");
  ClassTokenOptions layer;
  layer.count = options.integer(
      {"count", "How many: 1 is the class token of a vision transformer; 5 are one and four registers.", "5"}, kCount,
      1);
  layer.initializer = read_initializer(options, "zeros");
  return class_token(layer);
}

LayerPtr read_position_embedding(ConfigMap& options) {
  options.describe(
      "A trained value for each place and channel is added to (tokens, channels) or to an image. Without weight decay.",
      "position_embedding");
  PositionEmbeddingOptions layer;
  if (const auto given = options.find({"initializer", "Distribution that the values start from.",
                                       "zeros | {truncated_normal: 0.02}", "{truncated_normal: 0.02}"}))
    layer.initializer = as_initializer(*given);
  return position_embedding(layer);
}

}  // namespace layers
}  // namespace bantam
