// Expanding convolutions by algebra: every device against norm, convolution, norm and sum in double, forward, running
// statistics and all gradients, beside the errors of the same chain kernel by kernel; null vectors, accumulation, a
// residual with a norm, few rows, large means, channels that do not vary, determinism.
#include "bantam/kernels/expand/expand.h"

#include "bantam/kernels/elementwise/masked_activation.h"
#include "bantam/kernels/expand/expand_origin.h"
#include "bantam/kernels/expand/expand_parts.h"
#include "bantam/kernels/matmul/matmul_reference.h"
#include "bantam/kernels/norm/batch_norm_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::expand_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = ExpandShape;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr float kEpsilon = 1e-3f;
constexpr RunningUpdate kUpdate{.rate = 0.25f, .unbiased = true};
constexpr ActivationFunction kRelu{Activation::relu};

class ExpandTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, ExpandTest, ::testing::ValuesIn(test_devices()), device_test_name);

/// What varies from case to case.
struct Case {
  S shape;
  DType dtype = DType::float16;
  float shift = 0.0f;   ///< added to the first norm's shift: large means after its relu
  bool vectors = true;  ///< the norms have scale and shift
  bool norm_of_residual = false;
  bool accumulate = false;
  float dead = 0.0f;  ///< the share of the first channels of x that do not vary
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << to_string(c.dtype) << " " << c.shape.rows << ": " << c.shape.in << " to " << c.shape.out << ", shift "
             << c.shift;
}

/// A norm's vectors, and the batch's statistics of its input.
struct Vectors {
  Floats scale, shift, mean, inv_std;
  reference::Affine<double> affine(ActivationFunction f) const { return {as_double(scale), as_double(shift), f}; }
};

Vectors vectors(const Case& c, std::int64_t channels, std::uint64_t seed, float shift) {
  if (!c.vectors) return {};
  return {random_values(channels, seed, DType::float32, 0.6f, 1.4f),
          random_values(channels, seed + 1, DType::float32, shift - 0.5f, shift + 0.5f),
          {},
          {}};
}
void measure(Vectors& norm, const BatchNormShape& shape, const Floats& x) {
  const auto batch = reference::batch_norm_forward_training<double>(shape, as_double(x), {}, kEpsilon);
  norm.mean.assign(batch.mean.begin(), batch.mean.end());
  norm.inv_std.assign(batch.inv_std.begin(), batch.inv_std.end());
}

struct Inputs {
  explicit Inputs(const Case& c)
      : x(normal_values(c.shape.rows * c.shape.in, 1, 0.3)),
        w(random_values(c.shape.out * c.shape.in, 3, c.dtype, -0.2f, 0.2f)),
        residual(random_values(c.shape.rows * c.shape.out, 4, c.dtype, -0.5f, 1.0f)),
        dy(random_values(c.shape.rows * c.shape.out, 5, c.dtype, -0.9f, 1.0f)),
        other(random_values(c.shape.rows * c.shape.out, 6, c.dtype, -0.3f, 0.3f)),
        running_mean(random_values(c.shape.out, 8)),
        running_variance(random_values(c.shape.out, 9, DType::float32, 0.5f, 2.0f)),
        before(vectors(c, c.shape.in, 10, c.shift)),
        after(vectors(c, c.shape.out, 20, 0.0f)),
        beside(c.norm_of_residual ? vectors(c, c.shape.out, 30, 0.0f) : Vectors{}) {
    const auto dead = static_cast<std::size_t>(c.dead * static_cast<float>(c.shape.in));
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i % static_cast<std::size_t>(c.shape.in) < dead) x[i] = 0.25f;
      x[i] = rounded(x[i], c.dtype);
    }
    measure(before, {c.shape.rows, c.shape.in}, x);
    if (c.norm_of_residual) measure(beside, {c.shape.rows, c.shape.out}, residual);
  }
  Floats x, w, residual, dy, other, running_mean, running_variance;
  Vectors before, after, beside;
};

/// The values that a run of the kernels writes.
struct Values {
  Floats y, dz, dw, dscale, dshift, dscale_before, dshift_before, dx, running_mean, running_variance;
  std::vector<std::uint8_t> mask;
};

