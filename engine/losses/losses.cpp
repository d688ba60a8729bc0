// The table of losses, and sums that a loss counts on the host.
#include <string>

#include "bantam/engine/losses/kernel_loss.h"
#include "bantam/engine/losses/loss.h"
#include "bantam/kernels/head/softmax_cross_entropy.h"

namespace bantam {

void add_to_sums(const Context& context, const LossCall& call, const LossSums& sums) {
  static_assert(sizeof(kernels::MetricSums) == 3 * sizeof(double));
  const double values[] = {sums.loss, sums.correct, sums.samples};
  add_to_sums(context, DeviceSums{reinterpret_cast<double*>(call.sums), call.slot}, values);
}

Registry<Reader<LossPtr>>& losses() {
  static Registry<Reader<LossPtr>>& table = []() -> Registry<Reader<LossPtr>>& {
    static Registry<Reader<LossPtr>> made("loss", {});
    for (const auto& rows : {layers::class_loss_rows(), layers::value_loss_rows(), layers::dice_loss_rows()})
      for (const auto& [name, reader] : rows) made.add(name, reader);
    return made;
  }();
  return table;
}

LossPtr read_loss(ConfigMap& section) {
  const ConfigNode node = section.node(
      {"loss",
       "What the model's output is compared with, and how. Options stand under the name, or, of a name alone, beside "
       "`loss` in `train`.",
       "softmax_cross_entropy | {softmax_cross_entropy: {label_smoothing: 0.1}}"},
      "softmax_cross_entropy");
  if (node.is_map()) return read_registered(losses(), node);
  const std::string name = node.as_text();
  (void)find_reader(losses(), node, name);
  return read_beside(losses(), section, "loss", name);
}

}  // namespace bantam
