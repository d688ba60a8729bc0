// Dice loss on CUDA: sums of parts by a block each, of a sample by a block, then the gradient by a group of lanes a
// position.
#include "bantam/kernels/loss/cuda/row_softmax.cuh"
#include "bantam/kernels/loss/dice_loss.h"

namespace bantam::kernels::cuda {
namespace {

constexpr int kDiceThreads = 256;
static_assert(kPositionsOfDicePart == kDiceThreads);

__device__ inline bool counts(const DiceLossShape& s, const DiceLossInputs& in, std::int64_t row) {
  return in.labels == nullptr || !s.has_ignored || in.labels[row] != s.ignored;
}

__device__ inline float target_of(const DiceLossShape& s, const DiceLossInputs& in, std::int64_t row, std::int64_t c) {
  if (in.labels == nullptr) return in.targets[row * s.classes + c];
  return c == in.labels[row] ? 1.0f : 0.0f;
}

/// With labels, a position's probabilities are p = e^(l - top)·factor. The factor is 0 where the position does not
/// count, NaN where its label is none.
struct RowScale {
  float top = 0, factor = 0;
};

__device__ inline float probability(const DiceLossInputs& in, RowScale row, float logit) {
  if (in.labels == nullptr) return logistic(logit);
  return row.factor == 0.0f ? 0.0f : expf(logit - row.top) * row.factor;
}

/// Also counts what is right into the terms of the group's first lane, where there are some.
template <int kLanes, class T>
__device__ RowScale scale_of(const DiceLossShape& s, const DiceLossInputs& in, std::int64_t row, LossTerms* terms) {
  if (in.labels == nullptr) return {};
  const T* logits = static_cast<const T*>(in.logits) + row * s.classes;
  const RowTop top = row_top<kLanes>(logits, s.classes);
  const float sum = row_exp_sum<kLanes>(logits, s.classes, top.value);
  const std::int32_t label = in.labels[row];
  if (!counts(s, in, row)) return {};
  if (terms != nullptr && lane_of_row<kLanes>() == 0) {
    terms->right += top.place == label ? 1 : 0;
    ++terms->counted;
  }
  return {top.value, label >= 0 && label < s.classes ? 1.0f / sum : NAN};
}

/// Adds `stripes` sums of each of `width` classes, in order; thread c gets class c's.
__device__ inline DiceSums add_stripes(DiceSums mine, int width, int stripes) {
  __shared__ DiceSums shared[kDiceThreads];
  shared[threadIdx.x] = mine;
  __syncthreads();
  DiceSums all;
  if (static_cast<int>(threadIdx.x) < width)
    for (int stripe = 0; stripe < stripes; ++stripe) {
      const DiceSums& sums = shared[stripe * width + threadIdx.x];
      all = {all.both + sums.both, all.predicted + sums.predicted, all.target + sums.target};
    }
  __syncthreads();
  return all;
}

/// Calls take(c, stripe, stripes) by all threads of the block for up to kDiceThreads classes at once (it returns what
/// the thread adds up of class c), then write(c, sums) once a class.
template <class Take, class Write>
__device__ void sum_classes(std::int64_t classes, const Take& take, const Write& write) {
  for (std::int64_t first = 0; first < classes; first += kDiceThreads) {
    const int width = static_cast<int>(min(static_cast<std::int64_t>(kDiceThreads), classes - first));
    const int stripes = kDiceThreads / width, stripe = static_cast<int>(threadIdx.x) / width;
    const std::int64_t c = first + static_cast<int>(threadIdx.x) % width;
    const DiceSums all = add_stripes(stripe < stripes ? take(c, stripe, stripes) : DiceSums{}, width, stripes);
    if (static_cast<int>(threadIdx.x) < width) write(first + threadIdx.x, all);
  }
}

/// A block a part of a sample.
template <int kLanes, class T>
__global__ void __launch_bounds__(kDiceThreads)
    dice_parts_kernel(DiceLossShape s, DiceLossInputs in, DiceSums* part_sums, LossTerms* part_terms) {
  __shared__ RowScale rows[kDiceThreads];
  const std::int64_t parts = loss_parts(s), n = blockIdx.x / parts, first = blockIdx.x % parts * kDiceThreads;
  const int count = static_cast<int>(min(static_cast<std::int64_t>(kDiceThreads), s.positions - first));
  const std::int64_t begin = n * s.positions + first;
  const T* logits = static_cast<const T*>(in.logits) + begin * s.classes;
  LossTerms terms;
  constexpr int kRows = kDiceThreads / kLanes;
  for (int r = 0; r < count; r += kRows) {
    const int mine = r + static_cast<int>(threadIdx.x) / kLanes;
    const RowScale row = scale_of<kLanes, T>(s, in, begin + min(mine, count - 1), mine < count ? &terms : nullptr);
    if (mine < count && lane_of_row<kLanes>() == 0) rows[mine] = row;
  }
  __syncthreads();
  sum_classes(
      s.classes,
      [&](std::int64_t c, int stripe, int stripes) {
        DiceSums sums;
        for (int r = stripe; r < count; r += stripes) {
          if (!counts(s, in, begin + r)) continue;
          const float logit = to_float(logits[r * s.classes + c]);
          const float p = probability(in, rows[r], logit), t = target_of(s, in, begin + r, c);
          sums = {sums.both + p * t, sums.predicted + p, sums.target + t};
          if (in.labels != nullptr) continue;
          terms.right += (logit > 0.0f) == (t >= 0.5f) ? 1 : 0;
          ++terms.counted;
        }
        return sums;
      },
      [&](std::int64_t c, const DiceSums& sums) { part_sums[blockIdx.x * s.classes + c] = sums; });
  terms = {0.0, block_sum<kDiceThreads>(terms.right), block_sum<kDiceThreads>(terms.counted)};
  if (threadIdx.x == 0) part_terms[blockIdx.x] = terms;
}

/// A block a sample: its classes' terms and gradients, and its counts.
__global__ void __launch_bounds__(kDiceThreads) dice_samples_kernel(DiceLossShape s, LossScale scale, DiceMemory m) {
  const std::int64_t parts = loss_parts(s), n = blockIdx.x;
  const DiceSums* sample = m.parts + n * parts * s.classes;
  double loss = 0;
  sum_classes(
      s.classes,
      [&](std::int64_t c, int stripe, int stripes) {
        DiceSums sums;
        for (std::int64_t part = stripe; part < parts; part += stripes) {
          const DiceSums& more = sample[part * s.classes + c];
          sums = {sums.both + more.both, sums.predicted + more.predicted, sums.target + more.target};
        }
        return sums;
      },
      [&](std::int64_t c, const DiceSums& sums) {
        const DiceTerm term = dice_term(sums, s.smooth, term_scale(scale, s.classes));
        loss += static_cast<double>(term.loss);
        m.gradients[n * s.classes + c] = term.gradient;
      });
  LossTerms terms = block_terms<kDiceThreads>(m.counts + n * parts, parts);
  terms.loss = block_sum<kDiceThreads>(loss);
  if (threadIdx.x == 0) m.samples[n] = terms;
}

/// kLanes lanes a position.
template <int kLanes, class T>
__global__ void __launch_bounds__(kDiceThreads)
    dice_gradient_kernel(DiceLossShape s, DiceLossInputs in, const DiceGradient* gradients, T* dx) {
  constexpr int kRows = kDiceThreads / kLanes;
  const std::int64_t all = s.batch * s.positions;
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kLanes;
  const std::int64_t row = min(mine, all - 1);
  const T* logits = static_cast<const T*>(in.logits) + row * s.classes;
  const DiceGradient* of_sample = gradients + row / s.positions * s.classes;
  const RowScale scale = scale_of<kLanes, T>(s, in, row, nullptr);
  const auto slope = [&](std::int64_t c) { return of_sample[c].level - of_sample[c].slope * target_of(s, in, row, c); };
  float mean = 0;  // Σ p·slope, of the softmax
  if (in.labels != nullptr) {
    for (std::int64_t c = lane_of_row<kLanes>(); c < s.classes; c += kLanes)
      mean += probability(in, scale, to_float(logits[c])) * slope(c);
    mean = row_sum<kLanes>(mean);
  }
  if (mine >= all) return;
  const bool counted = counts(s, in, row);
  for (std::int64_t c = lane_of_row<kLanes>(); c < s.classes; c += kLanes) {
    const float logit = to_float(logits[c]), p = probability(in, scale, logit);
    const float dp = in.labels != nullptr ? p * (slope(c) - mean) : p * logistic(-logit) * slope(c);
    dx[row * s.classes + c] = from_float<T>(counted ? dp : 0.0f);
  }
}

template <int kLanes, class T>
void launch_dice(const Exec& exec, const DiceLossShape& s, const DiceLossInputs& in, T* dx, const DiceMemory& memory) {
  const cudaStream_t stream = stream_of(exec);
  const auto blocks = [](std::int64_t count) { return static_cast<unsigned>(count); };
  dice_parts_kernel<kLanes, T>
      <<<blocks(s.batch * loss_parts(s)), kDiceThreads, 0, stream>>>(s, in, memory.parts, memory.counts);
  check_launch("dice_parts_kernel");
  dice_samples_kernel<<<blocks(s.batch), kDiceThreads, 0, stream>>>(s, in.scale, memory);
  check_launch("dice_samples_kernel");
  if (dx == nullptr) return;
  constexpr int kRows = kDiceThreads / kLanes;
  dice_gradient_kernel<kLanes, T>
      <<<blocks((s.batch * s.positions + kRows - 1) / kRows), kDiceThreads, 0, stream>>>(s, in, memory.gradients, dx);
  check_launch("dice_gradient_kernel");
}

}  // namespace

void dice_loss(const Exec& exec, const DiceLossShape& s, DType dtype, const DiceLossInputs& in, const LossOutputs& out,
               Workspace workspace) {
  require_workspace(workspace, dice_loss_workspace_bytes(s), "dice_loss");
  const DiceMemory memory(s, WorkspaceCutter(workspace));
  if (s.batch > 0) {
    dispatch_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const bool narrow = s.classes <= kMostNarrowClasses;
      (narrow ? launch_dice<kNarrowLanes, T> : launch_dice<kWarp, T>)(exec, s, in, static_cast<T*>(out.dx), memory);
    });
  }
  launch_sample_sums(exec, s.batch, memory.samples, s.classes, in.scale, out);
}

}  // namespace bantam::kernels::cuda
