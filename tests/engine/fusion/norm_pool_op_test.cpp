// Batch norm and max pooling as one op: the kernels against the reference in double and the two layers' kernels, the op
// against the two ops, bit for bit but for the order of CUDA's sums, which nodes of a graph become it, and models that
// train the same with it and without.
#include <bit>
#include <cmath>
#include <limits>

#include "bantam/engine/autograd/tensor_notes.h"
#include "bantam/engine/fusion/fused_ops.h"
#include "bantam/engine/fusion/fusion.h"
#include "bantam/engine/graph/graph.h"
#include "bantam/engine/model/lower.h"
#include "bantam/engine/ops/pool2d.h"
#include "bantam/engine/plan/step_plan.h"
#include "bantam/kernels/norm/batch_norm_reference.h"
#include "bantam/kernels/pool/norm_pool.h"
#include "bantam/kernels/pool/pool2d_reference.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/fixed_norm.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::norm_pool_op_test {
namespace {

using kernels::Pool2dShape;
using testing::as_double;
using testing::bits_of;
using testing::EngineTest;
using testing::random_values;

constexpr ActivationFunction kRelu{Activation::relu};
constexpr float kEpsilon = 1e-3f;

/// Windows that overlap, that do not, with gaps between them, padded on some sides; images that they do not fill.
std::vector<Pool2dShape> shapes_of(std::int64_t channels) {
  const std::int64_t c = channels;
  return {{2, 8, 6, c, 2, 2, 2, 2},
          {2, 7, 9, c, 2, 2, 2, 2},
          {1, 7, 9, c, 2, 2, 2, 2, 0, 1, 1, 0},
          {2, 9, 8, c, 3, 3, 2, 2, 1, 1, 1, 1},
          {3, 10, 13, c, 3, 3, 2, 2},
          {1, 9, 9, c, 3, 3, 2, 2, 2, 0, 2, 0},
          {1, 6, 7, c, 3, 3, 1, 1, 0, 2, 1, 1},
          {1, 11, 8, c, 2, 2, 3, 3},
          {2, 5, 12, c, 1, 4, 1, 3, 0, 0, 2, 1},
          {3, 9, 10, c, 9, 10, 9, 10},
          {2, 8, 8, c, 3, 3, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1},  // ceil mode
          {1, 7, 10, c, 2, 3, 2, 4, 0, 0, 1, 0, 1, 1, 1, 0}};
}

/// Windows of 3x3 at stride 2, which CUDA has kernels for: without padding and with padding, also more of it below and
/// at the right than windows need; last windows of a single row and column; more windows in a column than a thread has.
std::vector<Pool2dShape> three_shapes(std::int64_t channels) {
  const std::int64_t c = channels;
  return {{3, 40, 33, c, 3, 3, 2, 2, 1, 1, 1, 1}, {2, 37, 5, c, 3, 3, 2, 2},
          {2, 16, 16, c, 3, 3, 2, 2, 1, 1, 1, 1}, {2, 12, 11, c, 3, 3, 2, 2, 1, 0, 1, 0},
          {1, 4, 4, c, 3, 3, 2, 2, 1, 2, 1, 2},   {1, 8, 20, c, 3, 3, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1}};
}

std::vector<Pool2dShape> all_shapes(std::int64_t channels) {
  std::vector<Pool2dShape> all = shapes_of(channels);
  for (const Pool2dShape& s : three_shapes(channels)) all.push_back(s);
  return all;
}

std::string name_of(const Pool2dShape& s) {
  return (::testing::Message() << s.batch << "x" << s.in_h << "x" << s.in_w << "x" << s.channels << " window "
                               << s.window_h << "x" << s.window_w << " stride " << s.stride_h << "," << s.stride_w)
      .GetString();
}

// The kernels.

class NormPoolKernelTest : public testing::DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, NormPoolKernelTest, ::testing::ValuesIn(testing::test_devices()),
                         testing::device_test_name);

/// The CPU's kernels run everything, also what is not worth it.
bool runs(Device device, const Pool2dShape& s, ActivationFunction f, DType dtype) {
  return device.is_cpu() || kernels::norm_pool_supports(s, f, dtype, device.kind);
}

