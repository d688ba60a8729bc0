// Running a step program: operation by operation, or as a checkpoint segment that backward recomputes.
#include "bantam/engine/model/model.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_operands.h"
#include "bantam/engine/autograd/saved_tensor.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/losses/loss.h"
#include "bantam/engine/model/frozen_norms.h"
#include "bantam/engine/model/lower.h"
#include "bantam/engine/program/step_program.h"
#include "bantam/memory/device/trace_range.h"

namespace bantam {
namespace {

std::size_t index(NodeId node) { return static_cast<std::size_t>(node); }

std::unique_ptr<BoundLayer> bind(const Graph& graph, NodeId node, LayerScope& scope, BufferArena& buffers) {
  std::unique_ptr<BoundLayer> bound = graph.node(node).layer->bind(scope, buffers, graph.input_shapes(node));
  if (bound == nullptr) throw Error(fmt::format("{}: bind returned null; expected what runs", graph.describe(node)));
  return bound;
}

/// A layer's forward has to return what its output_shape declared: found here, where the layer can be named.
void check_output(const Graph& graph, const NodePlan& plan, std::int64_t batch, const Tensor& y) {
  const Shape expected = graph.node(plan.last).output.prepend(batch);
  if (!y.defined())
    throw Error(
        fmt::format("{}: forward returned no tensor; expected {}", graph.describe(plan.last), to_string(expected)));
  if (y.shape() != expected)
    throw ShapeError(fmt::format("{}: forward returned {}; expected {}, as output_shape says",
                                 graph.describe(plan.last), to_string(y.shape()), to_string(expected)));
}

}  // namespace

/// A value that a recomputed segment reads, as backward keeps it.
struct Model::SegmentInput {
  explicit SegmentInput(const Tensor& tensor)
      : value(tensor), sum_activation(tensor.notes() != nullptr ? tensor.notes()->sum_activation : nullptr) {}
  SavedTensor value;
  std::shared_ptr<const SumActivation> sum_activation;  ///< null: it is none
};

Model::Model(Runtime& runtime, Device device, Graph graph, ModelOptions options)
    : runtime_(runtime),
      device_(device),
      graph_(with_frozen_norms(graph, options.groups)),
      options_(std::move(options)) {
  layers_.resize(graph_.nodes().size());
  paths_.resize(graph_.nodes().size(), "");
  trains_.resize(graph_.nodes().size());
  parameters_.set_groups(options_.groups);
  for (NodeId node = 1; node <= graph_.output(); ++node) {
    const GraphNode& description = graph_.node(node);
    LayerScope scope(description.name, parameters_, buffers_);
    const std::int64_t trainable_before = parameters_.trainable_count();
    layers_[index(node)] = bind(graph_, node, scope, buffers_);
    trains_[index(node)] = parameters_.trainable_count() > trainable_before;
    paths_[index(node)] = runtime_.intern(description.name);
  }
  check_parameters();
  lower_graph();
  materialize();
}

void Model::materialize() {
  const Context setup = context(Pass::train);
  if (options_.inference) {
    parameters_.materialize_for_inference(setup);
    buffers_.materialize_for_inference(setup);
  } else {
    parameters_.materialize(setup, options_.seed);
    buffers_.materialize(setup);
  }
}

void Model::prepare_inference() {
  const Context setup = context(Pass::evaluate);
  for (const ProgramSegment& segment : program_->segments)
    for (const NodePlan& plan : segment.nodes) bound(plan.first).prepare_inference(setup);
  parameters_.release_masters(setup);
  synchronize(setup.stream);
}

Model::~Model() = default;

void Model::check_parameters() const {
  if (options_.groups.empty()) return;
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_.all()) names.push_back(parameter.name());
  check_groups(options_.groups, names);
}

bool Model::has_backward(int position, const std::vector<Tensor>& values) const {
  const ProgramSegment& segment = program_->segments[static_cast<std::size_t>(position)];
  for (NodeId node = segment.first; node <= segment.last; ++node)
    if (trains_[index(node)]) return true;
  return std::ranges::any_of(segment.inputs, [&](NodeId input) { return wants_gradient(values[index(input)]); });
}

void Model::lower_graph() {
  const std::vector<bool> without_gradient = nodes_without_gradient(graph_, trains_);
  program_ = std::make_unique<StepProgram>(lower(graph_, options_.recompute, options_.fusion,
                                                 {.compute = options_.precision.compute(),
                                                  .device = device_.kind,
                                                  .inference = options_.inference,
                                                  .without_gradient = &without_gradient}));
  fused_.resize(graph_.nodes().size());
  last_reader_.resize(graph_.nodes().size(), -1);
  for (std::size_t s = 0; s < program_->segments.size(); ++s) {
    for (const NodeId input : program_->segments[s].inputs) last_reader_[index(input)] = static_cast<int>(s);
    for (const NodePlan& plan : program_->segments[s].nodes) {
      if (plan.fusion == nullptr) continue;
      std::unique_ptr<BoundLayer>& layer = fused_[index(plan.first)];
      layer = plan.fusion->bind(graph_, {plan.first, plan.last, plan.fusion}, parameters_, buffers_);
      if (plan.fusion->makes_loss) loss_head_ = dynamic_cast<LossHead*>(layer.get());
    }
  }
  for (ProgramSegment& segment : program_->segments)
    for (NodePlan& plan : segment.nodes)
      if (plan.statistics_for != 0) plan.norm_after = dynamic_cast<const NormSource*>(&bound(plan.statistics_for));
}

