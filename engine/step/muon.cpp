// Muon's matrices, and the Newton-Schulz steps as batches of matrix products.
#include "bantam/engine/step/muon.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/autograd/parameter_groups.h"
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

/// Rounded up to what products of a batch begin at, in elements.
std::int64_t aligned(std::int64_t elements) {
  constexpr std::int64_t kStep = kernels::kSpanGranule;
  return (elements + kStep - 1) / kStep * kStep;
}

bool is_matrix(const Parameter& parameter) {
  const std::size_t rank = static_cast<std::size_t>(parameter.shape().rank());
  return rank == 2 || rank == 4;
}

}  // namespace

std::vector<std::string> matrix_names(const ParameterArena& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters.all())
    if (is_matrix(parameter)) names.push_back(parameter.name());
  return names;
}

void check_excluded(std::span<const std::string> exclude, std::span<const std::string> matrices) {
  for (const std::string& pattern : exclude)
    if (std::ranges::none_of(matrices, [&](const std::string& name) { return matches_glob(name, pattern); }))
      throw ConfigError(fmt::format("muon.exclude: '{}' matches no parameter of 2 or 4 dimensions; {}", pattern,
                                    nearest_match(pattern, matrices, "such parameters")));
}

bool Muon::moves(const Parameter& parameter, const MuonOptions& options) {
  if (parameter.frozen() || !is_matrix(parameter) || parameter.shape().elements() == 0) return false;
  return std::ranges::none_of(options.exclude,
                              [&](const std::string& pattern) { return matches_glob(parameter.name(), pattern); });
}

Muon::Muon(const ParameterArena& parameters, std::vector<kernels::ArenaSpan> spans, const Context& context,
           const OptimizerOptions& options)
    : nesterov_(options.nesterov),
      steps_(options.muon.steps),
      polynomial_{options.muon.coefficients[0], options.muon.coefficients[1], options.muon.coefficients[2]},
      normalization_{options.muon.normalize_every},
      learning_rate_(options.learning_rate),
      dtype_(parameters.compute_dtype()),
      rest_(rest_of(options)) {
  check_excluded(options.muon.exclude, matrix_names(parameters));
  std::vector<std::uint8_t> matrices, others;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    matrices.push_back(moves(*parameters.spans()[i], options.muon) ? 1 : 0);
    others.push_back(matrices[i] == 0 && !spans[i].frozen ? 1 : 0);
    if (matrices[i] != 0) spans[i].frozen = 1;
  }
  table_ = SpanTable(context, parameters, matrices);
  if (rest_.kind == OptimizerKind::lamb) rest_table_ = SpanTable(context, parameters, others);
  rest_spans_ = context.upload_bytes({static_cast<std::int64_t>(spans.size() * sizeof(spans[0]))}, DType::uint8,
                                     spans.data(), Category::optimizer);
  std::size_t chunk = 0;
  for (const Parameter* parameter : parameters.spans())
    if (moves(*parameter, options.muon)) add_matrix(*parameter, chunk);
  make_lanes(context);
}

kernels::MuonSquares Muon::Batch::squares() const {
  return {.count = places.count, .n = side(), .stride = aligned(side() * side())};
}

/// To the first batch of its shape that has room. In float32 each is alone: there its bits do not depend on how many
/// are alike, and products are long enough.
void Muon::add_matrix(const Parameter& parameter, std::size_t& chunk) {
  const kernels::SpanChunk& first = table_.list()[chunk];
  const std::int64_t rows = parameter.shape()[0], columns = parameter.shape().elements() / rows;
  std::int64_t elements = 0;
  for (std::int32_t i = 0; i < first.chunks; ++i, ++chunk)
    elements += table_.list()[chunk].granules * kernels::kSpanGranule;
  const std::int64_t most =
      is_half(dtype_) ? std::min<std::int64_t>(kernels::MuonMatrices::kMost, kMostElements / elements) : 1;
  const auto found = std::ranges::find_if(batches_, [&](const Batch& batch) {
    return batch.rows == rows && batch.columns == columns && batch.places.count < most;
  });
  if (found != batches_.end()) {
    found->places.first[found->places.count++] = first.first;
    return;
  }
  Batch batch{.offset = parameter.offset(), .rows = rows, .columns = columns};
  const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
  batch.places = {.first = {first.first},
                  .count = 1,
                  .chunks = first.chunks,
                  .elements = elements,
                  .values = parameter.shape().elements(),
                  .scale = static_cast<float>(std::sqrt(std::max(1.0, ratio))),
                  .norm = std::sqrt(static_cast<float>(rows))};
  batches_.push_back(batch);
}

/// The longest batches first, each to the lane that has the least to do. On the CPU, and where all are large, one lane.
void Muon::make_lanes(const Context& context) {
  if (batches_.empty()) return;
  const auto elements_of = [](const Batch& batch) { return batch.places.count * batch.places.elements; };
  const auto work_of = [&](const Batch& batch) {
    return static_cast<double>(elements_of(batch)) * static_cast<double>(batch.side());
  };
  std::vector<std::size_t> order(batches_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](std::size_t i) { return work_of(batches_[i]); });
  const std::size_t most = context.device.kind == DeviceKind::cuda ? kMostLanes : 1;  // in plans, too
  lanes_.resize(1);
  for (const std::size_t i : order) {
    Lane* lane = &lanes_.front();
    if (elements_of(batches_[i]) <= kMostBeside) {
      lane = &*std::ranges::min_element(lanes_, {}, &Lane::work);
      if (lane->work > 0 && lanes_.size() < most) lane = &lanes_.emplace_back();
    }
    lane->batches.push_back(i);
    lane->work += work_of(batches_[i]);
  }
  for (Lane& lane : lanes_) {
    allocate_workspace(context, lane);
    if (&lane == &lanes_.front() || context.device.meta) continue;
    lane.stream.emplace(context.device);
    lane.done.emplace(context.device);
  }
  if (lanes_.size() > 1 && !context.device.meta) begun_.emplace(context.device);
}

