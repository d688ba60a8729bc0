// Model: a graph bound to a device: parameters, buffers, precision, and its forward.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/engine/autograd/parameters.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/program/recompute_options.h"
#include "bantam/engine/runtime/runtime.h"

BANTAM_API_BEGIN
namespace bantam {

struct Batch;
class Gradient;
class GradientStore;
class Loss;
struct LossCall;
class LossHead;
struct BANTAM_INTERNAL NodePlan;
struct BANTAM_INTERNAL StepProgram;
class TensorMap;

/// How a graph becomes a model.
struct ModelOptions {
  Precision precision = {};
  std::uint64_t seed = 42;
  RecomputeOptions recompute = {};
  bool fusion = true;  ///< chains of layers run as one op where there is one
  /// Parameters that are frozen, or have an optimizer's values of their own.
  std::vector<ParameterGroup> groups = {};
  /// For forward in evaluation alone (Predictor): no gradients have memory, weights have no initial values, and
  /// `prepare_inference` follows once they are loaded.
  bool inference = false;
};

/// For looking into a step (TrainingStep::look_into): called as its values come, in the order of the work. No hook is
/// empty, and none keeps a tensor.
struct StepHooks {
  std::function<void(std::int64_t first_sample, const Batch& batch)> begin;  ///< before a micro-batch's forward
  /// An operation's output, of nodes `first` to `last`; in the first pass of a checkpoint segment, too.
  std::function<void(NodeId first, NodeId last, const Tensor& y)> output;
  std::function<void(const Tensor& loss)> loss;
  std::function<void(const char* path, const Tensor& dy)> gradient;  ///< Tape::GradientHook
  std::function<void(const Parameter& parameter)> parameter;         ///< whose gradient was written
};

/// A model on one device. Its context carries the device, precision and seed; callers set pass, tape and random state.
class Model {
 public:
  /// Declares and initialises all parameters. Throws OutOfMemory, and ConfigError, also where a group of the options
  /// has no parameter.
  Model(Runtime& runtime, Device device, Graph graph, ModelOptions options);
  ~Model();

  /// x (batch, input shape) of the compute type to (batch, output shape). Records on the context's tape where it has
  /// one.
  Tensor forward(const Context& context, const Tensor& x);
  /// The loss (float32 scalar) of a batch, whose kImages are the model's input: `loss` of forward's output, or, where
  /// the model's end is fused with that loss, the fused op. Records where the context has a tape; backward then starts
  /// with `call.seed` where that is defined. Where `output` is not null it is set to forward's output, and nothing is
  /// fused. Throws what forward and the loss throw, and Error on a meta device for a loss that does not support it.
  Tensor forward_loss(const Context& context, const TensorMap& batch, const Loss& loss, const LossCall& call,
                      Tensor* output = nullptr);

  /// Hooks of forward's operations, and of the backward of checkpoint segments, from now on; null: none. Not owned.
  void set_hooks(const StepHooks* hooks) { hooks_ = hooks; }

  /// A context for this model: its device, precision and seed.
  Context context(Pass pass) const;
  const Graph& graph() const { return graph_; }
  const ModelOptions& options() const { return options_; }
  /// The graph lowered to segments of operations, which every pass of the model runs in order.
  const StepProgram& program() const { return *program_; }
  ParameterArena& parameters() { return parameters_; }
  const ParameterArena& parameters() const { return parameters_; }
  BufferArena& buffers() { return buffers_; }
  const BufferArena& buffers() const { return buffers_; }
  Runtime& runtime() const { return runtime_; }
  Device device() const { return device_; }
  /// Prepares a model for inference, once its weights are loaded: brings them into the order that layers read, and
  /// frees the masters of those that have a compute copy. From then on they can neither be read by name nor loaded.
  /// Forward may be called by several threads at once, with contexts whose streams and allocators differ.
  void prepare_inference();
  /// Adds weights and buffers to the list of what outlives a step.
  void register_state(StateRegistry& registry);

 private:
  struct SegmentInput;
  void lower_graph();
  void materialize();
  void check_parameters() const;
  /// Whether backward has work in a segment: it has parameters that are not frozen, or reads values that want
  /// gradients.
  bool has_backward(int position, const std::vector<Tensor>& values) const;
  /// The nodes that an operation reads: its first node's inputs, then what its others read from before it.
  std::vector<NodeId> inputs_of(const NodePlan& plan) const;
  /// Returns the bound layer that runs the operation beginning with `node`: the fused one where there is one.
  BoundLayer& bound(NodeId node) const;
  void check_meta(const Context& context, const NodePlan& plan) const;
  /// Checks x and runs the first `count` segments; values by node.
  std::vector<Tensor> run_segments(const Context& context, const Tensor& x, std::size_t count);
  /// Runs segment `position`, reading its inputs from `values` and releasing those nobody reads later.
  Tensor run_nodes(const Context& context, int position, std::vector<Tensor>& values);
  /// The same without a tape; records that backward recomputes the segment.
  Tensor run_recomputed(const Context& context, int position, std::vector<Tensor>& values);
  /// Recomputes a segment from its saved inputs, and runs its backward.
  void recompute(const Context& context, int position, std::vector<SegmentInput>& inputs, Gradient dy,
                 GradientStore& store);

  Runtime& runtime_;
  Device device_;
  Graph graph_;
  ModelOptions options_;
  ParameterArena parameters_;
  BufferArena buffers_;
  std::vector<std::unique_ptr<BoundLayer>> layers_;  // by node; null for the input
  std::vector<std::unique_ptr<BoundLayer>> fused_;   // by a fusion's first node; else null
  LossHead* loss_head_ = nullptr;                    // of fused_; null: the end computes logits
  std::vector<const char*> paths_;                   // interned node names
  std::vector<char> trains_;                         // by node: whether a parameter of it is not frozen
  std::unique_ptr<StepProgram> program_;
  const StepHooks* hooks_ = nullptr;
  std::vector<int> last_reader_;  // by node: the last segment that reads it
};

}  // namespace bantam
BANTAM_API_END
