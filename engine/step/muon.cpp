// Muon's matrices, and the Newton-Schulz steps as matrix products in float32.
#include "bantam/engine/step/muon.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "bantam/engine/step/rule_values.h"

namespace bantam {
namespace {

/// The smaller of XXᵀ and XᵀX, X being (rows, columns).
kernels::MatmulShape gram_shape(std::int64_t rows, std::int64_t columns) {
  if (rows <= columns) return {.m = rows, .n = rows, .k = columns, .transpose_b = true};
  return {.m = columns, .n = columns, .k = rows, .transpose_a = true};
}

kernels::MatmulShape square_shape(std::int64_t side) { return {.m = side, .n = side, .k = side}; }

/// P·X or X·P, P being square.
kernels::MatmulShape step_shape(std::int64_t rows, std::int64_t columns) {
  return {.m = rows, .n = columns, .k = std::min(rows, columns)};
}

}  // namespace

bool Muon::moves(const Parameter& parameter) {
  const std::size_t rank = static_cast<std::size_t>(parameter.shape().rank());
  return !parameter.frozen() && (rank == 2 || rank == 4) && parameter.shape().elements() > 0;
}

Muon::Muon(const ParameterArena& parameters, std::vector<kernels::ArenaSpan> spans, const Context& context,
           const OptimizerOptions& options)
    : nesterov_(options.nesterov), learning_rate_(options.learning_rate), rest_(rest_of(options)) {
  std::vector<std::uint8_t> matrices, others;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    matrices.push_back(moves(*parameters.spans()[i]) ? 1 : 0);
    others.push_back(matrices[i] == 0 && !spans[i].frozen ? 1 : 0);
    if (matrices[i] != 0) spans[i].frozen = 1;
  }
  table_ = SpanTable(context, parameters, matrices);
  if (rest_.kind == OptimizerKind::lamb) rest_table_ = SpanTable(context, parameters, others);
  rest_spans_ = context.upload_bytes({static_cast<std::int64_t>(spans.size() * sizeof(spans[0]))}, DType::uint8,
                                     spans.data(), Category::optimizer);
  std::size_t chunk = 0;
  for (const Parameter* parameter : parameters.spans())
    if (moves(*parameter)) add_matrix(*parameter, chunk);
  allocate_workspace(context);
}

void Muon::add_matrix(const Parameter& parameter, std::size_t& chunk) {
  const kernels::SpanChunk& first = table_.list()[chunk];
  Matrix matrix{.offset = parameter.offset(), .rows = parameter.shape()[0]};
  matrix.columns = parameter.shape().elements() / matrix.rows;
  matrix.place = {.first = first.first, .chunks = first.chunks};
  for (std::int32_t i = 0; i < first.chunks; ++i, ++chunk)
    matrix.place.elements += table_.list()[chunk].granules * kernels::kSpanGranule;
  const double ratio = static_cast<double>(matrix.rows) / static_cast<double>(matrix.columns);
  matrix.place.scale = static_cast<float>(std::sqrt(std::max(1.0, ratio)));
  matrices_.push_back(matrix);
}

void Muon::allocate_workspace(const Context& context) {
  if (matrices_.empty()) return;
  std::int64_t elements = 0, side = 0;
  std::size_t scratch = 0;
  for (const Matrix& matrix : matrices_) {
    elements = std::max(elements, matrix.place.elements);
    side = std::max(side, matrix.side());
    for (const kernels::MatmulShape& shape : {gram_shape(matrix.rows, matrix.columns), square_shape(matrix.side()),
                                              step_shape(matrix.rows, matrix.columns)})
      scratch = std::max(scratch,
                         kernels::matmul_workspace_bytes(shape, DType::float32, DType::float32, context.device.kind));
  }
  other_ = context.allocate({elements}, DType::float32, Category::optimizer);
  gram_ = context.allocate({side, side}, DType::float32, Category::optimizer);
  square_ = context.allocate({side, side}, DType::float32, Category::optimizer);
  scratch_ = context.allocate({static_cast<std::int64_t>(scratch)}, DType::uint8, Category::optimizer);
}

void Muon::multiply(const Context& context, const kernels::MatmulShape& shape, const float* a, const float* b,
                    float* to) const {
  BANTAM_KERNEL(context.exec, matmul, shape, DType::float32, a, b, kernels::MatmulOutput{.data = to},
                kernels::Workspace{scratch_.data(), scratch_.bytes()});
}

/// u = moment2 of the matrix becomes nearly orthogonal. X alternates between `other_` and u's place, and ends in it.
void Muon::orthogonalize(const Context& context, const kernels::UpdateArena& arena, const Matrix& matrix) const {
  static_assert(kernels::NewtonSchulz::kSteps % 2 == 1);
  const bool wide = matrix.rows <= matrix.columns;
  float *x = other_.as<float>(), *next = arena.moment2 + matrix.offset;
  float *const gram = gram_.as<float>(), *const square = square_.as<float>();
  BANTAM_KERNEL(context.exec, muon_normalize, arena, matrix.place, x);
  for (int step = 0; step < kernels::NewtonSchulz::kSteps; ++step) {
    multiply(context, gram_shape(matrix.rows, matrix.columns), x, x, gram);
    multiply(context, square_shape(matrix.side()), gram, gram, square);
    BANTAM_KERNEL(context.exec, muon_polynomial, matrix.side(), gram, square, square);
    multiply(context, step_shape(matrix.rows, matrix.columns), wide ? square : x, wide ? x : square, next);
    std::swap(x, next);
  }
}

void Muon::move(const Context& context, kernels::UpdateArena arena, const kernels::UpdateControl* control) const {
  if (matrices_.empty()) return;
  arena.chunks = table_.chunks();
  BANTAM_KERNEL(context.exec, muon_momentum, arena, nesterov_, control);
  for (const Matrix& matrix : matrices_) {
    orthogonalize(context, arena, matrix);
    BANTAM_KERNEL(context.exec, muon_apply, arena, matrix.place, control);
  }
}

kernels::UpdateArena Muon::rest(kernels::UpdateArena arena, const kernels::UpdateGroup* groups) const {
  arena.spans = rest_spans_.as<kernels::ArenaSpan>();
  arena.groups = groups;
  arena.chunks = rest_table_.chunks();
  if (moment_slots(rest_) == 0) arena.moment1 = nullptr;
  return arena;
}

kernels::UpdateGroup Muon::rest_group(const kernels::UpdateGroup& group, bool decays,
                                      std::optional<float> weight_decay) const {
  kernels::UpdateGroup values = group_values(rest_);
  values.weight_decay = weight_decay.value_or(values.weight_decay);
  if (learning_rate_ > 0.0f) values.learning_rate *= group.learning_rate / learning_rate_;
  if (!decays && !rest_.decay_biases) values.weight_decay = 0.0f;
  return values;
}

}  // namespace bantam