/// A norm's vectors on a device.
struct OnDevice {
  OnDevice(KernelDevice& device, const Vectors& v) {
    for (const Floats* values : {&v.scale, &v.shift, &v.mean, &v.inv_std})
      buffers.push_back(values->empty() ? nullptr : std::make_unique<DeviceBuffer>(device, *values, DType::float32));
  }
  const float* at(std::size_t i) const { return buffers[i] != nullptr ? buffers[i]->as<float>() : nullptr; }
  NormOperand of(const void* x, ActivationFunction f = {}) const { return {x, {at(0), at(1), f}, at(2), at(3)}; }
  std::vector<std::unique_ptr<DeviceBuffer>> buffers;
};

/// Everything that both ways read, on a device, and their float32 outputs.
struct Setting {
  Setting(KernelDevice& device, const Case& c, const Inputs& in)
      : s(c.shape),
        x(device, in.x, c.dtype),
        w(device, in.w, c.dtype),
        residual(device, in.residual, c.dtype),
        dy(device, in.dy, c.dtype),
        other(device, in.other, c.dtype),
        before(device, in.before),
        after(device, in.after),
        beside(device, in.beside),
        y(device, s.rows * s.out, c.dtype),
        dz(device, s.rows * s.out, c.dtype),
        dx(device, s.rows * s.in, c.dtype),
        mask(device, activation_mask_bytes(s.rows * s.out)),
        dw(device, s.out * s.in, DType::float32),
        dscale(device, s.out, DType::float32),
        dshift(device, s.out, DType::float32),
        dscale_before(device, s.in, DType::float32),
        dshift_before(device, s.in, DType::float32),
        mean(device, s.out, DType::float32),
        inv_std(device, s.out, DType::float32),
        running_mean(device, in.running_mean),
        running_variance(device, in.running_variance) {
    if (!c.accumulate) return;
    for (GuardedBuffer* buffer : {&dw, &dscale, &dshift, &dscale_before, &dshift_before})
      buffer->upload(Floats(buffer->download().size(), 2.0f).data());
  }
  NormOperand residual_operand() const {
    return beside.at(2) != nullptr ? beside.of(residual.data()) : NormOperand{.x = residual.data()};
  }
  StatisticsOutput statistics() const {
    return {kEpsilon,           kUpdate, running_mean.as<float>(), running_variance.as<float>(), mean.as<float>(),
            inv_std.as<float>()};
  }
  Values values() const {
    return {y.download(),
            dz.download(),
            dw.download(),
            dscale.download(),
            dshift.download(),
            dscale_before.download(),
            dshift_before.download(),
            dx.download(),
            running_mean.download(),
            running_variance.download(),
            mask.download_bytes()};
  }

  S s;
  DeviceBuffer x, w, residual, dy, other;
  OnDevice before, after, beside;
  GuardedBuffer y, dz, dx;
  GuardedBytes mask;
  GuardedBuffer dw, dscale, dshift, dscale_before, dshift_before, mean, inv_std, running_mean, running_variance;
};

