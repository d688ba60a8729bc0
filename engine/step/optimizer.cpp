// Tables on the device, and the two kernels of an update.
#include "bantam/engine/step/optimizer.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/partial_gradients.h"
#include "bantam/engine/step/muon.h"
#include "bantam/engine/step/pruning.h"
#include "bantam/engine/step/rule_values.h"
#include "bantam/engine/step/weight_average.h"
#include "bantam/kernels/contracts/update/update.h"

namespace bantam {
namespace {

constexpr std::int64_t kControlBytes = sizeof(kernels::UpdateControl);
/// Group 0 decays, group 1 does not (biases and normalisation parameters, where they are left out).
constexpr int kGroups = 2;

std::string slot_name(std::size_t slot) { return fmt::format("optimizer/moment{}", slot + 1); }

}  // namespace

Optimizer::~Optimizer() = default;

void Optimizer::set_metric_slot(int slot) { metric_slot_ = slot % kernels::kMetricSlots; }

Optimizer::Optimizer(Model& model, OptimizerOptions options) : model_(model), options_(options) {
  check_options(options_);
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("optimizer"));
  groups_.assign(kMostRates * kGroups, group_values(options_));
  if (!options_.decay_biases)
    for (std::size_t i = 1; i < groups_.size(); i += kGroups) groups_[i].weight_decay = 0.0f;
  ParameterArena& parameters = model_.parameters();
  const std::vector<kernels::ArenaSpan> spans = update_spans(parameters);
  const auto table = [&](const void* data, std::size_t bytes) {
    return context.upload_bytes({static_cast<std::int64_t>(bytes)}, DType::uint8, data, Category::optimizer);
  };
  const auto& granules = parameters.span_of_granule();
  span_table_ = table(spans.data(), spans.size() * sizeof(spans[0]));
  granule_table_ = table(granules.data(), granules.size() * sizeof(granules[0]));
  add_norms(context, spans);
  upload_groups();
  kernels::UpdateControl control{.clip_norm = options_.clip_norm};
  if (model_.options().precision.scales_loss()) {
    control.loss_scale = options_.initial_loss_scale;
    control.growth_interval = options_.loss_scale_growth_interval;
  }
  control_ = table(&control, sizeof(control));
  for (int i = 0; i < moment_slots(options_); ++i)
    slots_.push_back(parameters.add_slot(context, model_.runtime().intern(slot_name(static_cast<std::size_t>(i)))));
  const std::vector<kernels::UpdateGroup> still(kGroups, {.learning_rate = 0.0f, .beta1 = 0.0f});
  if (options_.rule) still_groups_ = table(still.data(), still.size() * sizeof(still[0]));
  if (options_.rule && options_.clip_value > 0.0f)
    clipped_ = parameters.add_slot(context, model_.runtime().intern("optimizer/clipped"));
  const std::size_t partials = kernels::begin_update_workspace_bytes(arena(0).granules, context.device.kind);
  partials_ = context.allocate({static_cast<std::int64_t>(partials)}, DType::uint8, Category::optimizer);
  if (options_.ema) average_ = std::make_unique<WeightAverage>(model_, *options_.ema, context);
  if (options_.prune) pruning_ = std::make_unique<Pruning>(model_, *options_.prune, context);
  parameters.begin_accumulation();
}

/// What rules with norms of their own need.
void Optimizer::add_norms(const Context& context, const std::vector<kernels::ArenaSpan>& spans) {
  if (options_.rule) return;
  const ParameterArena& parameters = model_.parameters();
  if (options_.kind == OptimizerKind::muon) muon_ = std::make_unique<Muon>(parameters, spans, context, options_);
  if (options_.kind != OptimizerKind::lamb) return;
  std::vector<std::uint8_t> wanted;
  for (const Parameter* parameter : parameters.spans()) wanted.push_back(parameter->frozen() ? 0 : 1);
  norms_ = std::make_unique<SpanTable>(context, parameters, wanted);
}

