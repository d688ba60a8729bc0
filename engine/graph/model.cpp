// Running a lowered graph: node by node, or as a stretch that backward runs again.
#include "bantam/engine/graph/model.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/tape.h"
#include "bantam/engine/graph/conv_norm.h"

namespace bantam {
namespace {

std::size_t index(NodeId node) { return static_cast<std::size_t>(node); }

}  // namespace

Model::Model(Runtime& runtime, Device device, Graph graph, ModelOptions options)
    : runtime_(runtime), device_(device), graph_(std::move(graph)), options_(std::move(options)) {
  layers_.resize(graph_.nodes().size());
  paths_.resize(graph_.nodes().size(), "");
  for (NodeId node = 1; node <= graph_.output(); ++node) {
    const GraphNode& description = graph_.node(node);
    const std::vector<Shape> inputs = graph_.input_shapes(node);
    LayerScope scope(description.name, parameters_, buffers_);
    layers_[index(node)] = description.layer->bind(scope, buffers_, inputs);
    paths_[index(node)] = runtime_.intern(description.name);
  }
  lower_graph();
  const Context setup = context(Pass::train);
  parameters_.materialize(setup, options_.seed);
  buffers_.materialize(setup);
}

Model::~Model() = default;

void Model::lower_graph() {
  const FusionTarget target{.compute = options_.precision.compute(), .device = device_.kind};
  std::vector<Fusion> fusions;
  norm_behind_.resize(graph_.nodes().size(), 0);
  if (options_.fusion) {
    fusions = find_fusions(graph_, target);
    for (NodeId node = 1; node <= graph_.output(); ++node)
      norm_behind_[index(node)] = fusion::norm_behind_conv(graph_, node, target);
  }
  segments_ = lower(graph_, options_.recompute, fusions);
  fused_.resize(graph_.nodes().size());
  for (const Fusion& fusion : fusions) {
    std::unique_ptr<BoundLayer>& layer = fused_[index(fusion.first)];
    layer = fusion.pattern->bind(graph_, fusion, parameters_, buffers_);
    if (fusion.pattern->makes_loss) loss_head_ = dynamic_cast<LossHead*>(layer.get());
  }
  last_reader_.resize(graph_.nodes().size(), -1);
  for (std::size_t s = 0; s < segments_.size(); ++s)
    for (const NodeId input : segments_[s].inputs) last_reader_[index(input)] = static_cast<int>(s);
}

std::pair<BoundLayer*, NodeId> Model::runs_at(const LoweredSegment& segment, NodeId node) const {
  for (const Fusion& fusion : segment.fusions)
    if (fusion.first == node) return {fused_[index(node)].get(), fusion.last};
  return {layers_[index(node)].get(), node};
}

std::optional<ops::NormStage> Model::norm_behind(NodeId node) const {
  const NodeId reader = norm_behind_[index(node)];
  if (reader == 0) return std::nullopt;
  return (fused_[index(reader)] != nullptr ? fused_ : layers_)[index(reader)]->norm_of_input();
}

Context Model::context(Pass pass) const {
  Context context = Context::make(runtime_, device_, options_.precision);
  context.pass = pass;
  context.random.seed = options_.seed;
  return context;
}

std::vector<Tensor> Model::run_segments(const Context& caller, const Tensor& x, std::size_t count) {
  Context context = caller;
  context.derive = options_.recompute.derives();
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
    const LoweredSegment& segment = segments_[s];
    const bool rerun = segment.recompute && context.tape != nullptr;
    const int position = static_cast<int>(s);
    Tensor out = rerun ? run_recomputed(context, position, values) : run_nodes(context, position, values);
    values[index(segment.last)] = std::move(out);
  }
  return values;
}

Tensor Model::forward(const Context& context, const Tensor& x) {
  Tensor output = std::move(run_segments(context, x, segments_.size()).back());
  output.set_recipe(nullptr);  // who holds the output shall not hold what it is made of
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
    return loss.forward(context.at(runtime_.intern("loss")), made, batch, call);
  }
  const LoweredSegment& head = segments_.back();
  Tensor features = std::move(run_segments(context, x, segments_.size() - 1)[index(head.inputs[0])]);
  return loss_head_->forward_loss(context.at(paths_[index(head.first)]), features, batch.at(kLabels), *joined);
}

