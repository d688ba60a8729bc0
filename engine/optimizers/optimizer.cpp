// Tables on the device, and the two kernels of an update.
#include "bantam/engine/optimizers/optimizer.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/partial_gradients.h"
#include "bantam/engine/graph/layer_depth.h"
#include "bantam/engine/optimizers/checks.h"
#include "bantam/engine/optimizers/moving_average.h"
#include "bantam/engine/optimizers/prune_masks.h"
#include "bantam/kernels/update/update.h"

namespace bantam {
namespace {

constexpr std::int64_t kControlBytes = sizeof(kernels::UpdateControl);

std::string slot_name(std::size_t slot) { return fmt::format("optimizer/moment{}", slot + 1); }

/// A group's row for a rule with these values.
kernels::UpdateGroup row_of(const UpdateRule& rule, const UpdateValues& values) {
  kernels::UpdateGroup row{
      .learning_rate = values.learning_rate, .weight_decay = values.weight_decay, .beta1 = values.momentum};
  rule.set_constants(row);
  return row;
}

}  // namespace

/// Spans with the same values in every update.
struct Optimizer::Group {
  bool decays = true;                 ///< false: biases and normalisation parameters, where they are left out
  std::optional<float> weight_decay;  ///< in place of the optimizer's
  float learning_rate_scale = 1.0f;
  std::int64_t frozen_updates = 0;
  bool operator==(const Group&) const = default;

  UpdateValues values(const UpdateValues& of_update, bool decays_all) const {
    const float decay = weight_decay.value_or(of_update.weight_decay);
    return {of_update.learning_rate * learning_rate_scale, decays || decays_all ? decay : 0.0f, of_update.momentum};
  }
};

Optimizer::~Optimizer() = default;

void Optimizer::set_metric_slot(int slot) { metric_slot_ = slot % kernels::kMetricSlots; }

Optimizer::Optimizer(Model& model, OptimizerOptions options) : model_(model), options_(std::move(options)) {
  check_options(options_);
  values_ = options_.rule->values();
  if (const auto conflict = conflict_with(options_, model_.options().precision))
    throw ConfigError("optimizer: " + conflict->text);
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("optimizer"));
  find_groups();
  groups_.assign(static_cast<std::size_t>(kMostRates) * kinds_.size(), row_of(*options_.rule, values_));
  (void)fill_groups(std::array{values_});
  ParameterArena& parameters = model_.parameters();
  std::vector<kernels::ArenaSpan> spans;
  for (const Parameter* parameter : parameters.spans()) {
    const std::int32_t group = group_of_span_[spans.size()];
    const bool waits = kinds_[static_cast<std::size_t>(group)].frozen_updates > 0;
    spans.push_back({.group = group,
                     .frozen = waits ? kernels::kFrozenForNow : std::uint8_t{0},
                     .compute_copy = parameters.compute().defined() && !parameter->spec().keep_float32});
  }
  const auto table = [&](const void* data, std::size_t bytes) {
    return context.upload_bytes({static_cast<std::int64_t>(bytes)}, DType::uint8, data, Category::optimizer);
  };
  const auto& weight_blocks = parameters.span_of_weight_block();
  span_table_ = table(spans.data(), spans.size() * sizeof(spans[0]));
  weight_block_table_ = table(weight_blocks.data(), weight_blocks.size() * sizeof(weight_blocks[0]));
  state_ = options_.rule->make_state(context, parameters, spans);
  upload_groups();
  std::vector<std::int64_t> frozen;
  for (const Group& kind : kinds_) frozen.push_back(kind.frozen_updates);
  if (std::ranges::any_of(frozen, [](std::int64_t updates) { return updates > 0; }))
    frozen_table_ = table(frozen.data(), frozen.size() * sizeof(frozen[0]));
  kernels::UpdateControl control{.clip_norm = options_.clip_norm};
  if (model_.options().precision.scales_loss()) {
    control.loss_scale = options_.initial_loss_scale;
    control.growth_interval = options_.loss_scale_growth_interval;
  }
  control_ = table(&control, sizeof(control));
  for (int i = 0; i < options_.rule->slots(); ++i)
    slots_.push_back(parameters.add_slot(context, model_.runtime().intern(slot_name(static_cast<std::size_t>(i)))));
  if (!options_.rule->uses_update_kernels() && options_.clip_value > 0.0f)
    clipped_ = parameters.add_slot(context, model_.runtime().intern("optimizer/clipped"));
  const std::size_t partials = kernels::begin_update_workspace_bytes(arena(0).weight_blocks, context.device.kind);
  partials_ = context.allocate({static_cast<std::int64_t>(partials)}, DType::uint8, Category::optimizer);
  if (options_.ema) average_ = std::make_unique<WeightAverage>(model_, *options_.ema, context);
  if (options_.prune) pruning_ = std::make_unique<Pruning>(model_, *options_.prune, context);
  parameters.begin_accumulation();
}

