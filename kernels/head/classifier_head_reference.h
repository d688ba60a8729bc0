// The fused head as plain loops: the oracle of the tests. Labels are taken to be in range.
#pragma once

#include <vector>

#include "bantam/kernels/head/classifier_head.h"
#include "bantam/kernels/head/softmax_cross_entropy_reference.h"
#include "bantam/kernels/matmul/matmul_reference.h"

namespace bantam::kernels::reference {

/// Parameters and inputs, laid out as in the contract.
template <class T>
struct ClassifierHeadInputs {
  std::vector<T> x, w1, b1, w2, b2;
  std::vector<std::int32_t> labels;
};

template <class T>
struct ClassifierHeadResult {
  T loss = 0;
  std::vector<T> logits, losses, dx, dw1, db1, dw2, db2;
};

/// `rounded` is applied to the hidden units, as they are stored.
template <class T, class Rounded>
ClassifierHeadResult<T> classifier_head(const ClassifierHeadShape& s, const ClassifierHeadInputs<T>& in, T divisor,
                                        T upstream, const Rounded& rounded) {
  const auto count = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  ClassifierHeadResult<T> out;
  std::vector<T> hidden(count(s.batch * s.hidden)), dlogits(count(s.batch * s.classes));
  std::vector<LogSumExp<T>> lse(count(s.batch));
  matmul({s.batch, s.hidden, s.inputs, false, true}, in.x.data(), in.w1.data(), hidden.data(), false);
  for (std::size_t i = 0; i < hidden.size(); ++i)
    hidden[i] = rounded(std::max(T(0), hidden[i] + in.b1[i % count(s.hidden)]));
  out.logits.resize(dlogits.size());
  matmul({s.batch, s.classes, s.hidden, false, true}, hidden.data(), in.w2.data(), out.logits.data(), false);
  for (std::size_t i = 0; i < out.logits.size(); ++i) out.logits[i] += in.b2[i % count(s.classes)];
  const SoftmaxCrossEntropyShape loss{s.batch, s.classes, s.smoothing};
  out.losses.resize(lse.size());
  out.loss =
      softmax_cross_entropy_forward(loss, out.logits.data(), in.labels.data(), divisor, out.losses.data(), lse.data());
  softmax_cross_entropy_grad(loss, out.logits.data(), in.labels.data(), lse.data(), upstream, divisor, dlogits.data());
  out.dw2.resize(in.w2.size());
  matmul({s.classes, s.hidden, s.batch, true, false}, dlogits.data(), hidden.data(), out.dw2.data(), false);
  std::vector<T> dhidden(hidden.size());
  matmul({s.batch, s.hidden, s.classes, false, false}, dlogits.data(), in.w2.data(), dhidden.data(), false);
  for (std::size_t i = 0; i < hidden.size(); ++i) dhidden[i] = hidden[i] > T(0) ? dhidden[i] : T(0);
  out.db1.resize(in.b1.size());
  out.db2.resize(in.b2.size());
  for (std::size_t i = 0; i < dhidden.size(); ++i) out.db1[i % count(s.hidden)] += dhidden[i];
  for (std::size_t i = 0; i < dlogits.size(); ++i) out.db2[i % count(s.classes)] += dlogits[i];
  out.dw1.resize(in.w1.size());
  out.dx.resize(in.x.size());
  matmul({s.hidden, s.inputs, s.batch, true, false}, dhidden.data(), in.x.data(), out.dw1.data(), false);
  matmul({s.batch, s.inputs, s.hidden, false, false}, dhidden.data(), in.w1.data(), out.dx.data(), false);
  return out;
}

}  // namespace bantam::kernels::reference
