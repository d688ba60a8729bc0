// Cross-entropy and focal loss over classes on CUDA: a warp a part of a sample, 8 or 32 lanes a position.
#include "bantam/kernels/loss/class_loss.h"
#include "bantam/kernels/loss/cuda/row_softmax.cuh"

namespace bantam::kernels::cuda {
namespace {

/// A block a sample: positions that count.
__global__ void __launch_bounds__(kSampleThreads)
    count_labels_kernel(ClassLossShape s, const std::int32_t* labels, std::int32_t* counted) {
  std::int32_t mine = 0;
  for (std::int64_t i = threadIdx.x; i < s.positions; i += kSampleThreads)
    mine += labels[blockIdx.x * s.positions + i] != s.ignored ? 1 : 0;
  mine = block_sum<kSampleThreads>(mine);
  if (threadIdx.x == 0) counted[blockIdx.x] = mine;
}

/// `exp` is of all lanes, the other sums of this one.
template <int kLanes, class T>
__device__ ClassRowSums sums_of(const ClassLossShape& s, const ClassLossInputs& in, const ClassTarget& target,
                                const T* row, float top) {
  ClassRowSums sums{top, row_exp_sum<kLanes>(row, s.classes, top)};
  for (std::int64_t c = lane_of_row<kLanes>(); c < s.classes; c += kLanes)
    add_class(s, in, target, c, to_float(row[c]), sums);
  return sums;
}

template <int kLanes>
struct RowSum {
  __device__ float operator()(float of_lane) const { return row_sum<kLanes>(of_lane); }
};

/// One position. `active`: it is there; else its group only goes through the motions, on a position that is.
template <int kLanes, class T>
__device__ void add_row(const ClassLossShape& s, const ClassLossInputs& in, std::int64_t row, bool active, float scale,
                        T* dx, LossTerms& terms) {
  const T* logits = static_cast<const T*>(in.logits) + row * s.classes;
  const ClassTarget target(s, in, row);
  const RowTop top = row_top<kLanes>(logits, s.classes);
  const ClassRowSums sums = sums_of<kLanes>(s, in, target, logits, top.value);
  const ClassRow found = finish_class_row(s, target, sums, scale, RowSum<kLanes>());
  int wanted = target.label;
  if (target.probabilities != nullptr) wanted = row_top<kLanes>(target.probabilities, s.classes).place;
  if (active && target.counts && lane_of_row<kLanes>() == 0) {
    terms.loss += static_cast<double>(found.loss);
    terms.right += top.place == wanted ? 1 : 0;
    ++terms.counted;
  }
  if (!active || dx == nullptr) return;
  for (std::int64_t c = lane_of_row<kLanes>(); c < s.classes; c += kLanes) {
    const float p = expf(to_float(logits[c]) - top.value - found.log_sum);
    const float slope = found.slope(p, target.weighted(s, in, c));
    dx[row * s.classes + c] = from_float<T>(target.counts ? slope : 0.0f);
  }
}

template <int kLanes, class T>
__global__ void __launch_bounds__(kLossWarps* kWarp)
    class_loss_kernel(ClassLossShape s, ClassLossInputs in, const std::int32_t* counted, T* dx, LossTerms* parts) {
  const std::int64_t part = static_cast<std::int64_t>(blockIdx.x) * kLossWarps + threadIdx.x / kWarp;
  const std::int64_t parts_of_sample = loss_parts(s);
  if (part >= s.batch * parts_of_sample) return;
  const std::int64_t n = part / parts_of_sample, first = part % parts_of_sample * kPositionsOfClassPart;
  const std::int64_t count = min(kPositionsOfClassPart, s.positions - first), begin = n * s.positions + first;
  const float scale = term_scale(in.scale, counted != nullptr ? counted[n] : s.positions);
  constexpr int kRows = kWarp / kLanes;
  LossTerms terms;
  for (std::int64_t r = 0; r < count; r += kRows) {
    const std::int64_t mine = r + static_cast<int>(threadIdx.x) % kWarp / kLanes;
    add_row<kLanes>(s, in, begin + min(mine, count - 1), mine < count, scale, dx, terms);
  }
  terms = warp_terms(terms);
  if (threadIdx.x % kWarp == 0) parts[part] = terms;
}

}  // namespace

void class_loss(const Exec& exec, const ClassLossShape& s, DType dtype, const ClassLossInputs& in,
                const LossOutputs& out, Workspace workspace) {
  require_workspace(workspace, class_loss_workspace_bytes(s), "class_loss");
  const LossSumsLayout layout{s.batch, loss_parts(s)};
  WorkspaceCutter cutter(workspace);
  const LossSumsMemory memory(layout, cutter);
  std::int32_t* counted = counts_labels_first(s) ? cutter.cut<std::int32_t>(0) : nullptr;
  if (s.batch > 0 && counted != nullptr) {
    count_labels_kernel<<<static_cast<unsigned>(s.batch), kSampleThreads, 0, stream_of(exec)>>>(s, in.labels, counted);
    check_launch("count_labels_kernel");
  }
  if (s.batch > 0) {
    dispatch_floating(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const auto kernel =
          narrow_rows(s.positions, s.classes) ? class_loss_kernel<kNarrowLanes, T> : class_loss_kernel<kWarp, T>;
      kernel<<<warp_blocks(s.batch * layout.parts), kLossWarps * kWarp, 0, stream_of(exec)>>>(
          s, in, counted, static_cast<T*>(out.dx), memory.parts);
      check_launch("class_loss_kernel");
    });
  }
  launch_loss_sums(exec, layout, memory, in.scale, out);
}

}  // namespace bantam::kernels::cuda