Tensor Model::run_nodes(const Context& context, int position, std::vector<Tensor>& values) {
  const LoweredSegment& segment = segments_[static_cast<std::size_t>(position)];
  // A value is let go after its last reader, so that ops may work in place.
  const auto read_later = [&](NodeId value, NodeId reader) {
    for (NodeId node = reader + 1; node <= segment.last; ++node)
      for (const NodeId input : graph_.node(node).inputs)
        if (input == value) return true;
    return value < segment.first && last_reader_[index(value)] != position;
  };
  for (NodeId node = segment.first; node <= segment.last; ++node) {
    const auto [layer, last] = runs_at(segment, node);
    if (context.device.meta && !graph_.node(node).layer->supports_meta())
      throw Error(
          fmt::format("{} does not support meta devices (Layer::supports_meta), so nothing can be planned of it",
                      graph_.describe(node)));
    std::vector<Tensor> inputs;
    for (const NodeId input : graph_.node(node).inputs) inputs.push_back(values[index(input)]);
    for (const NodeId input : graph_.node(node).inputs)
      if (!read_later(input, node)) values[index(input)] = Tensor();
    Context local = context.at(paths_[index(node)]);
    // `all` is for the least memory: there no masks are left.
    local.ends_stretch = last == segment.last && options_.recompute.kind == RecomputeOptions::Kind::named &&
                         graph_.node(last).layer->heeds_ends_stretch();
    local.defer = std::ranges::find(segment.deferred, last) != segment.deferred.end();
    const std::optional<ops::NormStage> norm = norm_behind(node);
    local.norm_behind = norm ? &*norm : nullptr;
    values[index(last)] = layer->forward(local, inputs);
    node = last;
  }
  return std::move(values[index(segment.last)]);
}

Tensor Model::run_recomputed(const Context& context, int position, std::vector<Tensor>& values) {
  const LoweredSegment& segment = segments_[static_cast<std::size_t>(position)];
  Keepsakes keepsakes;
  Context silent = context;
  silent.tape = nullptr;
  silent.keepsakes = &keepsakes;
  std::vector<SavedTensor> kept;
  for (const NodeId input : segment.inputs) kept.push_back(values[index(input)]);
  Tensor y = run_nodes(silent, position, values);
  if (!y.sole_owner()) {  // an identity of its own, even where the stretch passes its input through
    const std::shared_ptr<const BatchStatistics> statistics = y.statistics();
    y = y.view(y.shape());
    y.set_statistics(statistics);
  }
  keepsakes.replay();
  context.tape->record_pieces(context, y,
                              [this, position, kept, keepsakes, random = context.random, pass = context.pass](
                                  const Context& ctx, Gradient dy, GradientStore& store) mutable {
                                Context again = ctx;
                                again.pass = pass == Pass::evaluate ? Pass::evaluate : Pass::recompute;
                                again.random = random;
                                again.derive = options_.recompute.derives_again();
                                again.keepsakes = &keepsakes;
                                run_again(again, position, kept, std::move(dy), store);
                              });
  return y;
}

void Model::run_again(const Context& context, int position, std::vector<SavedTensor>& inputs, Gradient dy,
                      GradientStore& store) {
  const LoweredSegment& segment = segments_[static_cast<std::size_t>(position)];
  Tape tape;
  tape.set_parameter_hook([&store](Parameter& parameter) { store.note_written(parameter); });
  Context taped = context;
  taped.tape = &tape;
  std::vector<Tensor> held, local(graph_.nodes().size());
  std::vector<std::uint64_t> ids(inputs.size(), 0);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    held.push_back(inputs[i].take(context));  // held: no op of the stretch may work in place on what others may read
    Tensor input = held.back().view(inputs[i].shape());
    const ValueRef& ref = inputs[i].ref();
    if (wants_gradient(ref)) {
      // A layer that passes its input on gives two nodes one value: then it is one here, too.
      const auto same = std::ranges::find(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(i), ref.id,
                                          [](const SavedTensor& input) { return input.ref().id; });
      const auto first = static_cast<std::size_t>(same - inputs.begin());
      ids[i] = ref.id != 0 && first < i ? ids[first] : runtime_.new_value_id();
      input.set_value_id(ids[i]);
    }
    local[index(segment.inputs[i])] = std::move(input);
  }
  Tensor output = run_nodes(taped, position, local);
  local.clear();
  held.clear();
  const auto passed_through = std::ranges::find(ids, output.value_id());
  if (output.value_id() != 0 && passed_through != ids.end()) {  // nothing was done to the input
    store.add(context, inputs[static_cast<std::size_t>(passed_through - ids.begin())].ref(),
              std::move(dy).tensor(context));
    return;
  }
  if (!wants_gradient(output)) return;
  GradientStore inner;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (ids[i] != 0) inner.continues(ids[i], store, inputs[i].ref());
  tape.backward(taped, std::move(output), std::move(dy), inner);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (Tensor dx = inner.take(ids[i]); ids[i] != 0 && dx.defined()) store.add(context, inputs[i].ref(), std::move(dx));
}

void Model::register_state(StateRegistry& registry) {
  for (const Parameter& parameter : parameters_.all()) registry.add("weights/" + parameter.name(), parameter.master());
  for (const Buffer& buffer : buffers_.all()) registry.add("buffers/" + buffer.name, buffers_.current(buffer));
  registry.on_load([this] {
    const Context setup = context(Pass::train);
    parameters_.refresh_compute(setup);
    buffers_.reset_pending(setup);
  });
}

}  // namespace bantam
