// The fused head forward: the long product in pieces, then all that is small.
#include "bantam/kernels/cuda/fused/classifier_head_hidden.cuh"
#include "bantam/kernels/cuda/fused/classifier_head_loss.cuh"
#include "bantam/kernels/cuda/libraries.h"

namespace bantam::kernels::cuda {
namespace {

struct ForwardScratch {
  int splits;
  float* partials;
  LossSums* sums;
};

ForwardScratch cut(const ClassifierHeadShape& s, DType dtype, Workspace workspace) {
  WorkspaceCutter cutter(workspace);
  ForwardScratch scratch{};
  scratch.splits = static_cast<int>(hidden_split(s, dtype).splits);
  scratch.partials = cutter.take<float>(static_cast<std::size_t>(4 * scratch.splits * s.batch * s.hidden));
  scratch.sums = cutter.take<LossSums>(static_cast<std::size_t>(loss_blocks(s)) * sizeof(LossSums));
  return scratch;
}

template <class T>
void launch_loss(const Exec& exec, const ClassifierHeadShape& s, const ClassifierHeadWeights& weights,
                 const ClassifierHeadLoss& loss, const ClassifierHeadSaved& saved, const ForwardScratch& scratch) {
  const int rows = static_cast<int>(loss_rows(s));
  const auto bytes = static_cast<std::size_t>(4 * (kLossSums + loss_block_floats(s, rows)));
  const LossOperands<T> operands{scratch.partials,
                                 scratch.splits,
                                 static_cast<const T*>(weights.b1),
                                 static_cast<const T*>(weights.w2),
                                 static_cast<const T*>(weights.b2),
                                 static_cast<T*>(saved.dhidden),
                                 saved.partials,
                                 scratch.sums,
                                 Libraries::of(exec).block_counters(exec.stream)};
  classifier_loss_kernel<T>
      <<<static_cast<unsigned>(loss_blocks(s)), kLossThreads, bytes, stream_of(exec)>>>(s, rows, operands, loss);
  check_launch("classifier_loss_kernel");
}

}  // namespace

void classifier_head_forward(const Exec& exec, const ClassifierHeadShape& s, DType dtype, const void* x,
                             const ClassifierHeadWeights& weights, const ClassifierHeadLoss& loss,
                             const ClassifierHeadSaved& saved, Workspace workspace) {
  if (!classifier_head_takes(s, dtype)) throw Error("classifier_head: no kernel takes this shape and type");
  require_workspace(workspace, classifier_head_workspace_bytes(s, dtype, DeviceKind::cuda), "classifier_head");
  if (s.batch <= 0) return;
  const ForwardScratch scratch = cut(s, dtype, workspace);
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const HiddenSplit split = hidden_split(s, dtype);
    const auto product = split.rows == 16   ? launch_hidden_partials<T, 16>
                         : split.rows == 64 ? launch_hidden_partials<T, 64>
                                            : launch_hidden_partials<T, 128>;
    product(exec, s, split, x, weights.w1, scratch.partials);
    launch_loss<T>(exec, s, weights, loss, saved, scratch);
  });
}

}  // namespace bantam::kernels::cuda
