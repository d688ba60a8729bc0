// Normalisations of each sample by itself: group norm with the activation after it, instance norm, layer norm.
#include "bantam/engine/layers/support.h"

namespace bantam {
namespace {

using namespace layers;

/// The only input, which must have channels.
/// A norm's trained vectors; null: it has none.
struct Affine {
  Parameter* scale;
  Parameter* shift;

  Affine(LayerScope& scope, const Shape& channels, bool with_scale, bool with_shift)
      : scale(with_scale ? &scope.parameter("scale", channels, ones(), true, false) : nullptr),
        shift(with_shift ? &scope.parameter("shift", channels, zeros(), true, false) : nullptr) {}
  static Tensor value(Parameter* parameter) { return parameter != nullptr ? parameter->value() : Tensor(); }
};

/// Both norms' traits: backward reads the input and statistics, never the output.
constexpr NodeTraits kNormTraits{.skips_unused_output = true, .separates_inner_ops = true};

class LayerNormLayer : public BuiltInLayer {
 public:
  explicit LayerNormLayer(LayerNormOptions options) : options_(options) {}
  std::string_view kind() const override { return "layer_norm"; }
  NodeTraits traits() const override { return kNormTraits; }
  Shape output_shape(std::span<const Shape> inputs) const override { return with_channels(kind(), inputs); }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const Affine affine(scope, {inputs[0][-1]}, options_.scale, options_.shift);
    return bind_function([affine, epsilon = options_.epsilon](const Context& context, const Tensor& x) {
      return ops::layer_norm(context, x, Affine::value(affine.scale), Affine::value(affine.shift), epsilon);
    });
  }

 private:
  Described describe() const override { return options_; }
  LayerNormOptions options_;
};

class GroupNormLayer : public BuiltInLayer {
 public:
  explicit GroupNormLayer(GroupNormOptions options) : options_(options) {}
  std::string_view kind() const override { return options_.groups == 0 ? "instance_norm" : "group_norm"; }
  NodeTraits traits() const override { return kNormTraits; }
  Shape output_shape(std::span<const Shape> inputs) const override {
    const Shape& in = with_channels(kind(), inputs);
    if (options_.groups < 0 || (options_.groups > 0 && in[-1] % options_.groups != 0))
      throw ShapeError(fmt::format("group_norm: {} groups do not divide the {} channels of {}", options_.groups, in[-1],
                                   to_string(in)));
    return in;
  }
  std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena&, std::span<const Shape> inputs) const override {
    const Affine affine(scope, {inputs[0][-1]}, options_.scale, options_.shift);
    const ops::GroupNormSettings settings{.groups = options_.groups == 0 ? inputs[0][-1] : options_.groups,
                                          .epsilon = options_.epsilon,
                                          .activation = {options_.activation.kind, options_.activation.slope}};
    return bind_function([affine, settings](const Context& context, const Tensor& x) {
      return ops::group_norm(context, x, Affine::value(affine.scale), Affine::value(affine.shift), settings);
    });
  }

 private:
  Described describe() const override { return options_; }
  GroupNormOptions options_;
};

}  // namespace

LayerPtr layer_norm(LayerNormOptions options) { return std::make_shared<LayerNormLayer>(options); }
LayerPtr group_norm(GroupNormOptions options) { return std::make_shared<GroupNormLayer>(options); }

}  // namespace bantam
