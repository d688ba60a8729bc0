// Layer attention: scaled dot products of queries, keys and values that a dense layer before it wrote. It has no
// weights.
#include "bantam/kernels/attention/attention.h"

#include "bantam/engine/layers/shared_options.h"
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class AttentionLayer : public BuiltInLayer {
 public:
  explicit AttentionLayer(AttentionOptions options) : options_(options) {}
  std::string_view kind() const override { return "attention"; }

  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single(kind(), inputs);
    if (in.rank() < 2)
      throw ShapeError(fmt::format(
          "attention: expected an input (tokens, channels) or (height, width, channels), got {}", to_string(in)));
    check_positive(kind(), "heads", options_.heads);
    if (in[-1] % (3 * options_.heads) != 0)
      throw ShapeError(fmt::format(
          "attention: queries, keys and values of {0} heads do not divide the {1} channels of {2}; expected a multiple "
          "of {3}, as a dense layer of 3 · {0} · head size units before it writes",
          options_.heads, in[-1], to_string(in), 3 * options_.heads));
    kernels::check_attention_shape({.heads = options_.heads, .size = in[-1] / 3 / options_.heads});
    return in.with(-1, in[-1] / 3);
  }

  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([heads = options_.heads](const Context& context, const Tensor& x) {
      return ops::attention(context, x, heads);
    });
  }

  std::int64_t flops(std::span<const Shape> inputs) const override {
    const Shape& in = inputs[0];
    return kernels::attention_flops({.batch = 1,
                                     .tokens = in[-1] == 0 ? 0 : in.elements() / in[-1],
                                     .heads = options_.heads,
                                     .size = in[-1] / 3 / options_.heads});
  }

 private:
  Described describe() const override { return options_; }
  AttentionOptions options_;
};

}  // namespace

LayerPtr attention(AttentionOptions options) { return std::make_shared<AttentionLayer>(options); }

namespace layers {

LayerPtr read_attention(ConfigMap& options) {
  options.describe(
      "Attention of all positions of a sample to one another: softmax(q·kᵀ/√size)·v for each head, without a mask and "
      "without weights. Its input's channels are the queries of all heads, then the keys, then the values, as a "
      "`dense` before it writes them; its output has a third of them. An image's positions are height times width. "
      "`multi_head_attention` is this layer with the dense layers before and after it.",
      "attention: {heads: 6}");
  return attention({.heads = options.integer(kHeads, kCount)});
}

}  // namespace layers
}  // namespace bantam
