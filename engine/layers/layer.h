// Layer: one named node of a model's graph: its output shape, the parameters it declares, and its forward.
//
// A program's own layer derives from Layer and BoundLayer and overrides kind, output_shape, bind and forward; that is
// enough to train with it. The other functions of Layer declare what the engine may do with the layer beyond calling
// forward. Their defaults promise nothing: a layer that overrides none of them trains correctly, only slower or without
// a plan.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>

#include "bantam/base/api.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/autograd/tensor.h"

BANTAM_API_BEGIN
namespace bantam {

struct BANTAM_INTERNAL NodeTraits;

/// Declares a layer's parameters and buffers: names are prefixed with the layer's path.
class LayerScope {
 public:
  LayerScope(std::string path, ParameterArena& parameters, BufferArena& buffers)
      : path_(std::move(path)), parameters_(parameters), buffers_(buffers) {}
  /// `name` is the short one ("weight").
  Parameter& parameter(std::string_view name, Shape shape, Initializer initializer, bool keep_float32 = false,
                       bool decays = true, bool frozen = false);
  Buffer& buffer(std::string_view name, Shape shape, float initial);
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  ParameterArena& parameters_;
  BufferArena& buffers_;
};

/// A layer bound to a model's arenas: what runs. Made by `Layer::bind`, lives as long as the model.
class BoundLayer {
 public:
  virtual ~BoundLayer() = default;
  /// inputs (batch, …) to output (batch, …). Records on the context's tape. May move out of `inputs`: where a tensor is
  /// the last holder of its memory, the op may then work in place. On a meta device it is called only where its Layer
  /// `supports_meta`.
  virtual Tensor forward(const Context& context, std::span<Tensor> inputs) = 0;
  /// For a model that is for inference, once its weights are there and before its first forward: brings them into the
  /// order that forward then reads. May allocate.
  virtual void prepare_inference(const Context& context) { (void)context; }
};

/// A layer's description: immutable, usable in many models. Shapes are without the batch axis.
class Layer {
 public:
  virtual ~Layer() = default;
  /// Its name in a config: "separable_conv2d".
  virtual std::string_view kind() const = 0;
  /// Throws ShapeError (what was expected, what came) where the inputs do not fit.
  virtual Shape output_shape(std::span<const Shape> inputs) const = 0;
  /// Declares parameters and buffers in `scope`, and returns what runs.
  virtual std::unique_ptr<BoundLayer> bind(LayerScope& scope, BufferArena& buffers,
                                           std::span<const Shape> inputs) const = 0;
  /// Whether forward, and the backward that it records, may run on a meta device (Context::device.meta): the memory of
  /// its tensors does not exist there, and reading or writing it ends the process. A layer may say so if it touches
  /// memory through BANTAM_KERNEL, Context::upload, copy_bytes and zero_bytes only, which do nothing on meta devices,
  /// or checks `context.device.meta` itself; and if what it allocates follows from the shapes alone, so that plans made
  /// there hold. Layers composed of ops (ops.h) may. Where a layer of a graph does not say so, it is never called on a
  /// meta device: training steps are planned from what their first run allocated instead of beforehand
  /// (TrainingStep::prepare), updates are not captured, and what only plans (plan_step and its like) throws Error.
  virtual bool supports_meta() const { return false; }
  /// Multiply-adds (counted as 2) of forward for one sample; 0 where they do not matter.
  virtual std::int64_t flops(std::span<const Shape> inputs) const {
    (void)inputs;
    return 0;
  }
  /// Whether it has no convolution and no matrix product.
  bool cheap(std::span<const Shape> inputs) const { return flops(inputs) == 0; }
  /// For the engine's own layers: what they can do with their neighbours. A program's need not say
  /// anything.
  virtual NodeTraits traits() const;
  /// Whether a sample's output in training depends on the others of its micro-batch: smaller micro-batches then compute
  /// another function.
  virtual bool uses_batch_statistics() const { return false; }
  /// The options that its factory (layers.h) received, where they are an `Options`, else null. Patterns of fusion read
  /// them.
  template <class Options>
  const Options* options() const {
    const Described described = describe();
    return described.type != nullptr && *described.type == typeid(Options)
               ? static_cast<const Options*>(described.options)
               : nullptr;
  }

 protected:
  /// An options struct that lives as long as the layer, and its type.
  struct Described {
    template <class Options>
    Described(const Options& given) : type(&typeid(Options)), options(&given) {}  // NOLINT: `return options_;`
    Described() = default;
    const std::type_info* type = nullptr;
    const void* options = nullptr;
  };
  virtual Described describe() const { return {}; }
};

using LayerPtr = std::shared_ptr<const Layer>;

}  // namespace bantam
BANTAM_API_END