void Optimizer::upload_groups() {
  constexpr std::size_t kOwn = std::size_t{kMostRates} * kGroups;
  if (muon_) {
    groups_.resize(2 * kOwn);
    for (std::size_t i = 0; i < kOwn; ++i) groups_[kOwn + i] = muon_->rest_group(groups_[i], i % kGroups == 0);
  }
  const std::size_t bytes = groups_.size() * sizeof(groups_[0]);
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("optimizer"));
  if (!group_table_.defined())
    group_table_ = context.allocate({static_cast<std::int64_t>(bytes)}, DType::uint8, Category::optimizer);
  copy_bytes(group_table_.data(), groups_.data(), bytes, context.stream);
}

kernels::UpdateArena Optimizer::arena(int rate) const {
  ParameterArena& parameters = model_.parameters();
  return {.granules = parameters.slot_elements() / kernels::kSpanGranule,
          .span_of_granule = granule_table_.as<std::int32_t>(),
          .spans = span_table_.as<kernels::ArenaSpan>(),
          .groups = group_table_.as<kernels::UpdateGroup>() + rate * kGroups,
          .group_count = kGroups,
          .master = parameters.master().as<float>(),
          .gradient = parameters.gradient_slot().as<float>(),
          .moment1 = slot(0),
          .moment2 = slot(1),
          .moment3 = slot(2),
          .compute = parameters.compute().defined() ? parameters.compute().data() : nullptr,
          .compute_dtype = parameters.compute_dtype(),
          .narrow = parameters.partial_gradients().narrow(),
          .chunks = norms_ ? norms_->chunks() : kernels::SpanChunks{},
          .clip_value = options_.clip_value};
}

void Optimizer::update(int rate) {
  if (average_ && average_->swapped()) throw Error("optimizer: an update while the model has its averaged weights");
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("optimizer"));
  model_.parameters().end_accumulation(context);
  run_kernels(context, rate);
  model_.parameters().begin_accumulation();
  set_metric_slot(metric_slot_ + 1);
}

void Optimizer::run_kernels(const Context& context, int rate) {
  if (options_.rule) (void)model_.parameters().gradient();  // whole and float32 where the rule reads it
  kernels::UpdateArena arena = this->arena(rate);
  const BufferArena& buffers = model_.buffers();
  kernels::UpdateBuffers statistics{.elements = buffers.elements()};
  if (statistics.elements > 0) {
    statistics.next = buffers.next().as<float>();
    statistics.current = buffers.current().as<float>();
  }
  auto* control = control_.as<kernels::UpdateControl>();
  BANTAM_KERNEL(context.exec, begin_update, arena, model_.parameters().partial_gradients().sums(), control,
                kernels::Workspace{partials_.data(), partials_.bytes()});
  kernels::OptimizerKind kind = kernel_kind(options_);
  if (options_.rule) {
    run_rule(context, arena);
    // The rest of an update: compute copies and running statistics. w - 0·g = w.
    kind = kernels::OptimizerKind::sgd;
    arena.groups = still_groups_.as<kernels::UpdateGroup>();
    arena.moment1 = arena.moment2 = arena.moment3 = nullptr;
    arena.clip_value = 0.0f;
  } else if (muon_) {
    muon_->move(context, arena, control);
    arena = muon_->rest(arena, arena.groups + kMostRates * kGroups);
  }
  BANTAM_KERNEL(context.exec, apply_update, kind, arena, statistics, control);
  if (pruning_) pruning_->apply(context, control, average_ ? average_->values() : nullptr);
  if (average_) average_->move(context, control);
}

void Optimizer::run_rule(const Context& context, const kernels::UpdateArena& arena) const {
  if (context.device.meta && !options_.rule->supports_meta())
    throw Error(
        fmt::format("the update rule '{}' does not support meta devices (UpdateRule::supports_meta), so "
                    "nothing can be planned of it",
                    options_.rule->kind()));
  std::vector<UpdateRange> ranges;
  for (const Parameter* parameter : model_.parameters().spans())
    if (!parameter->frozen())
      ranges.push_back({parameter->offset(), parameter->shape().elements(), parameter->spec().decays ? 0 : 1});
  std::vector<float*> slots;
  for (std::size_t i = 0; i < slots_.size(); ++i) slots.push_back(slot(i));
  const float* gradient = arena.gradient;
  const auto* control = control_.as<kernels::UpdateControl>();
  if (clipped_.defined()) {
    BANTAM_KERNEL(context.exec, clip_gradients, arena, control, clipped_.as<float>());
    gradient = clipped_.as<float>();
  }
  options_.rule->apply(context, {.elements = model_.parameters().slot_elements(),
                                 .master = arena.master,
                                 .gradient = gradient,
                                 .slots = slots,
                                 .ranges = ranges,
                                 .groups = arena.groups,
                                 .control = control});
}

