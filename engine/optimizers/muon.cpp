// Muon's matrices, and the Newton-Schulz steps as batches of matrix products; the rule, and its options.
#include "bantam/engine/optimizers/muon.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/base/text.h"
#include "bantam/engine/autograd/parameter_groups.h"
#include "bantam/engine/optimizers/checks.h"
#include "bantam/engine/optimizers/kernel_rule.h"

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
  constexpr std::int64_t kStep = kernels::kWeightBlockSize;
  return (elements + kStep - 1) / kStep * kStep;
}

/// A weight as a matrix of a row an output. Tables of vectors, such as position embeddings, are none: they do not
/// decay.
bool is_matrix(const Parameter& parameter) {
  const int rank = parameter.shape().rank();
  return parameter.spec().decays && (rank == 2 || rank == 4);
}

/// |a·s + b·s³ + c·s⁵| at its largest for s in [0, most]: at the end, or where a + 3b·s² + 5c·s⁴ = 0.
double largest_of_step(const std::array<float, 3>& coefficients, double most) {
  const double a = coefficients[0], b = coefficients[1], c = coefficients[2];
  const auto p = [&](double s) { return std::abs(s * (a + s * s * (b + s * s * c))); };
  double largest = p(most);
  const auto look_at = [&](double square) {
    if (square > 0 && square < most * most) largest = std::max(largest, p(std::sqrt(square)));
  };
  const double root = 9 * b * b - 20 * a * c;
  if (c == 0 && b != 0) look_at(-a / (3 * b));
  if (c != 0 && root >= 0)
    for (const double sign : {-1.0, 1.0}) look_at((-3 * b + sign * std::sqrt(root)) / (10 * c));
  return largest;
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
           const MuonOptions& options)
    : options_(options),
      polynomial_{options.coefficients[0], options.coefficients[1], options.coefficients[2]},
      normalization_{options.normalize_every},
      dtype_(parameters.compute_dtype()) {
  check_excluded(options.exclude, matrix_names(parameters));
  std::vector<std::uint8_t> matrices;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    matrices.push_back(moves(*parameters.spans()[i], options) ? 1 : 0);
    if (matrices[i] != 0) spans[i].frozen = 1;
  }
  table_ = SpanTable(context, parameters, matrices);
  rest_state_ = options.rest->make_state(context, parameters, spans);
  rest_spans_ = context.upload_bytes({static_cast<std::int64_t>(spans.size() * sizeof(spans[0]))}, DType::uint8,
                                     spans.data(), Category::optimizer);
  std::size_t chunk = 0;
  for (const Parameter* parameter : parameters.spans())
    if (moves(*parameter, options)) add_matrix(*parameter, chunk);
  make_lanes(context);
}

kernels::MuonSquares Muon::Batch::squares() const {
  return {.count = places.count, .n = side(), .stride = aligned(side() * side())};
}

/// Adds the matrix to the first batch of its shape that has room. In float32 each is alone: there its bits do not
/// depend on how many are alike, and products are long enough.
void Muon::add_matrix(const Parameter& parameter, std::size_t& chunk) {
  const kernels::SpanChunk& first = table_.list()[chunk];
  const std::int64_t rows = parameter.shape()[0], columns = parameter.shape().elements() / rows;
  std::int64_t elements = 0;
  for (std::int32_t i = 0; i < first.chunks; ++i, ++chunk)
    elements += table_.list()[chunk].weight_blocks * kernels::kWeightBlockSize;
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
  return batch.places.count > 1 ? lane.other.data() : arena.slots[1] + batch.offset;
}

