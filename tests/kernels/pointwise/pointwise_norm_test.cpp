// Pointwise convolution after a norm: every device against the norm and the products of references in double, forward,
// statistics and both gradients, after a norm and not; large means, accumulation, missing outputs, determinism.
#include "bantam/kernels/pointwise/pointwise_norm.h"

#include "bantam/kernels/matmul/matmul_reference.h"
#include "bantam/kernels/norm/batch_norm_reference.h"
#include "bantam/kernels/pointwise/pointwise_parts.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::pointwise_norm_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = PointwiseShape;

constexpr float kEpsilon = 1e-3f;
constexpr RunningUpdate kUpdate{.rate = 0.25f, .unbiased = true};
const DType kHalves[] = {DType::float16, DType::bfloat16};

class PointwiseNormTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, PointwiseNormTest, ::testing::ValuesIn(test_devices()), device_test_name);

// Each tile and each end of one: fewer rows, columns and channels than a tile, a few more, and several tiles a part;
// one column of tiles and several.
const S kShapes[] = {{1, 8, 8},       {7, 32, 64},    {129, 40, 24},   {1000, 72, 136}, {300, 64, 128},
                     {257, 128, 128}, {200, 16, 264}, {333, 104, 200}, {60000, 8, 8},   {40000, 16, 72}};

struct Inputs {
  Inputs(const S& s, DType dtype, ActivationFunction f, float shift = 0.0f)
      : activation(f),
        x(random_values(s.rows * s.in, 1, dtype, -1.5f, 2.5f)),
        w(random_values(s.out * s.in, 2, dtype)),
        dy(random_values(s.rows * s.out, 3, dtype)),
        scales(random_values(s.in, 4, DType::float32, 0.5f, 2.0f)),
        shifts(random_values(s.in, 5, DType::float32, shift - 1.0f, shift + 1.0f)),
        mean(random_values(s.in, 6, DType::float32, 0.0f, 1.0f)),
        inv_std(random_values(s.in, 7, DType::float32, 0.5f, 1.5f)),
        running_mean(random_values(s.out, 8)),
        running_variance(random_values(s.out, 9, DType::float32, 0.5f, 2.0f)) {}

  /// a as the products see it: rounded to `dtype`.
  std::vector<double> seen(const S& s, DType dtype) const {
    const reference::Affine<double> affine{as_double(scales), as_double(shifts), activation};
    std::vector<double> a(x.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      const std::size_t c = i % static_cast<std::size_t>(s.in);
      const double normalised = (static_cast<double>(x[i]) - mean[c]) * inv_std[c];
      a[i] = rounded(static_cast<float>(affine(c, normalised)), dtype);
    }
    return a;
  }
  ActivationFunction activation;
  std::vector<float> x, w, dy, scales, shifts, mean, inv_std, running_mean, running_variance;
};

/// Forward and backward.
struct Results {
  Results(KernelDevice& device, const S& s, DType dtype, const Inputs& in, const float* start = nullptr,
          bool statistics = true)
      : y(device, s.rows * s.out, dtype),
        da(device, s.rows * s.in, dtype),
        dw(device, s.out * s.in, DType::float32),
        mean(device, s.out, DType::float32),
        inv_std(device, s.out, DType::float32),
        running_mean(device, in.running_mean),
        running_variance(device, in.running_variance) {
    const DeviceBuffer x(device, in.x, dtype), w(device, in.w, dtype), dy(device, in.dy, dtype);
    const DeviceBuffer scales(device, in.scales, DType::float32), shifts(device, in.shifts, DType::float32);
    const DeviceBuffer x_mean(device, in.mean, DType::float32), x_inv_std(device, in.inv_std, DType::float32);
    if (start != nullptr) dw.upload(std::vector<float>(static_cast<std::size_t>(s.out * s.in), *start).data());
    const NormOperand operand{.x = x.data(),
                              .affine = {scales.as<float>(), shifts.as<float>(), in.activation},
                              .mean = x_mean.as<float>(),
                              .inv_std = x_inv_std.as<float>()};
    const StatisticsOutput output{
        kEpsilon,           kUpdate, running_mean.as<float>(), running_variance.as<float>(), mean.as<float>(),
        inv_std.as<float>()};
    GuardedBytes workspace(device, pointwise_norm_workspace_bytes(s, dtype, device.exec().device.kind));
    BANTAM_KERNEL(device.exec(), pointwise_norm_forward, s, dtype, operand, w.data(), y.data(),
                  statistics ? &output : nullptr, workspace.workspace());
    BANTAM_KERNEL(device.exec(), pointwise_norm_backward, s, dtype, operand, w.data(),
                  NormInputGradient{.dz = dy.data()}, PointwiseGradients{da.data(), dw.as<float>(), start != nullptr},
                  workspace.workspace());
    device.synchronize();
  }
  std::vector<std::vector<float>> all() const {
    return {y.download(),
            da.download(),
            dw.download(),
            mean.download(),
            inv_std.download(),
            running_mean.download(),
            running_variance.download()};
  }
  GuardedBuffer y, da, dw, mean, inv_std, running_mean, running_variance;
};

