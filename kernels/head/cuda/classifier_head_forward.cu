// The fused head forward: the long GEMM by split-K, then all that is small.
#include "bantam/kernels/common/cuda/libraries.h"
#include "bantam/kernels/head/cuda/classifier_head_hidden.cuh"
#include "bantam/kernels/head/cuda/classifier_head_loss.cuh"

namespace bantam::kernels::cuda {
namespace {

struct ForwardScratch {
  float* partials;
  LossSums* sums;
};

ForwardScratch cut(const ClassifierHeadShape& s, DType dtype, Workspace workspace) {
  WorkspaceCutter cutter(workspace);
  ForwardScratch scratch{};
  const std::int64_t splits = hidden_split(s, dtype).splits;  // parts are fewer where they come together
  scratch.partials = cutter.cut<float>(static_cast<std::size_t>(4 * splits * s.batch * s.hidden));
  scratch.sums = cutter.cut<LossSums>(static_cast<std::size_t>(loss_blocks(s)) * sizeof(LossSums));
  return scratch;
}

template <class T, int kUnits, int kClasses>
void launch_loss(const Exec& exec, const ClassifierHeadShape& s, const LossOperands<T>& operands,
                 const ClassifierHeadLoss& loss) {
  const auto rows = loss_rows(s);
  const HeadLaunch how{.grid = dim3(static_cast<unsigned>(loss_blocks(s))),
                       .threads = kLossThreads,
                       .shared_bytes = static_cast<int>(4 * loss_block_floats(s, rows)),
                       .early = true};
  launch_head_kernel(exec, classifier_loss_kernel<T, kUnits, kClasses>, how, s, static_cast<int>(rows), operands, loss);
}

template <class T>
auto loss_launch_of(const ClassifierHeadShape& s) {
  if (loss_units(s) == 64) return loss_classes(s) == 16 ? launch_loss<T, 2, 16> : launch_loss<T, 2, 64>;
  return loss_classes(s) == 16 ? launch_loss<T, 4, 16> : launch_loss<T, 4, 64>;
}

}  // namespace

void classifier_head_forward(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void* x,
                             const ClassifierHeadWeights& weights, const ClassifierHeadLoss& loss,
                             const ClassifierHeadSaved& saved, Workspace workspace) {
  if (!classifier_head_supports(s, dtype)) throw Error("classifier_head: no kernel supports this shape and type");
  require_workspace(workspace, classifier_head_workspace_bytes(s, dtype, DeviceKind::cuda), "classifier_head");
  if (s.batch <= 0) return;
  const ForwardScratch scratch = cut(s, dtype, workspace);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const HiddenSplit split = hidden_split(s, dtype);
    const auto product = split.rows == 16   ? launch_hidden_partials<T, 16>
                         : split.rows == 64 ? launch_hidden_partials<T, 64>
                                            : launch_hidden_partials<T, 128>;
    const int parts = product(exec, s, split, x, weights.w1, scratch.partials);
    const LossOperands<T> operands{
        scratch.partials,
        parts,
        static_cast<const T*>(weights.b1),
        static_cast<const T*>(weights.w2),
        static_cast<const T*>(weights.b2),
        static_cast<T*>(saved.dhidden),
        saved.partials,
        scratch.sums,
        Libraries::of(exec).block_counters(exec.stream),
    };
    loss_launch_of<T>(s)(exec, s, operands, loss);
  });
}

}  // namespace bantam::kernels::cuda