void Optimizer::warm_up() {
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("optimizer"));
  ParameterArena& parameters = model_.parameters();
  const kernels::UpdateControl before = control();
  const float not_finite = std::numeric_limits<float>::infinity();
  parameters.end_accumulation(context);
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.frozen()) continue;  // not looked at by the finite check
    copy_bytes(parameter.gradient().data(), &not_finite, sizeof(not_finite), context.stream);
    break;
  }
  run_kernels(context, 0);
  for (int i = 0; average_ && i < 2; ++i) average_->swap();
  copy_bytes(control_.data(), &before, kControlBytes, context.stream);
  synchronize(context.stream);  // before the host's values go
  parameters.begin_accumulation();
}

void Optimizer::set_learning_rate(float learning_rate) { set_learning_rates({&learning_rate, 1}); }

void Optimizer::set_learning_rates(std::span<const float> rates) {
  if (rates.empty() || rates.size() > kMostRates)
    throw Error(fmt::format("optimizer: {} learning rates at once; 1 to {} can be set", rates.size(), kMostRates));
  for (const float rate : rates)
    if (!(rate >= 0.0f)) throw ConfigError(fmt::format("optimizer: learning_rate must not be negative, got {}", rate));
  bool changed = false;
  for (std::size_t i = 0; i < std::size_t{kMostRates} * kGroups; ++i) {
    const float rate = rates[std::min(i / kGroups, rates.size() - 1)];
    changed |= groups_[i].learning_rate != rate;
    groups_[i].learning_rate = rate;
  }
  options_.learning_rate = rates.back();
  if (changed) upload_groups();
}

const std::int32_t* Optimizer::metric_slot_address() const {
  return &control_.as<kernels::UpdateControl>()->metric_slot;
}

Tensor Optimizer::loss_scale() const {
  static_assert(offsetof(kernels::UpdateControl, loss_scale) == 0);
  return control_.reinterpret(0, {}, DType::float32);
}

const std::int64_t* Optimizer::updates() const { return &control_.as<kernels::UpdateControl>()->updates; }

kernels::UpdateControl Optimizer::control() const {
  kernels::UpdateControl control;
  const Stream stream = model_.runtime().stream(model_.device());
  if (model_.device().meta) return control;
  copy_bytes(&control, control_.data(), kControlBytes, stream);
  synchronize(stream);
  return control;
}

/// Whether a slot has state of the parameter: all but the memory in which Muon makes matrices orthogonal.
bool Optimizer::keeps(std::size_t slot, const Parameter& parameter) const {
  return slot == 0 || !muon_ || !Muon::moves(parameter);
}

void Optimizer::register_state(StateRegistry& registry) {
  registry.add("optimizer/control", control_);
  for (std::size_t i = 0; i < slots_.size(); ++i)
    for (const Parameter& parameter : model_.parameters().all())
      if (keeps(i, parameter))
        registry.add(slot_name(i) + "/" + parameter.name(), slots_[i].slice(parameter.offset(), parameter.shape()));
  if (average_) average_->register_state(registry);
  if (pruning_) pruning_->register_state(registry);
  registry.on_load([this] { restore_settings(); });
}

/// What is configured rather than state stays as configured, whatever a loaded file contained.
void Optimizer::restore_settings() {
  kernels::UpdateControl loaded = control();
  const bool scales = model_.options().precision.scales_loss();
  const bool scaled_before = loaded.growth_interval > 0;
  // A damaged file must not send metrics out of their ring.
  set_metric_slot(std::clamp(loaded.metric_slot, 0, kernels::kMetricSlots - 1));
  loaded.metric_slot = metric_slot_;
  loaded.clip_norm = options_.clip_norm;
  loaded.growth_interval = scales ? options_.loss_scale_growth_interval : 0;
  if (scales != scaled_before) loaded.loss_scale = scales ? options_.initial_loss_scale : 1.0f;
  const Stream stream = model_.runtime().stream(model_.device());
  copy_bytes(control_.data(), &loaded, kControlBytes, stream);
  synchronize(stream);
}

}  // namespace bantam