/// Factors of the learning rate by layer_decay, of the arena's spans, which stand in the reverse order of the graph's.
std::vector<float> Optimizer::layer_scales() const {
  const ParameterArena& parameters = model_.parameters();
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters.all()) names.push_back(parameter.name());
  const std::vector<float> scales = layer_decay_scales(model_.graph(), names, options_.layer_decay);
  std::unordered_map<std::string_view, float> by_name;
  for (std::size_t i = 0; i < names.size(); ++i) by_name[names[i]] = scales[i];
  std::vector<float> of_spans;
  for (const Parameter* parameter : parameters.spans()) of_spans.push_back(by_name.at(parameter->name()));
  return of_spans;
}

/// The first two groups are there in any case.
void Optimizer::find_groups() {
  kinds_ = {{.decays = true}, {.decays = false}};
  const std::vector<float> scales = layer_scales();
  const std::vector<ParameterGroup>& groups = model_.parameters().groups();
  for (const Parameter* parameter : model_.parameters().spans()) {
    Group kind{.decays = parameter->spec().decays};
    if (parameter->group() >= 0) {
      const ParameterGroup& group = groups[static_cast<std::size_t>(parameter->group())];
      kind.weight_decay = group.weight_decay;
      kind.learning_rate_scale = group.learning_rate_scale;
      kind.frozen_updates = group.freeze ? group.frozen_updates : 0;
    }
    kind.learning_rate_scale *= scales[group_of_span_.size()];
    const auto found = std::ranges::find(kinds_, kind);
    group_of_span_.push_back(static_cast<std::int32_t>(found - kinds_.begin()));
    if (found == kinds_.end()) kinds_.push_back(kind);
    if (!options_.rule->uses_update_kernels() && kind.frozen_updates > 0)
      throw ConfigError(fmt::format("train.groups: '{}' is frozen for some updates, which the rule '{}' cannot know",
                                    parameter->name(), options_.rule->kind()));
  }
  if (kinds_.size() > kernels::kMostUpdateGroups)
    throw ConfigError(fmt::format("train.groups{}: {} kinds of parameters; at most {} are possible",
                                  options_.layer_decay != 1.0f ? " and train.layer_decay" : "", kinds_.size(),
                                  kernels::kMostUpdateGroups));
}

/// The rest's row where the rule's own would be `row`.
kernels::UpdateGroup Optimizer::rest_row(const kernels::UpdateGroup& row, const Group& kind) const {
  const UpdateValues own = options_.rule->rest()->values();
  kernels::UpdateGroup rest = row_of(*options_.rule->rest(), own);
  rest.weight_decay = kind.values(own, options_.decay_biases).weight_decay;
  const float configured = options_.rule->values().learning_rate;
  if (configured > 0.0f) rest.learning_rate *= row.learning_rate / configured;
  return rest;
}

void Optimizer::upload_groups() {
  const std::size_t own = kMostRates * kinds_.size();
  if (options_.rule->rest() != nullptr) {
    groups_.resize(2 * own);
    for (std::size_t i = 0; i < own; ++i) groups_[own + i] = rest_row(groups_[i], kinds_[i % kinds_.size()]);
  }
  const std::size_t bytes = groups_.size() * sizeof(groups_[0]);
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("optimizer"));
  if (!group_table_.defined())
    group_table_ = context.allocate({static_cast<std::int64_t>(bytes)}, DType::uint8, Category::optimizer);
  copy_bytes(group_table_.data(), groups_.data(), bytes, context.stream);
}