/// What the kernels read, and the same in double.
struct Inputs {
  Inputs(const Pool2dShape& s, DType dtype, ActivationFunction f)
      : x(random_values(s.x_elements(), 1, dtype, -2, 3)),
        dy(random_values(s.y_elements(), 2, dtype)),
        scale(random_values(s.channels, 3, DType::float32, 0.5f, 2)),
        shift(random_values(s.channels, 4)),
        affine{as_double(scale), as_double(shift), f},
        norm(kernels::reference::batch_norm_forward_training<double>(kernels::norm_of_pool(s), as_double(x), affine,
                                                                     kEpsilon)) {}
  std::vector<float> x, dy, scale, shift;
  kernels::reference::Affine<double> affine;
  kernels::reference::BatchNormTraining<double> norm;
};

/// Both kernels on a device, from statistics rounded to float32. With `start` gradients of scale and shift are added.
struct Results {
  Results(testing::KernelDevice& device, const Pool2dShape& s, DType dtype, const Inputs& in, float start = 0)
      : y(device, s.y_elements(), dtype),
        winner(device,
               static_cast<std::size_t>(s.y_elements() * kernels::norm_pool_winner_bytes(device.exec().device.kind))),
        dx(device, s.x_elements(), dtype),
        dscale(device, std::vector<float>(in.scale.size(), start)),
        dshift(device, std::vector<float>(in.scale.size(), start)) {
    const testing::DeviceBuffer x(device, in.x, dtype), dy(device, in.dy, dtype),
        scale(device, in.scale, DType::float32), shift(device, in.shift, DType::float32),
        mean(device, {in.norm.mean.begin(), in.norm.mean.end()}, DType::float32),
        inv_std(device, {in.norm.inv_std.begin(), in.norm.inv_std.end()}, DType::float32);
    const kernels::Exec& exec = device.exec();
    testing::GuardedBytes workspace(
        device, kernels::batch_norm_workspace_bytes(kernels::norm_of_pool(s), dtype, exec.device.kind));
    const kernels::NormOperand norm{.x = x.data(),
                                    .affine = {scale.as<float>(), shift.as<float>(), in.affine.activation},
                                    .mean = mean.as<float>(),
                                    .inv_std = inv_std.as<float>()};
    const kernels::NormGradients to{dx.data(), dscale.as<float>(), dshift.as<float>(), start != 0};
    BANTAM_KERNEL(exec, norm_pool_forward, s, dtype, norm, y.data(), winner.data(), workspace.workspace());
    BANTAM_KERNEL(exec, norm_pool_backward, s, dtype, norm, dy.data(), winner.data(), to, workspace.workspace());
    device.synchronize();
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = winner.download_bytes();
    for (const testing::GuardedBuffer* buffer : {&y, &dx, &dscale, &dshift})
      for (const std::uint8_t byte : buffer->download_bytes()) all.push_back(byte);
    return all;
  }
  std::vector<std::uint16_t> winners() const {
    const std::vector<std::uint8_t> bytes = winner.download_bytes();
    if (bytes.size() == y.download().size()) return {bytes.begin(), bytes.end()};
    return winner.download_as<std::uint16_t>();
  }
  testing::GuardedBuffer y;
  testing::GuardedBytes winner;
  testing::GuardedBuffer dx, dscale, dshift;
};

/// The elements of x that the windows' winners name; none (-1) where one names padding.
std::vector<std::size_t> won_elements(const Pool2dShape& s, const std::vector<std::uint16_t>& winner) {
  std::vector<std::size_t> won(winner.size(), static_cast<std::size_t>(-1));
  kernels::reference::visit_pool2d(s, [&](std::size_t o, std::size_t i, std::int64_t place) {
    if (winner[o] == place) won[o] = i;
  });
  return won;
}

/// The gradient of the pooling's input, rounded to `dtype` as if it were written.
std::vector<double> gathered(const Pool2dShape& s, DType dtype, const Inputs& in,
                             const std::vector<std::uint16_t>& winner) {
  std::vector<double> gradient = kernels::reference::max_pool2d_grad_input(s, as_double(in.dy), winner);
  for (double& v : gradient) v = static_cast<double>(testing::rounded(static_cast<float>(v), dtype));
  return gradient;
}

