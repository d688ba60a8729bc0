// The softmax layer.
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class SoftmaxLayer : public BuiltInLayer {
 public:
  std::string_view kind() const override { return "softmax"; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = single(kind(), inputs);
    if (in.rank() < 1) throw ShapeError("softmax: expected an input with classes, got a scalar");
    return in;
  }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function(ops::softmax);
  }
};

}  // namespace

LayerPtr softmax() { return std::make_shared<SoftmaxLayer>(); }

namespace layers {

LayerPtr read_softmax(ConfigMap& options) {
  options.describe(
      "exp(x) / Σ exp(x) over the last axis. Losses of class labels compute it themselves: a classifier ends without "
      "it.",
      "softmax");
  return softmax();
}

}  // namespace layers
}  // namespace bantam
