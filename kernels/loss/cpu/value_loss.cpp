// Losses of each value on the CPU: parts of samples in parallel, sums in order.
#include "bantam/kernels/loss/value_loss.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/convert.h"
#include "bantam/kernels/loss/cpu/loss_sums.h"

namespace bantam::kernels::cpu {
namespace {

/// Values [begin, end) of sample `n`.
template <class T>
LossTerms part_terms(const ValueLossShape& s, const ValueLossInputs& in, std::int64_t n, std::int64_t begin, T* dx) {
  const std::int64_t end = std::min(begin + kValuesOfPart, s.values);
  const float scale = term_scale(in.scale, s.values);
  const T* x = static_cast<const T*>(in.x) + n * s.values;
  const float* t = in.targets + n * s.values;
  LossTerms terms{.counted = static_cast<std::int32_t>(end - begin)};
  for (std::int64_t i = begin; i < end; ++i) {
    const ValueTerm term = value_term(s, in, static_cast<float>(x[i]), t[i], i);
    terms.loss += static_cast<double>(term.loss);
    terms.right += term.right ? 1 : 0;
    if (dx != nullptr) dx[n * s.values + i] = T(term.slope * scale);
  }
  return terms;
}

}  // namespace

void value_loss(const Exec& exec, const ValueLossShape& s, DType dtype, const ValueLossInputs& in,
                const LossOutputs& out, Workspace workspace) {
  require_workspace(workspace, value_loss_workspace_bytes(s), "value_loss");
  const LossSumsLayout layout{s.batch, loss_parts(s)};
  WorkspaceCutter cutter(workspace);
  const LossSumsMemory memory(layout, cutter);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(s.batch * layout.parts, 1, exec.threads, [&](std::int64_t part, std::int64_t) {
      memory.parts[part] =
          part_terms(s, in, part / layout.parts, part % layout.parts * kValuesOfPart, static_cast<T*>(out.dx));
    });
  });
  write_loss_sums(layout, memory.parts, 0, in.scale, out);
}

}  // namespace bantam::kernels::cpu