TEST_P(NormPoolKernelTest, MatchesTheReference) {
  for (const DType dtype : testing::kFloatingTypes)
    for (const std::int64_t channels : {1, 3, 8, 20, 64})
      for (const Pool2dShape& s : all_shapes(channels))
        for (const ActivationFunction f : {ActivationFunction{}, kRelu}) {
          if (!runs(GetParam(), s, f, dtype)) continue;
          SCOPED_TRACE(std::string(to_string(dtype)) + " " + name_of(s));
          const Inputs in(s, dtype, f);
          const Results r(device(), s, dtype, in);
          const auto most = kernels::reference::max_pool2d_forward(s, in.norm.y);
          const double tolerance = 8 * testing::unit_roundoff(dtype) + 1e-6;
          testing::expect_close(r.y.download(), most.y, tolerance);
          // Rounding may make equals of two values, of which the first then wins: as good a winner.
          const std::vector<std::uint16_t> winner = r.winners();
          const std::vector<std::size_t> won = won_elements(s, winner);
          for (std::size_t o = 0; o < won.size(); ++o)
            ASSERT_NEAR(in.norm.y.at(won[o]), most.y[o], tolerance * std::max(1.0, std::abs(most.y[o])));
          const auto expected = kernels::reference::batch_norm_backward_training(
              kernels::norm_of_pool(s), as_double(in.x), gathered(s, dtype, in, winner), in.affine, in.norm.mean,
              in.norm.inv_std);
          const double rounding = 8 * testing::sum_tolerance(dtype, s.x_elements() / s.channels);
          EXPECT_LT(testing::relative_error(r.dx.download(), expected.dx), rounding);
          EXPECT_LT(testing::relative_error(r.dscale.download(), expected.dscale), rounding);
          EXPECT_LT(testing::relative_error(r.dshift.download(), expected.dshift), rounding);
        }
}

/// y's bits and the winners of the two layers' kernels.
std::pair<std::vector<float>, std::vector<std::uint16_t>> one_after_another(testing::KernelDevice& device,
                                                                            const Pool2dShape& s, DType dtype,
                                                                            const Inputs& in) {
  const testing::DeviceBuffer x(device, in.x, dtype), scale(device, in.scale, DType::float32),
      shift(device, in.shift, DType::float32), mean(device, {in.norm.mean.begin(), in.norm.mean.end()}, DType::float32),
      inv_std(device, {in.norm.inv_std.begin(), in.norm.inv_std.end()}, DType::float32);
  const testing::GuardedBuffer a(device, s.x_elements(), dtype), y(device, s.y_elements(), dtype);
  const testing::GuardedBytes winner(device, static_cast<std::size_t>(s.y_elements()) * 2);
  const kernels::BatchNormAffine affine{scale.as<float>(), shift.as<float>(), in.affine.activation};
  BANTAM_KERNEL(device.exec(), batch_norm_apply, kernels::norm_of_pool(s), dtype, x.data(), affine, mean.as<float>(),
                inv_std.as<float>(), a.data());
  BANTAM_KERNEL(device.exec(), max_pool2d_forward, s, dtype, a.data(), y.data(), winner.as<std::uint16_t>());
  device.synchronize();
  return {y.download(), winner.download_as<std::uint16_t>()};
}

TEST_P(NormPoolKernelTest, ForwardHasTheBitsOfTheTwoKernelsAndBackwardTheSameBitsEachTime) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : {DType::float16, DType::bfloat16})
    for (const std::int64_t channels : {8, 24, 64, 136})
      for (const Pool2dShape& s : three_shapes(channels))
        for (const bool special : {false, true}) {
          SCOPED_TRACE(std::string(to_string(dtype)) + " " + name_of(s) + (special ? " special" : ""));
          Inputs in(s, dtype, kRelu);
          if (special)  // ties, and now and then a value that is not finite
            for (std::size_t i = 0; i < in.x.size(); ++i) {
              in.x[i] = std::round(in.x[i]);
              if (i % 37 == 5) in.x[i] = std::numeric_limits<float>::quiet_NaN();
              if (i % 41 == 7) in.x[i] = i % 2 == 0 ? infinity : -infinity;
            }
          const Results r(device(), s, dtype, in);
          const auto [y, winners] = one_after_another(device(), s, dtype, in);
          ASSERT_EQ(bits_of(r.y.download()), bits_of(y));
          ASSERT_EQ(r.winners(), winners);
          ASSERT_EQ(Results(device(), s, dtype, in).bytes(), r.bytes());
        }
}

