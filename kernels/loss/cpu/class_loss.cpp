// Cross-entropy and focal loss over classes on the CPU: parts of samples in parallel, sums in order.
#include "bantam/kernels/loss/class_loss.h"

#include <algorithm>

#include "bantam/base/parallel.h"
#include "bantam/kernels/loss/cpu/class_row.h"
#include "bantam/kernels/loss/cpu/loss_sums.h"

namespace bantam::kernels::cpu {
namespace {

ClassRowSums sums_of(const ClassLossShape& s, const ClassLossInputs& in, const ClassTarget& target, const float* row,
                     float top) {
  ClassRowSums sums{.top = top, .exp = row_exp_sum(row, s.classes, top)};
  for (std::int64_t c = 0; c < s.classes; ++c) add_class(s, in, target, c, row[c], sums);
  return sums;
}

std::int64_t wanted_class(const ClassLossShape& s, const ClassTarget& target) {
  return target.probabilities != nullptr ? row_top(target.probabilities, s.classes).place : target.label;
}

template <class T>
void write_gradient(const ClassLossShape& s, const ClassLossInputs& in, const ClassTarget& target, const float* row,
                    float top, const ClassRow& found, T* dx) {
  for (std::int64_t c = 0; c < s.classes; ++c) {
    const float p = exp_bounded(row[c] - top - found.log_sum);
    dx[c] = T(found.slope(p, target.weighted(s, in, c)));
  }
}

/// Positions [begin, end) of all samples, which are of one.
template <class T>
LossTerms part_terms(const ClassLossShape& s, const ClassLossInputs& in, std::int64_t begin, std::int64_t end,
                     float scale, T* dx) {
  LossTerms terms;
  WideRows<T> rows(in.logits, s.classes);
  for (std::int64_t row = begin; row < end; ++row) {
    const ClassTarget target(s, in, row);
    if (!target.counts) {
      if (dx != nullptr) std::fill_n(dx + row * s.classes, s.classes, T(0.0f));
      continue;
    }
    const float* logits = rows.at(row);
    const RowTop top = row_top(logits, s.classes);
    const ClassRowSums sums = sums_of(s, in, target, logits, top.value);
    const ClassRow found = finish_class_row(s, target, sums, scale, [](float sum) { return sum; });
    terms.loss += static_cast<double>(found.loss);
    terms.right += top.place == wanted_class(s, target) ? 1 : 0;
    ++terms.counted;
    if (dx != nullptr) write_gradient(s, in, target, logits, top.value, found, dx + row * s.classes);
  }
  return terms;
}

std::int64_t counted_positions(const ClassLossShape& s, const ClassLossInputs& in, std::int64_t sample) {
  if (!counts_labels_first(s)) return s.positions;
  const std::int32_t* labels = in.labels + sample * s.positions;
  return s.positions - std::count(labels, labels + s.positions, s.ignored);
}

}  // namespace

void class_loss(const Exec& exec, const ClassLossShape& s, DType dtype, const ClassLossInputs& in,
                const LossOutputs& out, Workspace workspace) {
  require_workspace(workspace, class_loss_workspace_bytes(s), "class_loss");
  const LossSumsLayout layout{s.batch, loss_parts(s)};
  WorkspaceCutter cutter(workspace);
  const LossSumsMemory memory(layout, cutter);
  auto* counted = cutter.cut<std::int32_t>(0);
  if (counts_labels_first(s))
    for (std::int64_t n = 0; n < s.batch; ++n) counted[n] = static_cast<std::int32_t>(counted_positions(s, in, n));
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    parallel_ranges(s.batch * layout.parts, 1, exec.threads, [&](std::int64_t part, std::int64_t) {
      const std::int64_t n = part / layout.parts, first = part % layout.parts * kPositionsOfClassPart;
      const std::int64_t last = std::min(first + kPositionsOfClassPart, s.positions);
      const float scale = term_scale(in.scale, counts_labels_first(s) ? counted[n] : s.positions);
      memory.parts[part] =
          part_terms(s, in, n * s.positions + first, n * s.positions + last, scale, static_cast<T*>(out.dx));
    });
  });
  write_loss_sums(layout, memory.parts, 0, in.scale, out);
}

}  // namespace bantam::kernels::cpu