/// By the algebra; then the input gradient of the first norm from dz_before, as norm_input_gradient makes it.
Values by_algebra(KernelDevice& device, const Case& c, const Inputs& in) {
  const Setting t(device, c, in);
  const S& s = c.shape;
  const Exec& exec = device.exec();
  GuardedBuffer centred(device, s.rows * s.in, c.dtype), again(device, s.rows * s.in, c.dtype),
      dz_before(device, s.rows * s.in, c.dtype), moment_mean(device, s.in, DType::float32),
      covariance(device, s.in * s.in, DType::float32), products(device, s.out * s.in, DType::float32),
      sums(device, s.out, DType::float32), totals(device, 2 * s.in, DType::float32);
  const std::size_t bytes = std::max(expand_workspace_bytes(s, c.dtype, exec.device.kind),
                                     batch_norm_workspace_bytes({s.rows, s.out}, c.dtype, exec.device.kind));
  GuardedBytes workspace(device, bytes);
  const Workspace scratch = workspace.workspace();
  const NormOperand x = t.before.of(t.x.data(), kRelu);
  const ExpandMoments moments{moment_mean.as<float>(), covariance.as<float>()};
  BANTAM_KERNEL(exec, expand_centre, s, c.dtype, x, centred.data(), moments, scratch);
  BANTAM_KERNEL(exec, expand_centre, s, c.dtype, x, again.data(), ExpandMoments{}, scratch);
  BANTAM_KERNEL(exec, expand_statistics, s, c.dtype, t.w.data(), moments, x.affine, t.statistics(),
                products.as<float>(), scratch);
  const NormOperand product{
      centred.data(), {t.after.at(0), t.after.at(1), {}}, t.mean.as<float>(), t.inv_std.as<float>()};
  BANTAM_KERNEL(exec, expand_sum, s, c.dtype, product, t.w.data(), t.residual_operand(), t.y.data(),
                t.mask.as<std::uint8_t>(), scratch);
  BANTAM_KERNEL(exec, sum_gradient_totals, BatchNormShape{s.rows, s.out}, c.dtype,
                SumGradient{t.dy.data(), t.other.data(), t.mask.as<std::uint8_t>(), kRelu}, t.dz.data(),
                sums.as<float>(), scratch);
  const ExpandInputs inputs{.x = x,
                            .product = product,
                            .w = t.w.data(),
                            .moments = moments,
                            .products = products.as<float>(),
                            .dz = t.dz.data(),
                            .dz_sums = sums.as<float>()};
  const ExpandGradients gradients{.dw = t.dw.as<float>(),
                                  .dscale = t.dscale.as<float>(),
                                  .dshift = t.dshift.as<float>(),
                                  .dscale_before = t.dscale_before.as<float>(),
                                  .dshift_before = t.dshift_before.as<float>(),
                                  .accumulate_w = c.accumulate,
                                  .accumulate_after = c.accumulate,
                                  .accumulate_before = c.accumulate,
                                  .dz_before = dz_before.data(),
                                  .totals = totals.as<float>()};
  BANTAM_KERNEL(exec, expand_backward, s, c.dtype, inputs, gradients, scratch);
  NormOperand plain = x;
  plain.affine = {.scale = x.affine.scale};
  BANTAM_KERNEL(exec, norm_input_gradient, BatchNormShape{s.rows, s.in}, c.dtype,
                NormInputGradient{dz_before.data(), plain, totals.as<float>()}, t.dx.data(), scratch);
  device.synchronize();
  EXPECT_EQ(again.download(), centred.download()) << "a recompute, without moments";
  return t.values();
}

/// Kernel by kernel, as the layers would run.
Values by_chain(KernelDevice& device, const Case& c, const Inputs& in) {
  const Setting t(device, c, in);
  const S& s = c.shape;
  const Exec& exec = device.exec();
  const DeviceKind kind = exec.device.kind;
  GuardedBuffer a(device, s.rows * s.in, c.dtype), c3(device, s.rows * s.out, c.dtype),
      dc3(device, s.rows * s.out, c.dtype), da(device, s.rows * s.in, c.dtype);
  const std::size_t bytes =
      std::max({batch_norm_workspace_bytes({s.rows, s.out}, c.dtype, kind),
                batch_norm_workspace_bytes({s.rows, s.in}, c.dtype, kind),
                matmul_workspace_bytes(pointwise_product(s), c.dtype, c.dtype, kind),
                matmul_workspace_bytes(pointwise_grad_input_product(s), c.dtype, c.dtype, kind),
                matmul_workspace_bytes(pointwise_grad_weight_product(s), c.dtype, DType::float32, kind)});
  GuardedBytes workspace(device, bytes);
  const Workspace scratch = workspace.workspace();
  const NormOperand x = t.before.of(t.x.data(), kRelu);
  BANTAM_KERNEL(exec, batch_norm_apply, BatchNormShape{s.rows, s.in}, c.dtype, x.x, x.affine, x.mean, x.inv_std,
                a.data());
  BANTAM_KERNEL(exec, matmul, pointwise_product(s), c.dtype, a.data(), t.w.data(), MatmulOutput{c3.data(), c.dtype},
                scratch);
  const BatchNormAffine affine{t.after.at(0), t.after.at(1), {}};
  BANTAM_KERNEL(exec, batch_norm_forward_training, BatchNormShape{s.rows, s.out}, c.dtype, c3.data(), affine, nullptr,
                t.statistics(), scratch);
  const NormOperand wide{c3.data(), affine, t.mean.as<float>(), t.inv_std.as<float>()};
  BANTAM_KERNEL(exec, batch_norm_add, kRelu, BatchNormShape{s.rows, s.out}, c.dtype, wide, t.residual_operand(),
                t.y.data(), t.mask.as<std::uint8_t>());
  BANTAM_KERNEL(exec, batch_norm_add_grad, BatchNormShape{s.rows, s.out}, c.dtype,
                SumGradient{t.dy.data(), t.other.data(), t.mask.as<std::uint8_t>(), kRelu}, wide, t.dz.data(),
                NormGradients{dc3.data(), t.dscale.as<float>(), t.dshift.as<float>(), c.accumulate}, scratch);
  BANTAM_KERNEL(exec, matmul, pointwise_grad_weight_product(s), c.dtype, dc3.data(), a.data(),
                MatmulOutput{t.dw.as<float>(), DType::float32, c.accumulate}, scratch);
  BANTAM_KERNEL(exec, matmul, pointwise_grad_input_product(s), c.dtype, dc3.data(), t.w.data(),
                MatmulOutput{da.data(), c.dtype}, scratch);
  BANTAM_KERNEL(exec, batch_norm_backward_training, BatchNormShape{s.rows, s.in}, c.dtype, x, da.data(),
                NormGradients{t.dx.data(), t.dscale_before.as<float>(), t.dshift_before.as<float>(), c.accumulate},
                scratch);
  device.synchronize();
  return t.values();
}