TEST_P(NormPoolKernelTest, GradientsOfTheNormAreAddedToWhereTheyAccumulate) {
  const Pool2dShape s{2, 9, 8, 24, 3, 3, 2, 2, 1, 1, 1, 1};
  const Inputs in(s, DType::float16, kRelu);
  const Results over(device(), s, DType::float16, in), added(device(), s, DType::float16, in, 8.0f);
  for (const auto vector : {&Results::dscale, &Results::dshift}) {
    std::vector<float> expected = (over.*vector).download();
    for (float& v : expected) v += 8.0f;
    EXPECT_EQ((added.*vector).download(), expected);
  }
  EXPECT_EQ(added.dx.download_bytes(), over.dx.download_bytes());
}

TEST_P(NormPoolKernelTest, AnEmptyBatchIsNothing) {
  const Pool2dShape s{0, 4, 4, 8, 3, 3, 2, 2, 1, 1, 1, 1};
  Inputs in({1, 4, 4, 8, 3, 3, 2, 2, 1, 1, 1, 1}, DType::float16, kRelu);
  in.x.clear();
  in.dy.clear();
  EXPECT_NO_THROW(Results(device(), s, DType::float16, in));
}

TEST_P(NormPoolKernelTest, RefusesOnCudaWhatItDoesNotSupport) {
  if (device().exec().device.is_cpu()) GTEST_SKIP() << "the CPU runs everything";
  for (const Pool2dShape& s : {Pool2dShape{2, 8, 6, 8, 2, 2, 2, 2}, Pool2dShape{2, 9, 8, 20, 3, 3, 2, 2, 1, 1, 1, 1}})
    EXPECT_THROW(Results(device(), s, DType::float16, Inputs(s, DType::float16, kRelu)), ShapeError);
}

TEST(NormPoolCpuTest, SameBitsForAllThreads) {
  for (const Pool2dShape& s :
       {Pool2dShape{6, 28, 28, 32, 2, 2, 2, 2}, Pool2dShape{4, 33, 31, 20, 3, 3, 2, 2, 1, 1, 1, 1}}) {
    const Inputs in(s, DType::float32, kRelu);
    testing::expect_same_bits_for_all_threads(
        [&](testing::KernelDevice& device) { return Results(device, s, DType::float32, in).bytes(); });
  }
}

TEST(NormPoolReferenceTest, GradientsAreTheDerivatives) {
  const Pool2dShape s{2, 5, 6, 2, 3, 3, 2, 2, 1, 1, 1, 1};
  const Inputs in(s, DType::float32, {Activation::leaky_relu, 0.25f});
  const auto pooled = [&](const std::vector<double>& x) {
    return kernels::reference::max_pool2d_forward(
        s, kernels::reference::batch_norm_forward_training<double>(kernels::norm_of_pool(s), x, in.affine, kEpsilon).y);
  };
  const auto dx = kernels::reference::batch_norm_backward_training(
                      kernels::norm_of_pool(s), as_double(in.x),
                      kernels::reference::max_pool2d_grad_input(s, as_double(in.dy), pooled(as_double(in.x)).winner),
                      in.affine, in.norm.mean, in.norm.inv_std)
                      .dx;
  testing::expect_gradient(as_double(in.x), dx, [&](const std::vector<double>& x) {
    const std::vector<double> y = pooled(x).y;
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * static_cast<double>(in.dy[i]);
    return sum;
  });
}

// The op.

class NormPoolOpTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(NormPoolOpTest);

struct Case {
  Pool2dShape shape;
  Precision precision;
  ActivationFunction f = kRelu;
  bool ties = false;   ///< x has few different values
  bool known = false;  ///< x comes with statistics
};

