// LAMB: Adam's step of each parameter, scaled by the norms of weights and step.
#include "bantam/engine/autograd/span_table.h"
#include "bantam/engine/optimizers/kernel_rule.h"

namespace bantam {
namespace {

struct Norms : RuleState {
  explicit Norms(SpanTable spans) : table(std::move(spans)) {}
  SpanTable table;
};

class LambRule : public KernelRule {
 public:
  using KernelRule::KernelRule;

  /// Cuts all spans that move now or later into chunks.
  std::unique_ptr<RuleState> make_state(const Context& context, const ParameterArena& parameters,
                                        const std::vector<kernels::ArenaSpan>& spans) const override {
    std::vector<std::uint8_t> wanted;
    for (const kernels::ArenaSpan& span : spans)
      wanted.push_back(span.frozen == 0 || span.frozen == kernels::kFrozenForNow ? 1 : 0);
    return std::make_unique<Norms>(SpanTable(context, parameters, wanted));
  }
  void apply(const Context& context, const UpdateCall& call) const override {
    kernels::UpdateArena arena = *call.arena;
    arena.chunks = static_cast<const Norms&>(*call.state).table.chunks();
    UpdateCall with_norms = call;
    with_norms.arena = &arena;
    KernelRule::apply(context, with_norms);
  }
};

}  // namespace

RulePtr lamb(const LambOptions& o) {
  return std::make_shared<LambRule>(KernelRule::Facts{.kind = "lamb",
                                                      .kernel = kernels::UpdateKind::lamb,
                                                      .values = {o.learning_rate, o.weight_decay, o.beta1},
                                                      .constants = {.beta2 = o.beta2, .epsilon = o.epsilon}});
}

OptimizerOptions read_lamb(ConfigMap& options) {
  options.describe(
      "LAMB (You et al. 2020), for large batches: Adam's step of each parameter tensor, made as long as the tensor's "
      "norm times the learning rate. Keeps two float32 values a weight.",
      "lamb: {learning_rate: 5.0e-3, weight_decay: 0.01, decay_biases: false}");
  OptimizerReader reader(options);
  LambOptions lamb;
  lamb.learning_rate = reader.learning_rate(1e-3);
  lamb.beta1 = reader.beta1("Share of the mean of gradients that stays at each update.");
  lamb.beta2 = reader.share({"beta2", "Share of the mean of squared gradients that stays at each update."}, 0.999);
  lamb.epsilon = reader.epsilon("Added to the root of the squared gradients' mean, against division by 0.", 1e-6);
  lamb.weight_decay = reader.weight_decay(true, 0.0);
  return reader.with(bantam::lamb(lamb));
}

}  // namespace bantam