std::vector<NodeId> Model::inputs_of(const NodePlan& plan) const {
  std::vector<NodeId> inputs = graph_.node(plan.first).inputs;
  for (NodeId node = plan.first + 1; node <= plan.last; ++node)
    std::ranges::copy_if(graph_.node(node).inputs, std::back_inserter(inputs),
                         [&](NodeId input) { return input < plan.first; });
  return inputs;
}

BoundLayer& Model::bound(NodeId node) const {
  return *(fused_[index(node)] != nullptr ? fused_ : layers_)[index(node)];
}

Context Model::context(Pass pass) const {
  Context context = Context::make(runtime_, device_, options_.precision);
  context.pass = pass;
  context.random.seed = options_.seed;
  return context;
}

std::vector<Tensor> Model::run_segments(const Context& context, const Tensor& x, std::size_t count) {
  if (x.shape().rank() < 1 || x.shape().without_first() != graph_.input_shape())
    throw ShapeError(fmt::format("model: expected an input (batch, …) of samples {}, got {}",
                                 to_string(graph_.input_shape()), to_string(x.shape())));
  if (x.dtype() != options_.precision.compute())
    throw DTypeError(fmt::format("model: expected a {} input in {}, got {}", to_string(options_.precision.compute()),
                                 to_string(options_.precision), to_string(x.dtype())));
  context.check_device("model", {&x});
  std::vector<Tensor> values(graph_.nodes().size());
  values[0] = x;
  for (std::size_t s = 0; s < count; ++s) {
    const ProgramSegment& segment = program_->segments[s];
    const int position = static_cast<int>(s);
    const bool rerun = segment.recompute && context.tape != nullptr && has_backward(position, values);
    Tensor out = rerun ? run_recomputed(context, position, values) : run_nodes(context, position, values);
    values[index(segment.last)] = std::move(out);
  }
  return values;
}

Tensor Model::forward(const Context& context, const Tensor& x) {
  Tensor output = std::move(run_segments(context, x, program_->segments.size()).back());
  set_recipe(output, nullptr);  // who holds the output shall not hold what it is made of
  return output;
}

Tensor Model::forward_loss(const Context& context, const TensorMap& batch, const Loss& loss, const LossCall& call,
                           Tensor* output) {
  if (context.device.meta && !loss.supports_meta())
    throw Error(
        fmt::format("the loss '{}' does not support meta devices (Loss::supports_meta), so nothing can be "
                    "planned of it",
                    loss.kind()));
  const Tensor& x = batch.at(kImages);
  const bool seeded = context.tape == nullptr || call.seed.defined();
  const auto joined = loss_head_ != nullptr && seeded && output == nullptr ? loss.as_softmax_cross_entropy(call)
                                                                           : std::optional<LossSpec>();
  if (!joined) {
    const Tensor made = forward(context, x);
    if (output != nullptr) *output = made;
    const TraceRange range(context.device, "loss");
    return loss.forward(context.at(runtime_.intern("loss")), made, batch, call);
  }
  const ProgramSegment& head = program_->segments.back();
  Tensor features = std::move(run_segments(context, x, program_->segments.size() - 1)[index(head.inputs[0])]);
  const TraceRange range(context.device, paths_[index(head.first)]);
  return loss_head_->forward_loss(context.at(paths_[index(head.first)]), features, batch.at(kLabels), *joined);
}

Tensor Model::run_nodes(const Context& context, int position, std::vector<Tensor>& values) {
  const ProgramSegment& segment = program_->segments[static_cast<std::size_t>(position)];
  // A value is released after its last reader, so that ops may work in place.
  const auto read_later = [&](NodeId value, NodeId reader) {
    for (NodeId node = reader + 1; node <= segment.last; ++node)
      for (const NodeId input : graph_.node(node).inputs)
        if (input == value) return true;
    return value < segment.first && last_reader_[index(value)] != position;
  };
  for (const NodePlan& plan : segment.nodes) {
    check_meta(context, plan);
    const std::vector<NodeId> inputs = inputs_of(plan);
    std::vector<Tensor> operands;
    for (const NodeId input : inputs) operands.push_back(values[index(input)]);
    for (const NodeId input : inputs)
      if (!read_later(input, plan.last)) values[index(input)] = Tensor();
    Context local = context.at(paths_[index(plan.first)]);
    local.node = &plan;
    const std::int64_t batch = operands.empty() ? 0 : operands[0].shape()[0];
    {
      const TraceRange range(context.device, local.path);
      values[index(plan.last)] = bound(plan.first).forward(local, operands);
    }
    if (!operands.empty()) check_output(graph_, plan, batch, values[index(plan.last)]);
    if (hooks_ != nullptr && context.pass == Pass::train)
      hooks_->output(plan.first, plan.last, values[index(plan.last)]);
  }
  return std::move(values[index(segment.last)]);
}