void Muon::allocate_workspace(const Context& context, Lane& lane) const {
  std::int64_t elements = 0, others = 0, squares = 0;
  std::size_t scratch = 0;
  for (const std::size_t i : lane.batches) {
    const Batch& batch = batches_[i];
    const std::int64_t count = batch.places.count, own = count * batch.places.elements;
    elements = std::max(elements, own);
    if (count > 1) others = std::max(others, own);
    squares = std::max(squares, count * batch.squares().stride);
    for (const kernels::MatmulShape& shape :
         {gram_shape(batch.rows, batch.columns), square_shape(batch.side()), step_shape(batch.rows, batch.columns)})
      scratch = std::max(scratch, kernels::matmul_workspace_bytes(shape, dtype_, dtype_, context.device.kind));
  }
  lane.x = context.allocate({elements}, dtype_, Category::optimizer);
  if (others > 0) lane.other = context.allocate({others}, dtype_, Category::optimizer);
  lane.gram = context.allocate({squares}, dtype_, Category::optimizer);
  lane.square = context.allocate({squares}, dtype_, Category::optimizer);
  lane.scratch = context.allocate({static_cast<std::int64_t>(scratch)}, DType::uint8, Category::optimizer);
}

void Muon::multiply(const Context& context, const Lane& lane, const kernels::MatmulShape& shape,
                    const kernels::MatmulBatch& batch, const void* a, const void* b, void* to) const {
  BANTAM_KERNEL(context.exec, batched_matmul, shape, batch, dtype_, a, b,
                kernels::MatmulOutput{.data = to, .dtype = dtype_},
                kernels::Workspace{lane.scratch.data(), lane.scratch.bytes()});
}

/// Where X of a batch lies after the first step, and every second one from there.
void* Muon::other_place(const kernels::UpdateArena& arena, const Lane& lane, const Batch& batch) const {
  return batch.places.count > 1 ? lane.other.data() : arena.moment2 + batch.offset;
}

/// u = moment2 of the matrices becomes nearly orthogonal: X, whose last place is returned.
const void* Muon::orthogonalize(const Context& context, const kernels::UpdateArena& arena, const Lane& lane,
                                const Batch& batch) const {
  const bool wide = batch.rows <= batch.columns;
  const std::int64_t count = batch.places.count, elements = batch.places.elements;
  const kernels::MuonSquares squares = batch.squares();
  const std::int64_t square_stride = squares.stride;
  const kernels::MatmulBatch of_step{count, wide ? square_stride : elements, wide ? elements : square_stride, elements};
  void *x = lane.x.data(), *next = other_place(arena, lane, batch);
  void *const gram = lane.gram.data(), *const square = lane.square.data();
  BANTAM_KERNEL(context.exec, muon_normalize, arena, batch.places, dtype_, x);
  for (int step = 0; step < steps_; ++step) {
    multiply(context, lane, gram_shape(batch.rows, batch.columns), {count, elements, elements, square_stride}, x, x,
             gram);
    multiply(context, lane, square_shape(batch.side()), {count, square_stride, square_stride, square_stride}, gram,
             gram, square);
    BANTAM_KERNEL(context.exec, muon_polynomial, squares, polynomial_, dtype_, gram, square, square);
    multiply(context, lane, step_shape(batch.rows, batch.columns), of_step, wide ? square : x, wide ? x : square, next);
    std::swap(x, next);
  }
  return x;
}

void Muon::run_lane(const Context& context, const kernels::UpdateArena& arena, const Lane& lane,
                    const kernels::UpdateControl* control) const {
  for (const std::size_t i : lane.batches) {
    const Batch& batch = batches_[i];
    const void* const x = orthogonalize(context, arena, lane, batch);
    BANTAM_KERNEL(context.exec, muon_apply, arena, batch.places, normalization_, dtype_, x, control);
  }
}

void Muon::move(const Context& context, kernels::UpdateArena arena, const kernels::UpdateControl* control) const {
  if (batches_.empty()) return;
  arena.chunks = table_.chunks();
  BANTAM_KERNEL(context.exec, muon_momentum, arena, nesterov_, normalization_, control);
  if (begun_) begun_->record(context.stream);
  for (const Lane& lane : lanes_) {
    if (!lane.stream) continue;
    Context beside = context;
    beside.stream = beside.exec.stream = lane.stream->get();
    begun_->make_wait(beside.stream);
    run_lane(beside, arena, lane, control);
    lane.done->record(beside.stream);
  }
  run_lane(context, arena, lanes_.front(), control);
  for (const Lane& lane : lanes_)
    if (lane.stream)
      lane.done->make_wait(context.stream);
    else if (&lane != &lanes_.front())
      run_lane(context, arena, lane, control);  // on a meta device
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
