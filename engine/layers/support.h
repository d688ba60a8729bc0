// Shared by the layers: shape checks without the batch axis, biases, and layers without parameters as one function.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/layers/layer.h"
#include "bantam/engine/layers/layers.h"
#include "bantam/engine/ops/ops.h"
#include "bantam/engine/program/node_plan.h"
#include "bantam/kernels/common/window.h"

namespace bantam::layers {

/// Base of the engine's own layers. Each guarantees that its ops read and write no memory on meta devices, and only the
/// op that writes its output runs under the node's plan.
class BuiltInLayer : public Layer {
 public:
  bool supports_meta() const override { return true; }
  NodeTraits traits() const override { return {.separates_inner_ops = true}; }
};

/// The only input. Throws ShapeError where there is not exactly one.
inline const Shape& single(std::string_view kind, std::span<const Shape> inputs) {
  if (inputs.size() != 1) throw ShapeError(fmt::format("{}: expected one input, got {}", kind, inputs.size()));
  return inputs[0];
}

/// The only input, which must be (height, width, channels).
inline const Shape& single_image(std::string_view kind, std::span<const Shape> inputs) {
  const Shape& shape = single(kind, inputs);
  if (shape.rank() != 3)
    throw ShapeError(fmt::format("{}: expected an input (height, width, channels), got {}", kind, to_string(shape)));
  return shape;
}

/// The only input, which must have channels: a last axis.
inline const Shape& with_channels(std::string_view kind, std::span<const Shape> inputs) {
  const Shape& in = single(kind, inputs);
  if (in.rank() < 1) throw ShapeError(fmt::format("{}: expected an input with channels, got a scalar", kind));
  return in;
}

/// Output height and width of a window.
inline Extent2d window_output(const char* op, const Shape& image, const Window2d& window) {
  const Padding pad = window.resolve(op, image[0], image[1]);
  using kernels::window_positions;
  return {window_positions(image[0] + pad.top + pad.bottom, window.kernel.h, window.stride.h, window.dilation.h),
          window_positions(image[1] + pad.left + pad.right, window.kernel.w, window.stride.w, window.dilation.w)};
}

/// Positive counts: filters, units.
inline void check_positive(std::string_view kind, std::string_view name, std::int64_t value) {
  if (value < 1) throw ShapeError(fmt::format("{}: {} must be at least 1, got {}", kind, name, value));
}

/// Fans of a depthwise kernel (kH, kW, C·multiplier), as Keras counts them for (kH, kW, C, multiplier).
inline Fans depthwise_fans(Extent2d kernel, std::int64_t channels, std::int64_t multiplier) {
  const double area = static_cast<double>(kernel.h * kernel.w);
  return {area * static_cast<double>(channels), area * static_cast<double>(multiplier)};
}

/// y = activation(x + bias), where `bias` may be null.
inline Tensor finish(const Context& context, Tensor x, Parameter* bias, const ActivationOptions& options) {
  if (bias == nullptr) return ops::activation(context, std::move(x), options.kind, options.slope);
  return ops::bias_activation(context, std::move(x), bias->value(), {options.kind, options.slope});
}

/// The context of an op before `finish`, which writes the layer's output where `finish` does nothing.
inline Context before_finish(const Context& context, Parameter* bias, const ActivationOptions& options) {
  return bias == nullptr && options.kind == Activation::none ? context : context.inner();
}

/// A parameter's value; undefined where it is null.
inline Tensor value_of(Parameter* parameter) { return parameter != nullptr ? parameter->value() : Tensor(); }

/// A bias of zeros, or null.
inline Parameter* declare_bias(LayerScope& scope, bool wanted, std::int64_t channels) {
  return wanted ? &scope.parameter("bias", {channels}, zeros(), false, false) : nullptr;
}

/// A bound layer that is one function of its first input.
class FunctionLayer : public BoundLayer {
 public:
  using Function = std::function<Tensor(const Context&, Tensor)>;
  explicit FunctionLayer(Function function) : function_(std::move(function)) {}
  Tensor forward(const Context& context, std::span<Tensor> inputs) override {
    return function_(context, std::move(inputs[0]));
  }

 private:
  Function function_;
};

inline std::unique_ptr<BoundLayer> bind_function(FunctionLayer::Function function) {
  return std::make_unique<FunctionLayer>(std::move(function));
}

}  // namespace bantam::layers