kernels::UpdateArena Optimizer::arena(int rate) const {
  ParameterArena& parameters = model_.parameters();
  kernels::UpdateArena arena{
      .weight_blocks = parameters.trainable_elements() / kernels::kWeightBlockSize,
      .span_of_weight_block = weight_block_table_.as<std::int32_t>(),
      .spans = span_table_.as<kernels::ArenaSpan>(),
      .groups = group_table_.as<kernels::UpdateGroup>() + static_cast<std::size_t>(rate) * kinds_.size(),
      .group_count = static_cast<std::int32_t>(kinds_.size()),
      .frozen_updates = frozen_table_.defined() ? frozen_table_.as<std::int64_t>() : nullptr,
      .master = parameters.master().as<float>(),
      .first_master = parameters.first_master(),
      .keeps_masters = model_.options().precision.keeps_masters(),
      .gradient = parameters.gradient_slot().as<float>(),
      .compute = parameters.compute().defined() ? parameters.compute().data() : nullptr,
      .compute_dtype = parameters.compute_dtype(),
      .narrow = parameters.partial_gradients().narrow(),
      .clip_value = options_.clip_value,
      .halt_after = halt_after_};
  for (std::size_t i = 0; i < slots_.size() && i < std::size(arena.slots); ++i) arena.slots[i] = slot(i);
  return arena;
}

void Optimizer::update(int rate, kernels::UpdateRow* rows) {
  if (average_ && average_->swapped()) throw Error("optimizer: an update while the model has its averaged weights");
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("optimizer"));
  model_.parameters().end_accumulation(context);
  run_kernels(context, rate, rows);
  model_.parameters().begin_accumulation();
  set_metric_slot(metric_slot_ + 1);
}

void Optimizer::run_kernels(const Context& context, int rate, kernels::UpdateRow* rows) {
  const UpdateRule& rule = *options_.rule;
  if (!rule.uses_update_kernels()) (void)model_.parameters().gradient();  // whole and float32 where the rule reads it
  kernels::UpdateArena arena = this->arena(rate);
  arena.rows = rows;
  const BufferArena& buffers = model_.buffers();
  kernels::UpdateBuffers statistics{.elements = buffers.elements()};
  if (statistics.elements > 0) {
    statistics.next = buffers.next().as<float>();
    statistics.current = buffers.current().as<float>();
  }
  auto* control = control_.as<kernels::UpdateControl>();
  BANTAM_KERNEL(context.exec, begin_update, arena, model_.parameters().partial_gradients().sums(), control,
                kernels::Workspace{partials_.data(), partials_.bytes()});
  if (rule.uses_update_kernels()) {
    rule.apply(context, {.groups = arena.groups,
                         .control = control,
                         .state = state_.get(),
                         .arena = &arena,
                         .statistics = &statistics,
                         .rest_groups = arena.groups + kMostRates * kinds_.size()});
  } else {
    run_own_rule(context, arena);
    BANTAM_KERNEL(context.exec, publish_weights, arena, statistics, control);
  }
  if (pruning_) pruning_->apply(context, control, average_ ? average_->values() : nullptr);
  if (average_) average_->move(context, control);
}

/// Runs a program's own rule.
void Optimizer::run_own_rule(const Context& context, const kernels::UpdateArena& arena) const {
  if (context.device.meta && !options_.rule->supports_meta())
    throw Error(
        fmt::format("the update rule '{}' does not support meta devices (UpdateRule::supports_meta), so "
                    "nothing can be planned of it",
                    options_.rule->kind()));
  std::vector<UpdateRange> ranges;
  for (const Parameter* parameter : model_.parameters().spans())
    ranges.push_back({parameter->offset(), parameter->shape().elements(), group_of_span_[ranges.size()]});
  std::vector<float*> slots;
  for (std::size_t i = 0; i < slots_.size(); ++i) slots.push_back(slot(i));
  const float* gradient = arena.gradient;
  const auto* control = control_.as<kernels::UpdateControl>();
  if (clipped_.defined()) {
    BANTAM_KERNEL(context.exec, clip_gradients, arena, control, clipped_.as<float>());
    gradient = clipped_.as<float>();
  }
  options_.rule->apply(context, {.elements = model_.parameters().trainable_elements(),
                                 .master = arena.master,
                                 .gradient = gradient,
                                 .slots = slots,
                                 .ranges = ranges,
                                 .groups = arena.groups,
                                 .control = control,
                                 .state = state_.get()});
}