ops::PoolWindow window_of(const Pool2dShape& s) {
  return {{.kernel = {s.window_h, s.window_w},
           .stride = {s.stride_h, s.stride_w},
           .padding = {PaddingKind::explicit_, s.pad_top, s.pad_bottom, s.pad_left, s.pad_right}},
          s.overhang_h > 0 || s.overhang_w > 0};
}

Tensor input_of(const Context& context, const Case& c) {
  const Shape shape{c.shape.batch, c.shape.in_h, c.shape.in_w, c.shape.channels};
  std::vector<float> values = testing::random_floats(shape.elements(), 1, -2, 3);
  if (c.ties)
    for (float& v : values) v = std::round(v);
  return ops::cast(context, context.upload(shape, values.data()), context.precision.compute());
}

/// Bits of the output, of running statistics and of the gradients of x, scale and shift.
std::vector<std::vector<std::uint32_t>> results(Runtime& runtime, Device device, const Case& c, bool fused) {
  Context context = Context::make(runtime, device, c.precision);
  Tape tape;
  context.tape = &tape;
  testing::LeafTensors leaf(runtime);
  const auto vector = [&](std::uint64_t seed, float low, float high) {
    return context.upload({c.shape.channels}, testing::random_floats(c.shape.channels, seed, low, high).data());
  };
  Tensor x = leaf(input_of(context, c));
  if (c.known) set_statistics(x, {vector(6, -0.5f, 0.5f), vector(7, 0.5f, 1)});
  const Norm norm{.scale = leaf(vector(2, -1.5f, 1.5f)),
                  .shift = leaf(vector(3, -0.5f, 0.5f)),
                  .next_running_mean = vector(4, -1, 1),
                  .next_running_variance = vector(5, 0.5f, 1.5f),
                  .running = {.rate = 0.3f},
                  .activation = c.f};
  const ops::PoolWindow pool = window_of(c.shape);
  const Tensor y = fused ? ops::norm_pool(context, x, norm, pool)
                         : ops::max_pool2d(context, ops::batch_norm(context, x, norm), pool.window, pool.ceil_mode);
  std::vector<std::vector<std::uint32_t>> all;
  for (const Tensor* value : {&y, &norm.next_running_mean, &norm.next_running_variance})
    all.push_back(bits_of(to_host_floats(*value, context.stream)));
  x = Tensor();
  GradientStore store = tape.backward(context, y, testing::random_tensor(context, y.shape(), 8));
  for (const std::uint64_t id : leaf.ids()) all.push_back(bits_of(to_host_floats(store.pop(id), context.stream)));
  return all;
}

/// Expects the bits of the two ops; where CUDA fuses them, gradients up to the order of their sums: Σdz and Σdz·x̂ are
/// float32 sums, and dx is rounded to the compute type after a constant and a slope that they move.
void expect_two_ops(Runtime& runtime, Device device, const Case& c) {
  const auto fused = results(runtime, device, c, true), apart = results(runtime, device, c, false);
  ASSERT_EQ(fused.size(), apart.size());
  constexpr std::size_t kForward = 3;  // y and running statistics
  const DType dtype = c.precision.compute();
  const bool same = device.is_cpu() || !kernels::norm_pool_supports(c.shape, c.f, dtype, device.kind);
  for (std::size_t i = 0; i < fused.size(); ++i) {
    if (same || i < kForward) {
      ASSERT_EQ(fused[i], apart[i]) << "result " << i;
      continue;
    }
    std::vector<float> actual, expected;
    for (const std::uint32_t bits : fused[i]) actual.push_back(std::bit_cast<float>(bits));
    for (const std::uint32_t bits : apart[i]) expected.push_back(std::bit_cast<float>(bits));
    ASSERT_LE(testing::relative_error(actual, expected), testing::sum_tolerance(dtype, c.shape.x_elements())) << i;
  }
}

constexpr PrecisionKind kPrecisions[] = {PrecisionKind::float32, PrecisionKind::mixed_float16,
                                         PrecisionKind::mixed_bfloat16};

