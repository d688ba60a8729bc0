// Internal: the sums of a loss on the CPU, in order of samples and parts.
#pragma once

#include "bantam/kernels/loss/loss_rules.h"

namespace bantam::kernels::cpu {

/// Adds up the parts of sample `n`, in order.
inline LossTerms sample_terms(const LossSumsLayout& layout, const LossTerms* parts, std::int64_t n) {
  LossTerms sample;
  for (const LossTerms* part = parts + n * layout.parts; part < parts + (n + 1) * layout.parts; ++part) {
    sample.loss += part->loss;
    sample.right += part->right;
    sample.counted += part->counted;
  }
  return sample;
}

/// Adds the parts of each sample, then the samples, and writes loss and counts. A sample's mean is over `terms`; 0:
/// over those that count.
inline void write_loss_sums(const LossSumsLayout& layout, const LossTerms* parts, std::int64_t terms,
                            const LossScale& scale, const LossOutputs& out) {
  if (out.loss == nullptr) return;
  double loss = 0, correct = 0, samples = 0;
  for (std::int64_t n = 0; n < layout.batch; ++n) {
    const LossTerms sample = sample_terms(layout, parts, n);
    loss += sample_loss(scale, sample.loss, terms > 0 ? terms : sample.counted);
    if (sample.counted == 0) continue;
    correct += static_cast<double>(sample.right) / static_cast<double>(sample.counted);
    ++samples;
  }
  *out.loss = static_cast<float>(loss / static_cast<double>(scale.divisor));
  if (out.ring == nullptr) return;
  MetricSums& sums = out.ring[out.slot != nullptr ? *out.slot : 0];
  sums.loss += loss;
  sums.correct += correct;
  sums.samples += samples;
}

}  // namespace bantam::kernels::cpu
