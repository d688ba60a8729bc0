// Which parameters are pruned, their tables on the device, and the kernel of it.
#include "bantam/engine/optimizers/prune_masks.h"

#include <algorithm>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/kernels/update/pruning.h"

namespace bantam {
namespace {

bool is_share(double value) { return value >= 0 && value < 1; }

void check(const PruneOptions& o) {
  const auto require = [](bool fine, const char* what, double value) {
    if (!fine) throw ConfigError(fmt::format("prune: {}, got {}", what, value));
  };
  require(is_share(o.initial), "initial must be in [0, 1)", o.initial);
  require(is_share(o.final_sparsity), "final must be in [0, 1)", o.final_sparsity);
  require(o.begin >= 0, "begin must not be negative", static_cast<double>(o.begin));
  require(o.frequency >= 1, "frequency must be at least 1", static_cast<double>(o.frequency));
  if (o.end < std::max<std::int64_t>(o.begin, 1) || (o.schedule == PruneSchedule::polynomial && o.end <= o.begin))
    throw ConfigError(fmt::format("prune: end ({}) must come after begin ({})", o.end, o.begin));
  if (o.match.empty()) throw ConfigError("prune: match names no parameter");
}

/// 2:4 is of neighbours along the input channels, which are the last extent of convolutions' and dense weights; a
/// depthwise weight has no such extent.
bool fits(const PruneOptions& options, const Parameter& parameter) {
  const Shape& shape = parameter.shape();
  if (options.pattern == PrunePattern::magnitude) return shape.elements() > 0;
  return (shape.rank() == 2 || shape.rank() == 4) && shape[shape.rank() - 1] % 4 == 0;
}

}  // namespace

Pruning::Pruning(Model& model, const PruneOptions& options, const Context& context) : model_(model), options_(options) {
  check(options_);
  choose_parameters();
  upload_tables(context);
  const std::int64_t elements = model_.parameters().slot_elements();
  mask_ = context.at(model_.runtime().intern("optimizer/mask")).allocate({elements}, DType::uint8, Category::optimizer);
  if (context.device.meta) return;
  const std::vector<std::uint8_t> all(static_cast<std::size_t>(elements), 1);
  copy_bytes(mask_.data(), all.data(), all.size(), context.stream);
  synchronize(context.stream);  // before the host's values go
}

/// A pattern that matches nothing is a slip, and named; one whose parameters are all frozen prunes nothing.
void Pruning::choose_parameters() {
  std::vector<std::string> names;
  for (const Parameter& parameter : model_.parameters().all())
    if (fits(options_, parameter)) names.push_back(parameter.name());
  for (const std::string& pattern : options_.match) {
    if (std::ranges::any_of(names, [&](const std::string& name) { return matches_glob(name, pattern); })) continue;
    const std::optional<std::string> near = nearest(pattern, names);
    throw ConfigError(fmt::format("prune.match: '{}' matches no parameter that can be pruned{}; there are {}", pattern,
                                  near ? fmt::format("; did you mean '{}'?", *near) : "", join(names, ", ", " and ")));
  }
  for (const Parameter* parameter : model_.parameters().spans()) {
    const bool named = std::ranges::any_of(
        options_.match, [&](const std::string& pattern) { return matches_glob(parameter->name(), pattern); });
    if (named && fits(options_, *parameter)) parameters_.push_back(parameter);
  }
}

void Pruning::upload_tables(const Context& context) {
  if (parameters_.empty()) return;
  std::vector<kernels::PrunedTensor> tensors;
  std::vector<std::int32_t> weight_blocks;
  for (const Parameter* parameter : parameters_) {
    const std::int64_t elements = parameter->shape().elements();
    tensors.push_back({.begin = parameter->offset(), .elements = elements});
    for (std::int64_t i = 0; i < elements; i += kernels::kWeightBlockSize)
      weight_blocks.push_back(static_cast<std::int32_t>((parameter->offset() + i) / kernels::kWeightBlockSize));
  }
  const auto table = [&](const auto& values) {
    const std::size_t bytes = values.size() * sizeof(values[0]);
    return context.upload_bytes({static_cast<std::int64_t>(bytes)}, DType::uint8, values.data(), Category::optimizer);
  };
  weight_blocks_ = static_cast<std::int64_t>(weight_blocks.size());
  tensor_table_ = table(tensors);
  weight_block_table_ = table(weight_blocks);
}

void Pruning::apply(const Context& context, const kernels::UpdateControl* control, float* average) const {
  if (parameters_.empty()) return;
  const bool two_of_four = options_.pattern == PrunePattern::two_of_four;
  const kernels::PruneRule rule{
      .pattern = two_of_four ? kernels::PrunePattern::two_of_four : kernels::PrunePattern::magnitude,
      .polynomial = options_.schedule == PruneSchedule::polynomial,
      .initial = options_.initial,
      .final_sparsity = options_.final_sparsity,
      .begin = options_.begin,
      .end = options_.end,
      .frequency = options_.frequency};
  const ParameterArena& parameters = model_.parameters();
  const kernels::PruneArena arena{.tensor_count = static_cast<std::int64_t>(parameters_.size()),
                                  .tensors = tensor_table_.as<kernels::PrunedTensor>(),
                                  .weight_blocks = weight_blocks_,
                                  .weight_block_list = weight_block_table_.as<std::int32_t>(),
                                  .weights = parameters.master().as<float>(),
                                  .compute = parameters.compute().defined() ? parameters.compute().data() : nullptr,
                                  .compute_dtype = parameters.compute_dtype(),
                                  .average = average,
                                  .mask = mask_.as<std::uint8_t>()};
  BANTAM_KERNEL(context.exec, prune_weights, rule, arena, control);
}

void Pruning::register_state(StateRegistry& registry) const {
  for (const Parameter* parameter : parameters_)
    registry.add("prune/mask/" + parameter->name(), mask_.slice(parameter->offset(), parameter->shape()));
}

}  // namespace bantam
