// Pointwise convolution after a norm on CUDA: our own GEMMs where the device has what they need, else the normalised
// input a few rows at a time, and cuBLASLt.
#include "bantam/kernels/norm/cuda/batch_norm_gradient.cuh"
#include "bantam/kernels/norm/cuda/clamped_norm.cuh"
#include "bantam/kernels/norm/statistics_pass.h"
#include "bantam/kernels/pointwise/cuda/pointwise_products.h"
#include "bantam/kernels/pointwise/cuda/warpgroup_product.h"
#include "bantam/kernels/pointwise/pointwise_norm.h"

namespace bantam::kernels::cuda {
namespace {

/// A workspace cut for chunks of rows.
struct Chunks {
  PointwiseChunks cut;
  char* a;
  char* dy;
  Workspace rest;

  Chunks(const PointwiseShape& s, DType dtype, Workspace workspace)
      : cut(pointwise_chunks(s, dtype, DeviceKind::cuda)),
        a(static_cast<char*>(workspace.data)),
        dy(a + cut.a_bytes),
        rest{dy + cut.dy_bytes, workspace.bytes - cut.a_bytes - cut.dy_bytes} {}
};

const char* row_of(const void* data, std::int64_t row, std::int64_t columns, DType dtype) {
  return static_cast<const char*>(data) + row * columns * static_cast<std::int64_t>(size_of(dtype));
}
char* row_of(void* data, std::int64_t row, std::int64_t columns, DType dtype) {
  return static_cast<char*>(data) + row * columns * static_cast<std::int64_t>(size_of(dtype));
}

/// body(first row, rows) for chunks of rows, a of them made in the workspace.
template <class Body>
void for_each_chunk(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const Chunks& chunks,
                    Body&& body) {
  for (std::int64_t first = 0; first < s.rows; first += chunks.cut.rows) {
    const std::int64_t rows = std::min(chunks.cut.rows, s.rows - first);
    batch_norm_apply(exec, {rows, s.in}, dtype, row_of(x.x, first, s.in, dtype), x.affine, x.mean, x.inv_std, chunks.a);
    body(first, rows);
  }
}

/// dy of rows of a tensor of `all` rows.
void make_gradient(const Exec& exec, const BatchNormShape& shape, std::int64_t all, DType dtype,
                   const NormInputGradient& from, void* dx) {
  dispatch_floating(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto *y = static_cast<const T*>(from.y.x), *dz = static_cast<const T*>(from.dz);
    auto* to = static_cast<T*>(dx);
    const InputGradient<T, PiecewiseLinear> map{
        y, dz, affine_of(from.y), {}, from.totals, shape.channels, 1.0f / static_cast<float>(all), to};
    with_pack<T>([&](auto n) { map_rows<decltype(n)::value>(exec, shape.rows, shape.channels, map); }, shape.channels,
                 y, dz, to);
  });
}

/// dy of some rows: where it is, or made of dz in the workspace.
const void* gradient_of(const Exec& exec, const PointwiseShape& s, DType dtype, NormInputGradient from,
                        std::int64_t first, std::int64_t rows, void* made) {
  from.dz = row_of(from.dz, first, s.out, dtype);
  if (from.totals == nullptr) return from.dz;
  from.y.x = row_of(from.y.x, first, s.out, dtype);
  make_gradient(exec, {rows, s.out}, s.rows, dtype, from, made);
  return made;
}

/// Forward by kernels of our own; false where none does.
bool product_with_moments(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const void* w,
                          void* y, const StatisticsOutput* statistics, Workspace workspace) {
  const bool wanted = statistics != nullptr && statistics->wanted();
  const auto place = [&](std::int64_t parts) {
    return wanted ? PartMoments::at(workspace.data, parts, s.out) : PartMoments{};
  };
  const WarpgroupProduct product = warpgroup_product_of(s);
  PartMoments moments = place(product.parts());
  if (!warpgroup_product(exec, product, dtype, x, w, y, moments)) {
    moments = place(pointwise_parts(s));
    if (!pointwise_forward(exec, s, dtype, x, w, y, moments)) return false;
  }
  if (wanted) merge_part_moments(exec, moments, *statistics);
  return true;
}

void check(const PointwiseShape& s, DType dtype, const NormOperand& x, Workspace workspace, const char* op) {
  if (!pointwise_supports(s, dtype) || !x.normalised())
    throw ShapeError(std::string(op) + ": a shape, a type or an operand that its kernels do not support");
  require_workspace(workspace, pointwise_norm_workspace_bytes(s, dtype, DeviceKind::cuda), op);
}

}  // namespace

void norm_input_gradient(const Exec& exec, const BatchNormShape& shape, DType dtype, const NormInputGradient& from,
                         void* dx, Workspace) {
  make_gradient(exec, shape, shape.rows, dtype, from, dx);
}

void pointwise_norm_forward(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x, const void* w,
                            void* y, const StatisticsOutput* statistics, Workspace workspace) {
  check(s, dtype, x, workspace, "pointwise_norm_forward");
  if (product_with_moments(exec, s, dtype, x, w, y, statistics, workspace)) return;
  const Chunks chunks(s, dtype, workspace);
  for_each_chunk(exec, s, dtype, x, chunks, [&](std::int64_t first, std::int64_t rows) {
    matmul(exec, pointwise_product({rows, s.in, s.out}), dtype, chunks.a, w,
           {.data = row_of(y, first, s.out, dtype), .dtype = dtype}, chunks.rest);
  });
  if (statistics != nullptr)
    statistics_pass(batch_norm_forward_training, exec, {s.rows, s.out}, dtype, y, *statistics, workspace);
}

void pointwise_norm_backward(const Exec& exec, const PointwiseShape& s, DType dtype, const NormOperand& x,
                             const void* w, const NormInputGradient& dy, const PointwiseGradients& gradients,
                             Workspace workspace) {
  check(s, dtype, x, workspace, "pointwise_norm_backward");
  float* const partials = static_cast<float*>(workspace.data);
  if (pointwise_backward(exec, s, dtype, x, w, dy, gradients, partials)) return;
  const bool weight = gradients.dw != nullptr;
  if (dy.totals == nullptr && runs_pointwise_grad_weight(exec, s, dtype, x, dy.dz)) {
    if (gradients.da != nullptr)
      matmul(exec, pointwise_grad_input_product(s), dtype, dy.dz, w, {.data = gradients.da, .dtype = dtype}, workspace);
    if (weight) pointwise_grad_weight(exec, s, dtype, x, dy.dz, gradients.dw, gradients.accumulate, partials);
    return;
  }
  const Chunks chunks(s, dtype, workspace);
  for_each_chunk(exec, s, dtype, x, chunks, [&](std::int64_t first, std::int64_t rows) {
    const PointwiseShape part{rows, s.in, s.out};
    const void* const gradient = gradient_of(exec, s, dtype, dy, first, rows, chunks.dy);
    if (gradients.da != nullptr)
      matmul(exec, pointwise_grad_input_product(part), dtype, gradient, w,
             {.data = row_of(gradients.da, first, s.in, dtype), .dtype = dtype}, chunks.rest);
    if (weight)
      matmul(exec, pointwise_grad_weight_product(part), dtype, gradient, chunks.a,
             {.data = gradients.dw, .dtype = DType::float32, .accumulate = gradients.accumulate || first > 0},
             chunks.rest);
  });
}

}  // namespace bantam::kernels::cuda