std::vector<double> product(const MatmulShape& s, const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> c(static_cast<std::size_t>(s.m * s.n));
  reference::matmul(s, a.data(), b.data(), c.data(), false);
  return c;
}

void expect_statistics(const S& s, const Inputs& in, const Results& r) {
  const std::vector<double> y = as_double(r.y.download());
  const BatchNormShape shape{s.rows, s.out};
  const auto batch = reference::batch_norm_forward_training<double>(shape, y, {}, kEpsilon);
  EXPECT_LT(relative_error(r.mean.download(), batch.mean), 1e-5);
  EXPECT_LT(relative_error(r.inv_std.download(), batch.inv_std), 1e-5);
  std::vector<double> running_mean = as_double(in.running_mean), running_variance = as_double(in.running_variance);
  reference::batch_norm_update_running(shape, batch, kUpdate, running_mean, running_variance);
  EXPECT_LT(relative_error(r.running_mean.download(), running_mean), 1e-5);
  EXPECT_LT(relative_error(r.running_variance.download(), running_variance), 1e-5);
}

TEST_P(PointwiseNormTest, MatchesTheUnfusedReference) {
  for (const DType dtype : kHalves)
    for (const Activation kind : {Activation::relu, Activation::relu6})
      for (const S& s : kShapes) {
        if (kind == Activation::relu6 && s.rows * s.out > 20000) continue;  // the same kernels with another bound
        SCOPED_TRACE(::testing::Message()
                     << to_string(dtype) << " " << to_string(kind) << " " << s.rows << ": " << s.in << " to " << s.out);
        const Inputs in(s, dtype, {kind});
        const Results r(device(), s, dtype, in);
        const std::vector<double> a = in.seen(s, dtype), w = as_double(in.w), dy = as_double(in.dy);
        EXPECT_LT(relative_error(r.y.download(), product(pointwise_product(s), a, w)), sum_tolerance(dtype, s.in));
        EXPECT_LT(relative_error(r.da.download(), product(pointwise_grad_input_product(s), dy, w)),
                  sum_tolerance(dtype, s.out));
        EXPECT_LT(relative_error(r.dw.download(), product(pointwise_grad_weight_product(s), dy, a)),
                  sum_tolerance(dtype, s.rows));  // a may be rounded otherwise
        expect_statistics(s, in, r);
      }
}