void Optimizer::warm_up() {
  const Context context = model_.context(Pass::train).at(model_.runtime().intern("optimizer"));
  ParameterArena& parameters = model_.parameters();
  const kernels::UpdateControl before = control();
  kernels::UpdateControl moving = before;  // groups that are frozen for now are not looked at by the finite check
  for (const Group& kind : kinds_) moving.updates = std::max(moving.updates, kind.frozen_updates);
  upload_control(moving);
  const float not_finite = std::numeric_limits<float>::infinity();
  parameters.end_accumulation(context);
  for (const Parameter& parameter : parameters.all()) {
    if (parameter.frozen()) continue;  // not looked at by the finite check
    copy_bytes(parameter.gradient().data(), &not_finite, sizeof(not_finite), context.stream);
    break;
  }
  run_kernels(context, 0, nullptr);
  for (int i = 0; average_ && i < 2; ++i) average_->swap();
  upload_control(before);
  parameters.begin_accumulation();
}

void Optimizer::set_halt_after(std::int32_t skipped) {
  halt_after_ = skipped;
  if (skipped == 0 || model_.device().meta) return;
  kernels::UpdateControl now = control();
  if (now.skipped_in_a_row < skipped) return;
  now.skipped_in_a_row = 0;
  upload_control(now);
}

void Optimizer::upload_control(const kernels::UpdateControl& control) {
  const Stream stream = model_.runtime().stream(model_.device());
  copy_bytes(control_.data(), &control, kControlBytes, stream);
  synchronize(stream);  // before the host's values go
}

void Optimizer::set_learning_rate(float learning_rate) { set_learning_rates({&learning_rate, 1}); }

void Optimizer::set_learning_rates(std::span<const float> rates) {
  std::vector<UpdateValues> all(rates.size(), values());
  for (std::size_t i = 0; i < rates.size(); ++i) all[i].learning_rate = rates[i];
  set_values(all);
}

void Optimizer::set_values(std::span<const UpdateValues> values) {
  if (values.empty() || values.size() > kMostRates)
    throw Error(
        fmt::format("optimizer: values of {} updates at once; those of 1 to {} can be set", values.size(), kMostRates));
  for (const UpdateValues& of_update : values) options_.rule->check(of_update);
  values_ = values.back();
  if (fill_groups(values)) upload_groups();
}

/// The table's values for these updates, the last ones for all beyond; whether any of them is another than before.
bool Optimizer::fill_groups(std::span<const UpdateValues> values) {
  bool changed = false;
  for (std::size_t i = 0; i < kMostRates * kinds_.size(); ++i) {
    const UpdateValues& of_update = values[std::min(i / kinds_.size(), values.size() - 1)];
    kernels::UpdateGroup& group = groups_[i];
    const UpdateValues now = kinds_[i % kinds_.size()].values(of_update, options_.decay_biases);
    changed |= now != UpdateValues{group.learning_rate, group.weight_decay, group.beta1};
    group.learning_rate = now.learning_rate;
    group.weight_decay = now.weight_decay;
    group.beta1 = now.momentum;
  }
  return changed;
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

void Optimizer::register_state(StateRegistry& registry) {
  registry.add("optimizer/control", control_);
  for (std::size_t i = 0; i < slots_.size(); ++i)
    for (const Parameter& parameter : model_.parameters().all())
      if (!parameter.frozen() && (!state_ || state_->keeps(static_cast<int>(i), parameter)))
        registry.add(slot_name(i) + "/" + parameter.name(), slots_[i].slice(parameter.offset(), parameter.shape()));
  if (average_) average_->register_state(registry);
  if (pruning_) pruning_->register_state(registry);
  registry.on_load([this] { restore_settings(); });
}

/// Restores settings that are configured rather than state, whatever a loaded file contained.
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
  upload_control(loaded);
}

}  // namespace bantam
