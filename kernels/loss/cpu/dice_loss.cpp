// Dice loss on the CPU: sums of parts in parallel, of samples in order, then the gradient in parallel.
#include "bantam/kernels/loss/dice_loss.h"

#include <algorithm>
#include <limits>

#include "bantam/base/parallel.h"
#include "bantam/kernels/loss/cpu/class_row.h"
#include "bantam/kernels/loss/cpu/loss_sums.h"

namespace bantam::kernels::cpu {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// A position's probabilities and what it should be.
template <class T>
class Positions {
 public:
  Positions(const DiceLossShape& s, const DiceLossInputs& in)
      : s_(s), in_(in), rows_(in.logits, s.classes), p_(static_cast<std::size_t>(s.classes)) {}

  bool counts(std::int64_t row) const {
    return in_.labels == nullptr || !s_.has_ignored || in_.labels[row] != s_.ignored;
  }
  float target(std::int64_t row, std::int64_t c) const {
    if (in_.labels == nullptr) return in_.targets[row * s_.classes + c];
    return c == in_.labels[row] ? 1.0f : 0.0f;
  }
  /// Returns the probabilities of all classes in a row; NaN where the label is none. They live until the next call.
  const std::vector<float>& probabilities(std::int64_t row) {
    logits_ = rows_.at(row);
    if (in_.labels == nullptr) {
      for (std::size_t c = 0; c < p_.size(); ++c) p_[c] = logistic(logits_[c]);
      return p_;
    }
    const bool valid = in_.labels[row] >= 0 && in_.labels[row] < s_.classes;
    top_ = row_top(logits_, s_.classes);
    const float sum = row_exp_sum(logits_, s_.classes, top_.value);
    for (std::size_t c = 0; c < p_.size(); ++c) p_[c] = valid ? exp_bounded(logits_[c] - top_.value) / sum : kNaN;
    return p_;
  }
  /// After `probabilities`: adds what is right to the part's terms.
  void count(std::int64_t row, LossTerms& terms) const {
    terms.counted += in_.labels == nullptr ? static_cast<std::int32_t>(s_.classes) : 1;
    if (in_.labels != nullptr) {
      terms.right += top_.place == in_.labels[row] ? 1 : 0;
      return;
    }
    for (std::int64_t c = 0; c < s_.classes; ++c)
      terms.right += (logits_[c] > 0.0f) == (target(row, c) >= 0.5f) ? 1 : 0;
  }

 private:
  const DiceLossShape& s_;
  const DiceLossInputs& in_;
  WideRows<T> rows_;
  std::vector<float> p_;
  const float* logits_ = nullptr;
  RowTop top_;
};

template <class T>
LossTerms add_part(const DiceLossShape& s, Positions<T>& positions, std::int64_t begin, std::int64_t end,
                   DiceSums* sums) {
  LossTerms terms;
  std::fill_n(sums, s.classes, DiceSums{});
  for (std::int64_t row = begin; row < end; ++row) {
    if (!positions.counts(row)) continue;
    const std::vector<float>& p = positions.probabilities(row);
    positions.count(row, terms);
    for (std::int64_t c = 0; c < s.classes; ++c) {
      const float t = positions.target(row, c), predicted = p[static_cast<std::size_t>(c)];
      sums[c].both += predicted * t;
      sums[c].predicted += predicted;
      sums[c].target += t;
    }
  }
  return terms;
}

/// The sample's classes: their terms' sum, and gradients.
double finish_sample(const DiceLossShape& s, const LossScale& scale, const DiceSums* parts, DiceGradient* gradients) {
  double loss = 0;
  for (std::int64_t c = 0; c < s.classes; ++c) {
    DiceSums all;
    for (std::int64_t part = 0; part < loss_parts(s); ++part) {
      const DiceSums& sums = parts[part * s.classes + c];
      all = {all.both + sums.both, all.predicted + sums.predicted, all.target + sums.target};
    }
    const DiceTerm term = dice_term(all, s.smooth, term_scale(scale, s.classes));
    loss += static_cast<double>(term.loss);
    gradients[c] = term.gradient;
  }
  return loss;
}

template <class T>
void write_gradient(const DiceLossShape& s, const DiceLossInputs& in, Positions<T>& positions, std::int64_t row,
                    const DiceGradient* gradients, T* dx) {
  if (!positions.counts(row)) {
    std::fill_n(dx, s.classes, T(0.0f));
    return;
  }
  const std::vector<float>& p = positions.probabilities(row);
  const auto slope = [&](std::int64_t c) { return gradients[c].level - gradients[c].slope * positions.target(row, c); };
  float mean = 0;  // Σ p·slope, of the softmax
  if (in.labels != nullptr)
    for (std::int64_t c = 0; c < s.classes; ++c) mean += p[static_cast<std::size_t>(c)] * slope(c);
  for (std::int64_t c = 0; c < s.classes; ++c) {
    const float predicted = p[static_cast<std::size_t>(c)];
    dx[c] = T(in.labels != nullptr ? predicted * (slope(c) - mean) : predicted * (1.0f - predicted) * slope(c));
  }
}

template <class T>
void run(const Exec& exec, const DiceLossShape& s, const DiceLossInputs& in, T* dx, const DiceMemory& memory) {
  const std::int64_t parts = loss_parts(s);
  const LossSumsLayout layout{s.batch, parts};
  const auto for_parts = [&](const auto& work) {
    parallel_ranges(s.batch * parts, 1, exec.threads, [&](std::int64_t part, std::int64_t) {
      Positions<T> positions(s, in);
      const std::int64_t first = part % parts * kPositionsOfDicePart, row = part / parts * s.positions;
      work(positions, part, row + first, row + std::min(first + kPositionsOfDicePart, s.positions));
    });
  };
  for_parts([&](Positions<T>& positions, std::int64_t part, std::int64_t begin, std::int64_t end) {
    memory.counts[part] = add_part(s, positions, begin, end, memory.parts + part * s.classes);
  });
  for (std::int64_t n = 0; n < s.batch; ++n) {
    memory.samples[n] = sample_terms(layout, memory.counts, n);
    memory.samples[n].loss =
        finish_sample(s, in.scale, memory.parts + n * parts * s.classes, memory.gradients + n * s.classes);
  }
  if (dx == nullptr) return;
  for_parts([&](Positions<T>& positions, std::int64_t part, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      write_gradient(s, in, positions, row, memory.gradients + part / parts * s.classes, dx + row * s.classes);
  });
}

}  // namespace

void dice_loss(const Exec& exec, const DiceLossShape& s, DType dtype, const DiceLossInputs& in, const LossOutputs& out,
               Workspace workspace) {
  require_workspace(workspace, dice_loss_workspace_bytes(s), "dice_loss");
  const DiceMemory memory(s, WorkspaceCutter(workspace));
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    run<T>(exec, s, in, static_cast<T*>(out.dx), memory);
  });
  write_loss_sums({s.batch, 1}, memory.samples, s.classes, in.scale, out);
}

}  // namespace bantam::kernels::cpu