TEST_P(NormPoolOpTest, HasTheBitsOfTheTwoOps) {
  for (const PrecisionKind precision : kPrecisions)
    for (const std::int64_t channels : {1, 3, 8, 20, 64, 65})
      for (const Pool2dShape& shape : shapes_of(channels))
        for (const bool ties : {false, true}) {
          SCOPED_TRACE(std::string(to_string(Precision{precision})) + " " + name_of(shape) + (ties ? " ties" : ""));
          expect_two_ops(runtime(), device(), {shape, {precision}, kRelu, ties});
        }
}

TEST_P(NormPoolOpTest, HasTheBitsOfTheTwoOpsWithAnyActivationAndStatistics) {
  for (const PrecisionKind precision : kPrecisions)
    for (const ActivationFunction f : {ActivationFunction{}, kRelu, ActivationFunction{Activation::relu6},
                                       ActivationFunction{Activation::leaky_relu, 0.25f},
                                       ActivationFunction{Activation::silu}, ActivationFunction{Activation::tanh}})
      for (const bool known : {false, true})
        for (const Pool2dShape& shape :
             {Pool2dShape{8, 28, 28, 32, 2, 2, 2, 2}, Pool2dShape{3, 40, 33, 64, 3, 3, 2, 2, 1, 1, 1, 1}}) {
          SCOPED_TRACE(std::string(to_string(Precision{precision})) + " " + name_of(shape) + " " +
                       std::string(to_string(f.kind)) + (known ? " known" : ""));
          expect_two_ops(runtime(), device(), {shape, {precision}, f, false, known});
        }
}

TEST_P(NormPoolOpTest, RefusesWhatThePoolingRefuses) {
  const Context context = this->context();
  const Tensor x = testing::random_tensor(context, {1, 4, 4, 8}, 1);
  EXPECT_THROW((void)ops::norm_pool(context, x, {}, {{.kernel = {5, 5}}}), ShapeError);
  EXPECT_THROW((void)ops::norm_pool(context, x, {}, {{.kernel = {2, 2}, .padding = Padding::symmetric(2)}}),
               ShapeError);
}

// Graphs.

/// Pooling of both usual kinds. Convolutions have a bias: they compute no statistics, whose bits would be others.
Graph pooled_network() {
  Graph graph({14, 14, 3});
  graph.add("first", conv2d({.filters = 8, .padding = Padding::same()}));
  graph.add("first_norm", batch_norm({.rate = 0.1f, .activation = {Activation::relu}}));
  graph.add("first_pool", max_pool({.window = {3, 3}, .stride = {2, 2}, .padding = Padding::symmetric(1)}));
  graph.add("block/conv", conv2d({.filters = 16, .padding = Padding::same()}));
  graph.add("block/norm", batch_norm({.rate = 0.1f, .activation = {Activation::relu6}}));
  graph.add("block/pool", max_pool());
  graph.add(flatten());
  graph.add(dense({.units = 5}));
  return graph;
}

/// The fusions of a graph on a kind of device, "first..last".
std::vector<std::string> found(const Graph& graph, DeviceKind device, DType compute = DType::float16) {
  std::vector<std::string> all;
  for (const Fusion& fusion : find_fusions(graph, {.compute = compute, .device = device}))
    all.push_back(std::string(fusion.pattern->name) + " " + graph.node(fusion.first).name + ".." +
                  graph.node(fusion.last).name);
  return all;
}