Doubles product(const MatmulShape& s, const Doubles& a, const Doubles& b) {
  Doubles c(static_cast<std::size_t>(s.m * s.n));
  reference::matmul(s, a.data(), b.data(), c.data(), false);
  return c;
}

/// Errors of a run beside float64, which takes each element of the mask as the run has it: at a corner of relu a last
/// bit decides.
struct Errors {
  double y, dw, dscale, dshift, dscale_before, dshift_before, dx, running_mean, running_variance;
};

Errors errors_of(const Case& c, const Inputs& in, const Values& got) {
  const S& s = c.shape;
  const BatchNormShape narrow{s.rows, s.in}, wide{s.rows, s.out};
  const auto first =
      reference::batch_norm_forward_training<double>(narrow, as_double(in.x), in.before.affine(kRelu), kEpsilon);
  const Doubles w = as_double(in.w), c3 = product(pointwise_product(s), first.y, w);
  const auto second = reference::batch_norm_forward_training<double>(wide, c3, in.after.affine({}), kEpsilon);
  Doubles residual = as_double(in.residual), y(residual.size()), dz(residual.size());
  if (c.norm_of_residual)
    residual = reference::batch_norm_forward_training<double>(wide, residual, in.beside.affine({}), kEpsilon).y;
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = std::max(second.y[i] + residual[i], 0.0);
    dz[i] = (got.mask[i / 8] >> (i % 8) & 1) != 0 ? static_cast<double>(in.dy[i]) + in.other[i] : 0.0;
  }
  const auto after =
      reference::batch_norm_backward_training<double>(wide, c3, dz, in.after.affine({}), second.mean, second.inv_std);
  Doubles dw = product(pointwise_grad_weight_product(s), after.dx, first.y);
  const Doubles da = product(pointwise_grad_input_product(s), after.dx, w);
  const auto before = reference::batch_norm_backward_training<double>(
      narrow, as_double(in.x), da, in.before.affine(kRelu), first.mean, first.inv_std);
  Doubles running_mean = as_double(in.running_mean), running_variance = as_double(in.running_variance);
  reference::batch_norm_update_running(wide, second, kUpdate, running_mean, running_variance);
  const auto error = [&](const Floats& values, Doubles expected, bool accumulates = false) {
    if (accumulates && c.accumulate)
      for (double& v : expected) v += 2.0;
    return relative_error(values, expected);
  };
  return {error(got.y, y),
          error(got.dw, dw, true),
          error(got.dscale, after.dscale, true),
          error(got.dshift, after.dshift, true),
          error(got.dscale_before, before.dscale, true),
          error(got.dshift_before, before.dshift, true),
          error(got.dx, before.dx),
          error(got.running_mean, running_mean),
          error(got.running_variance, running_variance)};
}

/// No error is more than 1.3 times the chain's, or 1.5 times that of x's gradient, or a small part of one rounding. The
/// first norm's vectors sum the input gradient, one of whose operands, M, is rounded: three times.
void expect_no_less_accurate(const Errors& algebra, const Errors& chain, DType dtype) {
  const double rounding = unit_roundoff(dtype);
  const auto check = [&](const char* what, double ours, double theirs, double factor, double slack) {
    EXPECT_LE(ours, factor * theirs + slack * rounding) << what << ", the chain's: " << theirs;
  };
  check("y", algebra.y, chain.y, 1.3, 0.05);
  check("dw", algebra.dw, chain.dw, 1.3, 0.05);
  check("dscale", algebra.dscale, chain.dscale, 1.5, 0.05);
  check("dshift", algebra.dshift, chain.dshift, 1.3, 0.05);
  check("dscale_before", algebra.dscale_before, chain.dscale_before, 3, 0.1);
  check("dshift_before", algebra.dshift_before, chain.dshift_before, 3, 0.1);
  check("dx", algebra.dx, chain.dx, 1.5, 0.1);
  check("running_mean", algebra.running_mean, chain.running_mean, 1.3, 0.02);
  check("running_variance", algebra.running_variance, chain.running_variance, 1.3, 0.02);
}