void Model::check_meta(const Context& context, const NodePlan& plan) const {
  if (!context.device.meta || graph_.node(plan.first).layer->supports_meta()) return;
  throw Error(
      fmt::format("{} does not support meta devices, so nothing can be planned of it: override Layer::supports_meta to "
                  "return true, if it touches memory through ops and kernels only",
                  graph_.describe(plan.first)));
}

Tensor Model::run_recomputed(const Context& context, int position, std::vector<Tensor>& values) {
  const ProgramSegment& segment = program_->segments[static_cast<std::size_t>(position)];
  SavedStatistics saved;
  Context silent = context;
  silent.tape = nullptr;
  silent.step.saved = &saved;
  std::vector<SegmentInput> kept;
  for (const NodeId input : segment.inputs) kept.emplace_back(values[index(input)]);
  Tensor y = run_nodes(silent, position, values);
  if (!y.sole_owner()) {  // an identity of its own, even where the segment passes its input through
    const std::shared_ptr<const TensorNotes> notes = y.notes();
    y = y.view(y.shape());
    if (notes != nullptr && notes->statistics != nullptr) set_statistics(y, *notes->statistics);
    if (notes != nullptr && notes->sum_activation != nullptr) set_sum_activation(y, *notes->sum_activation);
  }
  saved.replay();
  context.tape->record_deferred(context, y,
                                [this, position, kept, saved, random = context.random, pass = context.pass](
                                    const Context& ctx, Gradient dy, GradientStore& store) mutable {
                                  Context again = ctx;
                                  again.pass = pass == Pass::evaluate ? Pass::evaluate : Pass::recompute;
                                  again.random = random;
                                  again.step.saved = &saved;
                                  recompute(again, position, kept, std::move(dy), store);
                                });
  return y;
}

void Model::recompute(const Context& context, int position, std::vector<SegmentInput>& inputs, Gradient dy,
                      GradientStore& store) {
  const ProgramSegment& segment = program_->segments[static_cast<std::size_t>(position)];
  Tape tape;
  tape.set_parameter_hook([&store](Parameter& parameter) { store.note_written(parameter); });
  if (hooks_ != nullptr) tape.set_gradient_hook(hooks_->gradient);
  Context taped = context;
  taped.tape = &tape;
  std::vector<Tensor> kept, local(graph_.nodes().size());
  std::vector<std::uint64_t> ids(inputs.size(), 0);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    kept.push_back(
        inputs[i].value.unpack(context));  // kept: no op of the segment may work in place on what others may read
    Tensor input = kept.back().view(inputs[i].value.shape());
    if (inputs[i].sum_activation != nullptr) set_sum_activation(input, *inputs[i].sum_activation);
    const ValueRef& ref = inputs[i].value.ref();
    if (wants_gradient(ref)) {
      // A layer that passes its input on makes two nodes share one value: then it is one here, too.
      const auto same = std::ranges::find(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(i), ref.id,
                                          [](const SegmentInput& input) { return input.value.ref().id; });
      const auto first = static_cast<std::size_t>(same - inputs.begin());
      ids[i] = ref.id != 0 && first < i ? ids[first] : runtime_.new_value_id();
      input.set_value_id(ids[i]);
    }
    local[index(segment.inputs[i])] = std::move(input);
  }
  Tensor output;
  {
    const kernels::KernelPhaseScope phase(context.exec.log, kernels::KernelPhase::recompute);
    output = run_nodes(taped, position, local);
  }
  local.clear();
  kept.clear();
  const auto passed_through = std::ranges::find(ids, output.value_id());
  if (output.value_id() != 0 && passed_through != ids.end()) {  // nothing was done to the input
    store.add(context, inputs[static_cast<std::size_t>(passed_through - ids.begin())].value.ref(),
              std::move(dy).tensor(context));
    return;
  }
  if (!wants_gradient(output)) return;
  GradientStore inner;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (ids[i] != 0) inner.continues(ids[i], store, inputs[i].value.ref());
  tape.backward(taped, std::move(output), std::move(dy), inner);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (ids[i] == 0) continue;
    Gradient dx = inner.pop_gradient(ids[i]);
    if (!dx.defined()) continue;
    if (!dx.operands().sums.defined()) dx = std::move(dx).tensor(context);
    store.add(context, inputs[i].value.ref(), std::move(dx));
  }
}

void Model::register_state(StateRegistry& registry) {
  for (const Parameter& parameter : parameters_.all()) registry.add("weights/" + parameter.name(), parameter.master());
  for (const Buffer& buffer : buffers_.all()) registry.add("buffers/" + buffer.name, buffers_.current(buffer));
  registry.on_load([this] {
    const Context setup = context(Pass::train);
    parameters_.refresh_compute(setup);
    buffers_.reset_next(setup);
  });
}

}  // namespace bantam