/// A norm that reads y, its totals of dz, and its input gradient.
struct NormAfter {
  NormAfter(const S& s, DType dtype, const std::vector<float>& dz)
      : y(random_values(s.rows * s.out, 11, dtype, -1.0f, 2.0f)),
        scales(random_values(s.out, 12, DType::float32, 0.5f, 2.0f)),
        mean(random_values(s.out, 13, DType::float32, 0.3f, 0.7f)),
        inv_std(random_values(s.out, 14, DType::float32, 0.8f, 1.3f)),
        totals(static_cast<std::size_t>(2 * s.out)),
        dy(dz.size()) {
    const auto out = static_cast<std::size_t>(s.out);
    std::vector<double> sums(2 * out);
    const auto normalised = [&](std::size_t i) {
      return (static_cast<double>(y[i]) - mean[i % out]) * inv_std[i % out];
    };
    for (std::size_t i = 0; i < dz.size(); ++i) {
      sums[i % out] += dz[i];
      sums[out + i % out] += dz[i] * normalised(i);
    }
    for (std::size_t i = 0; i < dz.size(); ++i) {
      const std::size_t c = i % out;
      const double from_mean = dz[i] - (sums[c] + normalised(i) * sums[out + c]) / static_cast<double>(s.rows);
      dy[i] = rounded(static_cast<float>(scales[c] * inv_std[c] * from_mean), dtype);
    }
    totals.assign(sums.begin(), sums.end());
  }
  std::vector<float> y, scales, mean, inv_std, totals;
  std::vector<double> dy;
};

TEST_P(PointwiseNormTest, ComputesTheInputGradientOfTheNormAfterAsItReads) {
  for (const DType dtype : kHalves)
    for (const S& s : kShapes) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << s.rows << ": " << s.in << " to " << s.out);
      const Inputs in(s, dtype, {Activation::relu});
      const NormAfter after(s, dtype, in.dy);
      const DeviceBuffer x(device(), in.x, dtype), w(device(), in.w, dtype), dz(device(), in.dy, dtype);
      const DeviceBuffer y(device(), after.y, dtype), totals(device(), after.totals, DType::float32);
      const std::vector<float>* vectors[] = {&in.scales,    &in.shifts,  &in.mean,      &in.inv_std,
                                             &after.scales, &after.mean, &after.inv_std};
      std::vector<std::unique_ptr<DeviceBuffer>> on_device;
      for (const auto* v : vectors) on_device.push_back(std::make_unique<DeviceBuffer>(device(), *v, DType::float32));
      const auto at = [&](std::size_t i) { return on_device[i]->as<float>(); };
      GuardedBuffer da(device(), s.rows * s.in, dtype), dw(device(), s.out * s.in, DType::float32);
      GuardedBytes workspace(device(), pointwise_norm_workspace_bytes(s, dtype, device().exec().device.kind));
      BANTAM_KERNEL(device().exec(), pointwise_norm_backward, s, dtype,
                    NormOperand{x.data(), {at(0), at(1), in.activation}, at(2), at(3)}, w.data(),
                    NormInputGradient{dz.data(), {y.data(), {at(4), nullptr, {}}, at(5), at(6)}, totals.as<float>()},
                    PointwiseGradients{da.data(), dw.as<float>(), false}, workspace.workspace());
      device().synchronize();
      // dy may be rounded otherwise.
      EXPECT_LT(relative_error(da.download(), product(pointwise_grad_input_product(s), after.dy, as_double(in.w))),
                2 * sum_tolerance(dtype, s.out));
      EXPECT_LT(relative_error(dw.download(), product(pointwise_grad_weight_product(s), after.dy, in.seen(s, dtype))),
                2 * sum_tolerance(dtype, s.rows));
    }
}