TEST(NormPoolPattern, IsNormAndMaxPool) {
  EXPECT_EQ(found(pooled_network(), DeviceKind::cpu),
            (std::vector<std::string>{"norm_pool first_norm..first_pool", "norm_pool block/norm..block/pool"}));
  EXPECT_EQ(found(pooled_network(), DeviceKind::cuda), std::vector<std::string>{"norm_pool first_norm..first_pool"})
      << "relu and 3x3 alone";
  EXPECT_TRUE(found(pooled_network(), DeviceKind::cuda, DType::float32).empty());
  Graph average({8, 8, 8});
  average.add(batch_norm());
  average.add(average_pool());
  EXPECT_TRUE(found(average, DeviceKind::cpu).empty());
  Graph costly({8, 8, 8});
  costly.add(batch_norm({.activation = {Activation::gelu}}));
  costly.add(max_pool({.window = {3, 3}, .stride = {2, 2}}));
  EXPECT_TRUE(found(costly, DeviceKind::cpu).empty()) << "windows overlap, gelu would be computed for each";
  Graph dilated({8, 8, 8});
  dilated.add(batch_norm());
  dilated.add(max_pool({.dilation = {1, 2}}));
  EXPECT_TRUE(found(dilated, DeviceKind::cpu).empty()) << "the windows have gaps";
  Graph shared({8, 8, 8});
  const NodeId norm = shared.add(batch_norm());
  const NodeId pool = shared.add("pool", max_pool(), {norm});
  shared.add("sum", add(), {pool, shared.add("other", average_pool(), {norm})});
  EXPECT_TRUE(found(shared, DeviceKind::cpu).empty()) << "the norm's output has another reader";
}

struct Outcome {
  std::vector<std::uint32_t> weights, statistics;
  MemoryStats memory;
};

/// Three updates, each of one batch of 6.
Outcome trained(Device device, const ModelOptions& options) {
  Runtime fresh({.threads = 2});
  Model model(fresh, device, pooled_network(), options);
  Optimizer optimizer(model, {});
  TrainingStep step(model, optimizer, {});
  step.prepare({.batches = {6}});
  for (int i = 0; i < 3; ++i)
    step.step(testing::make_batch(model.context(Pass::train), model.graph().input_shape(), 5, i * 6, 6));
  const Stream stream = fresh.stream(device);
  return {bits_of(to_host<float>(model.parameters().master(), stream)),
          bits_of(to_host<float>(model.buffers().current(), stream)), fresh.allocator(device).stats()};
}

TEST_P(NormPoolOpTest, NeitherFusionNorRecomputeChangesABitButOfCudasSumsAndPlansAreTheTruth) {
  using Kind = RecomputeOptions::Kind;
  for (const PrecisionKind precision : kPrecisions) {
    ModelOptions options{.precision = {precision}, .seed = 3, .fusion = false};
    const Outcome apart = trained(device(), options);
    options.fusion = true;
    const Outcome whole = trained(device(), options);
    if (device().is_cpu() || precision == PrecisionKind::float32) {
      EXPECT_EQ(whole.weights, apart.weights) << to_string(options.precision);
      EXPECT_EQ(whole.statistics, apart.statistics) << to_string(options.precision);
    }
    for (const RecomputeOptions& recompute :
         {RecomputeOptions{}, RecomputeOptions{.derive = Derive::cheap}, RecomputeOptions{.derive = Derive::inner},
          RecomputeOptions{.kind = Kind::all}, RecomputeOptions{.kind = Kind::named, .names = {"first_norm"}},
          RecomputeOptions{.kind = Kind::named, .names = {"first..block"}, .derive = Derive::inner}}) {
      options.recompute = recompute;
      const Outcome fused = trained(device(), options);
      EXPECT_EQ(fused.weights, whole.weights) << to_string(options.precision);
      EXPECT_EQ(fused.statistics, whole.statistics) << to_string(options.precision);
      EXPECT_EQ(fused.memory.departures, 0u);
      if (precision != PrecisionKind::float32) continue;  // the test's own batches are cast on the device
      const StepPlanOptions planned{.model = options, .batch = 6, .device = device()};
      EXPECT_EQ(fused.memory.peak_bytes, plan_step(pooled_network(), planned).peak_bytes);
    }
  }
}

TEST_P(NormPoolOpTest, EvaluationIsThatOfTheTwoLayers) {
  const auto evaluated = [&](bool fusion) {
    Model model(runtime(), device(), pooled_network(), {.seed = 3, .fusion = fusion});
    const Context context = model.context(Pass::evaluate);
    const Batch batch = testing::make_batch(context, model.graph().input_shape(), 5, 0, 6);
    return bits_of(to_host_floats(model.forward(context, batch.at(kImages)), context.stream));
  };
  EXPECT_EQ(evaluated(true), evaluated(false));
}

}  // namespace
}  // namespace bantam::norm_pool_op_test
