// Layers that only look at their input under another shape.
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

class FlattenLayer : public BuiltInLayer {
 public:
  std::string_view kind() const override { return "flatten"; }
  Shape output_shape(std::span<const Shape> inputs) const override { return {single(kind(), inputs).elements()}; }
  std::unique_ptr<BoundLayer> bind(LayerScope&, BufferArena&, std::span<const Shape>) const override {
    return bind_function([](const Context& context, Tensor x) { return ops::flatten(context, x); });
  }
};

}  // namespace

LayerPtr flatten() { return std::make_shared<FlattenLayer>(); }

}  // namespace bantam