TEST_P(PointwiseNormTest, SkipsWhatIsNotWanted) {
  const S s{600000, 8, 8};  // a part of the rows at a time, where no kernel makes only one of the two
  const Inputs in(s, DType::float16, {Activation::relu});
  const NormAfter after(s, DType::float16, in.dy);
  const DeviceBuffer x(device(), in.x, DType::float16), w(device(), in.w, DType::float16),
      dz(device(), in.dy, DType::float16), y(device(), after.y, DType::float16);
  const auto floats = [&](const std::vector<float>& v) {
    return std::make_unique<DeviceBuffer>(device(), v, DType::float32);
  };
  const auto mean = floats(in.mean), inv_std = floats(in.inv_std), scales = floats(in.scales),
             shifts = floats(in.shifts), y_mean = floats(after.mean), y_inv_std = floats(after.inv_std),
             y_scales = floats(after.scales), totals = floats(after.totals);
  GuardedBuffer da(device(), s.rows * s.in, DType::float16), dw(device(), s.out * s.in, DType::float32);
  GuardedBytes workspace(device(), pointwise_norm_workspace_bytes(s, DType::float16, device().exec().device.kind));
  const auto run = [&](void* to_a, float* to_w) {
    BANTAM_KERNEL(
        device().exec(), pointwise_norm_backward, s, DType::float16,
        NormOperand{x.data(),
                    {scales->as<float>(), shifts->as<float>(), in.activation},
                    mean->as<float>(),
                    inv_std->as<float>()},
        w.data(),
        NormInputGradient{dz.data(),
                          {y.data(), {y_scales->as<float>(), nullptr, {}}, y_mean->as<float>(), y_inv_std->as<float>()},
                          totals->as<float>()},
        PointwiseGradients{to_a, to_w, false}, workspace.workspace());
    device().synchronize();
  };
  run(da.data(), dw.as<float>());
  const auto both_a = da.download(), both_w = dw.download();
  da.upload(std::vector<float>(both_a.size(), 0.0f).data());
  dw.upload(std::vector<float>(both_w.size(), 0.0f).data());
  run(da.data(), nullptr);
  run(nullptr, dw.as<float>());
  EXPECT_LT(relative_error(da.download(), as_double(both_a)), 2 * sum_tolerance(DType::float16, s.out));
  EXPECT_LT(relative_error(dw.download(), as_double(both_w)), sum_tolerance(DType::float32, s.rows));
}

TEST_P(PointwiseNormTest, LargeMeansCostNoDigits) {
  // Positive weights of values near 400: y's mean is thousands of times its deviation.
  const S s{3000, 8, 16};
  Inputs in(s, DType::float16, {Activation::relu}, 400.0f);
  in.w.assign(in.w.size(), 1.0f);
  const Results r(device(), s, DType::float16, in);
  expect_statistics(s, in, r);
}

TEST_P(PointwiseNormTest, Accumulates) {
  for (const S& s : {S{300, 24, 40}, S{5000, 128, 136}}) {
    const Inputs in(s, DType::float16, {Activation::relu});
    const float start = 3.0f;
    const auto plain = Results(device(), s, DType::float16, in).dw.download(),
               added = Results(device(), s, DType::float16, in, &start).dw.download();
    for (std::size_t i = 0; i < plain.size(); ++i)
      ASSERT_NEAR(added[i], plain[i] + start, 1e-6 * (3 + std::abs(plain[i])));
  }
}

TEST_P(PointwiseNormTest, SameBitsEveryTimeAndWithoutStatistics) {
  for (const S& s : {S{60000, 8, 8}, S{5000, 128, 136}}) {
    const Inputs in(s, DType::bfloat16, {Activation::relu6});
    const Results first(device(), s, DType::bfloat16, in);
    EXPECT_EQ(first.all(), Results(device(), s, DType::bfloat16, in).all());
    EXPECT_EQ(first.y.download(), Results(device(), s, DType::bfloat16, in, nullptr, false).y.download());
  }
}

TEST(PointwiseNormShapes, AreThoseThatTheKernelsSupport) {
  const ActivationFunction relu{Activation::relu};
  EXPECT_TRUE(pointwise_norm_supports({1000, 32, 64}, DType::float16, relu));
  EXPECT_TRUE(pointwise_norm_supports({1000, 64, 128}, DType::bfloat16, {Activation::relu6}));
  EXPECT_FALSE(pointwise_norm_supports({1000, 32, 64}, DType::float32, relu)) << "half types";
  EXPECT_FALSE(pointwise_norm_supports({1000, 256, 64}, DType::float16, relu)) << "bound by bytes";
  EXPECT_FALSE(pointwise_norm_supports({1000, 36, 64}, DType::float16, relu)) << "channels in eights";
  EXPECT_FALSE(pointwise_norm_supports({1000, 32, 64}, DType::float16, {})) << "an activation after the norm";
}

}  // namespace
}  // namespace bantam::kernels::pointwise_norm_test