/// u = slot 1 of the matrices becomes nearly orthogonal: X, whose last place is returned.
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
  for (int step = 0; step < options_.steps; ++step) {
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
  BANTAM_KERNEL(context.exec, muon_momentum, arena, options_.nesterov, normalization_, control);
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

void Muon::update(const Context& context, const UpdateCall& call) const {
  move(context, *call.arena, call.control);
  kernels::UpdateArena arena = *call.arena;
  arena.spans = rest_spans_.as<kernels::ArenaSpan>();
  arena.groups = call.rest_groups;
  UpdateCall rest = call;
  rest.arena = &arena;
  rest.groups = arena.groups;
  rest.state = rest_state_.get();
  options_.rest->apply(context, rest);
}

double largest_singular_value(const MuonOptions& options, double first) {
  double now = first, largest = 0;
  for (int step = 0; step < options.steps; ++step) {
    now = largest_of_step(options.coefficients, now);
    if (!std::isfinite(now)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, now);
  }
  return largest;
}

namespace {

/// Throws ConfigError where the steps are out of their ranges, or would make singular values too large.
void check_muon(const MuonOptions& o) {
  constexpr int kMostSteps = 10;
  if (o.steps < 1 || o.steps > kMostSteps)
    throw ConfigError(fmt::format("optimizer: muon's steps must be 1 to {}, got {}", kMostSteps, o.steps));
  if (o.normalize_every < 0)
    throw ConfigError(fmt::format("optimizer: normalize_weights must not be negative, got {}", o.normalize_every));
  using kernels::NewtonSchulz;
  const double largest = largest_singular_value(o, NewtonSchulz::kFirstSingularValue);
  if (!(largest <= NewtonSchulz::kMostSingularValue))
    throw ConfigError(
        fmt::format("optimizer: muon's coefficients [{}, {}, {}] take singular values up to {} to {:.4g} in {} steps; "
                    "at most {} is accepted",
                    o.coefficients[0], o.coefficients[1], o.coefficients[2], NewtonSchulz::kFirstSingularValue, largest,
                    o.steps, NewtonSchulz::kMostSingularValue));
}

/// Whether the rule can be muon's rest: that of another built-in optimizer.
bool may_be_rest(const UpdateRule& rule) { return rule.uses_update_kernels() && rule.rest() == nullptr; }

class MuonRule : public UpdateRule {
 public:
  explicit MuonRule(const MuonOptions& options) : options_(options) {
    if (options_.rest == nullptr) options_.rest = adamw();
    check_values(values());
    check_muon(options_);
    if (!may_be_rest(*options_.rest)) throw ConfigError("optimizer: muon's rest must be another built-in optimizer");
  }

  std::string_view kind() const override { return "muon"; }
  UpdateValues values() const override { return {options_.learning_rate, options_.weight_decay, options_.momentum}; }
  /// Momentum, and the memory in which matrices are made orthogonal.
  int slots() const override { return std::max(2, options_.rest->slots()); }
  std::unique_ptr<RuleState> make_state(const Context& context, const ParameterArena& parameters,
                                        const std::vector<kernels::ArenaSpan>& spans) const override {
    return std::make_unique<Muon>(parameters, spans, context, options_);
  }
  void apply(const Context& context, const UpdateCall& call) const override {
    static_cast<const Muon&>(*call.state).update(context, call);
  }
  bool supports_meta() const override { return true; }
  bool uses_update_kernels() const override { return true; }
  const UpdateRule* rest() const override { return options_.rest.get(); }
  const MuonOptions& options() const { return options_; }

 private:
  MuonOptions options_;
};

/// Keys that are optional, so that configurations without them resolve as they did.
void read_newton_schulz(ConfigMap& options, MuonOptions& muon) {
  const auto steps =
      options.find({"steps", "Newton-Schulz steps an update: more make the matrix more orthogonal.", "3", "5"});
  if (steps) muon.steps = static_cast<int>(steps->as_integer({.min = 1, .max = 10}));
  const auto coefficients = options.find(
      {"coefficients",
       "a, b and c of a step, which moves the matrix's singular values s to a·s + b·s³ + c·s⁵. Refused where one of up "
       "to 1.05 could pass 2 within `steps`.",
       "[3.4445, -4.775, 2.0315]", "Jordan's: [3.4445, -4.775, 2.0315]"});
  if (!coefficients) return;
  const std::vector<ConfigNode> items = coefficients->items();
  if (items.size() != muon.coefficients.size())
    coefficients->fail(fmt::format("coefficients are three numbers [a, b, c], got {}", items.size()));
  for (std::size_t i = 0; i < items.size(); ++i)
    muon.coefficients[i] = static_cast<float>(items[i].as_number({.min = -100, .max = 100}));
  try {
    check_muon(muon);
  } catch (const ConfigError& error) {
    coefficients->fail(error.what());
  }
}

/// Reads true (before every update) or {every: N}; 0: never.
std::int64_t read_normalize_weights(ConfigMap& options) {
  const auto node = options.find(
      {"normalize_weights",
       "Before an update each matrix is scaled to a Frobenius norm of √rows, so that a rate means the same step "
       "throughout a run. true: before every update; {every: N}: before the first and every N-th after it.",
       "true | {every: 2}", "false"});
  if (!node) return 0;
  if (!node->is_map()) return node->as_boolean() ? 1 : 0;
  ConfigMap inner = node->as_map();
  const std::int64_t every =
      inner.integer({"every", "Updates from one to the next.", "2"}, {.min = 1, .max = std::int64_t{1} << 40});
  inner.finish();
  return every;
}

std::vector<std::string> read_exclude(ConfigMap& options) {
  const auto node = options.find({"exclude",
                                  "Names of parameters of 2 or 4 dimensions (as in train.groups: * is any text, ? one "
                                  "character) that `rest` moves "
                                  "in place of Muon: often the last layer's. Each matches one at least.",
                                  "[head/weight]", "none"});
  return node ? node->as_texts() : std::vector<std::string>();
}

}  // namespace

const MuonOptions* muon_options(const UpdateRule& rule) {
  const auto* muon = dynamic_cast<const MuonRule*>(&rule);
  return muon != nullptr ? &muon->options() : nullptr;
}

RulePtr muon(const MuonOptions& options) { return std::make_shared<MuonRule>(options); }

OptimizerOptions read_muon(ConfigMap& options) {
  options.describe(
      "Muon (Jordan 2024): weights of convolutions and dense layers, as matrices of a row an output, move along their "
      "momentum made orthogonal; all other parameters by the optimizer named in `rest`. The matrix products run in the "
      "compute type: float32, or the half type of a mixed precision, with float32 sums. Keeps one float32 value a "
      "weight, and as many for its work.",
      "muon: {learning_rate: 0.02, momentum: 0.95, rest: {adamw: {learning_rate: 1.0e-3}}}");
  OptimizerReader reader(options);
  MuonOptions muon;
  muon.learning_rate = reader.learning_rate(0.02);
  muon.momentum = reader.momentum("Share of the mean of gradients that stays at each update.", 0.95);
  muon.nesterov = options.boolean(
      {"nesterov", "Nesterov's momentum: the newest gradient counts once more before the matrix is made orthogonal.",
       "false"},
      true);
  muon.weight_decay = reader.scheduled(
      {"weight_decay",
       "Each update shrinks the matrices by this times the learning rate (decoupled). 0: none. It may have a schedule.",
       "0.01"},
      kRates, 0.0, &OptimizerSchedules::weight_decay);
  read_newton_schulz(options, muon);
  muon.normalize_every = read_normalize_weights(options);
  muon.exclude = read_exclude(options);
  const ConfigNode rest = options.node({"rest",
                                        "What moves all other parameters: biases, norms, depthwise weights, and those "
                                        "in `exclude`. Its learning rate keeps its ratio to "
                                        "Muon's where a schedule moves that.",
                                        "adam | {sgd: {learning_rate: 0.1, momentum: 0.9}}"},
                                       "adamw");
  const OptimizerOptions others = read_registered(optimizers(), rest);
  if (!may_be_rest(*others.rule)) rest.fail("muon's rest must be another built-in optimizer");
  if (others.schedules.any()) rest.fail("muon's rest has no schedules of its own: it follows Muon's");
  muon.rest = others.rule;
  OptimizerOptions optimizer = reader.with(bantam::muon(muon));
  optimizer.decay_biases = others.decay_biases;
  return optimizer;
}

}  // namespace bantam