void run(KernelDevice& device, const Case& c) {
  SCOPED_TRACE(c);
  const Inputs in(c);
  const Values algebra = by_algebra(device, c, in), chain = by_chain(device, c, in);
  for (const Floats* values : {&algebra.y, &algebra.dw, &algebra.dx, &algebra.dscale_before})
    for (const float v : *values) ASSERT_TRUE(std::isfinite(v));
  expect_no_less_accurate(errors_of(c, in, algebra), errors_of(c, in, chain), c.dtype);
}

TEST_P(ExpandTest, IsAsAccurateAsTheChain) {
  for (const DType dtype : {DType::float16, DType::bfloat16})
    for (const S& s : {S{64 * 37 + 19, 64, 128}, S{700, 64, 256}, S{641, 128, 512}, S{530, 192, 384}, S{300, 256, 512},
                       S{200, 512, 1024}})
      run(device(), {.shape = s, .dtype = dtype});
}

TEST_P(ExpandTest, KeepsItsDigitsAtLargeMeans) {
  for (const float shift : {-1.5f, 3.0f, 10.0f}) run(device(), {.shape = {4096, 64, 256}, .shift = shift});
}

TEST_P(ExpandTest, AcceptsWhatNormsMayLack) {
  run(device(), {.shape = {600, 64, 256}, .vectors = false});
  run(device(), {.shape = {600, 64, 256}, .norm_of_residual = true});
  run(device(), {.shape = {600, 128, 256}, .norm_of_residual = true, .accumulate = true});
  run(device(), {.shape = {600, 64, 128}, .dead = 0.25f});
}

TEST_P(ExpandTest, TwoRunsAreOne) {
  for (const S& s : {S{3000, 64, 256}, S{900, 256, 1024}}) {
    const Case c{.shape = s};
    const Inputs in(c);
    const Values one = by_algebra(device(), c, in), two = by_algebra(device(), c, in);
    EXPECT_EQ(one.mask, two.mask);
    for (const auto member :
         {&Values::y, &Values::dz, &Values::dw, &Values::dscale, &Values::dshift, &Values::dscale_before,
          &Values::dshift_before, &Values::dx, &Values::running_mean, &Values::running_variance})
      EXPECT_EQ(bits_of(one.*member), bits_of(two.*member));
  }
}

TEST(ExpandRules, AreOfWideHalfConvolutions) {
  const auto supports = [](const S& s, DType dtype = DType::float16, Activation before = Activation::relu) {
    return expand_supports(s, dtype, {before}, kRelu);
  };
  EXPECT_TRUE(supports({802816, 64, 256}));
  EXPECT_TRUE(supports({8192, 512, 2048}, DType::bfloat16));
  EXPECT_FALSE(supports({8191, 512, 2048})) << "too few rows";
  EXPECT_FALSE(supports({802816, 64, 256}, DType::float32));
  EXPECT_FALSE(supports({802816, 64, 256}, DType::float16, Activation::relu6));
  EXPECT_FALSE(supports({802816, 64, 64})) << "it does not expand";
  EXPECT_FALSE(supports({802816, 96, 384}));
  EXPECT_FALSE(supports({802816, 1024, 4096}));
}

TEST(ExpandOrigin, IsNearTheMeanOfTheRelu) {
  EXPECT_NEAR(expand_origin(1, 0), 0.3989, 0.0625);
  EXPECT_NEAR(expand_origin(-1, 0), 0.3989, 0.0625);
  EXPECT_NEAR(expand_origin(1, 10), 10, 0.6);
  EXPECT_EQ(expand_origin(1, -10), 0);
  EXPECT_EQ(expand_origin(0, 2), 2);
  EXPECT_EQ(expand_origin(0, 0), 0);
  EXPECT_EQ(expand_origin(std::numeric_limits<float>::quiet_NaN(), 1), 0);
  EXPECT_EQ(expand_origin(1, std::numeric_limits<float>::infinity()), 0);
}

}  // namespace
}  // namespace bantam::kernels::expand_test
