// Global response norm: hand values, every device against plain loops in double, and those against finite differences;
// channels of zeros, aliasing, work.
#include "bantam/kernels/norm/global_response_norm.h"

#include <cmath>

#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/work_case.h"

namespace bantam::kernels::global_response_norm_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

constexpr float kEpsilon = 1e-3f;

class GlobalResponseNormTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, GlobalResponseNormTest, ::testing::ValuesIn(test_devices()), device_test_name);

// One position and many; fewer channels than a vector, ConvNeXt's, a number that no vector divides, more than a block
// of threads or the CPU's stack has; one part a sample and many; more samples than a grid's axis.
constexpr GroupNormShape kShapes[] = {{5, 1, 3, 1},     {2, 9, 4, 1},     {3, 49, 24, 1},   {2, 100, 65, 1},
                                      {1, 4000, 16, 1}, {2, 1000, 64, 1}, {3, 49, 1536, 1}, {2, 5, 1100, 1},
                                      {1, 30000, 3, 1}, {9, 196, 40, 1},  {2, 40, 2052, 1}, {66000, 2, 4, 1}};

std::string name(const GroupNormShape& s, DType dtype) {
  return (::testing::Message() << to_string(dtype) << " " << s.samples << "x" << s.positions << "x" << s.channels)
      .GetString();
}

struct Inputs {
  Inputs(const GroupNormShape& s, DType dtype)
      : x(random_values(s.elements(), 1, dtype, -2.0f, 3.0f)),
        dy(random_values(s.elements(), 2, dtype)),
        scale(random_values(s.channels, 3, DType::float32, -1.0f, 2.0f)),
        shift(random_values(s.channels, 4)) {}
  std::vector<float> x, dy, scale, shift;
};

/// y (samples, positions, channels), norm (samples, channels), inverse (samples).
struct Values {
  std::vector<double> y, norm, inverse;
};
struct Gradients {
  std::vector<double> dx, dscale, dshift;
};

/// Calls visit(sample, channel, place in (samples, channels), index of element) for every element.
template <class Visit>
void for_elements(const GroupNormShape& s, Visit&& visit) {
  for (std::int64_t n = 0; n < s.samples; ++n)
    for (std::int64_t p = 0; p < s.positions; ++p)
      for (std::int64_t c = 0; c < s.channels; ++c)
        visit(static_cast<std::size_t>(n), static_cast<std::size_t>(c), static_cast<std::size_t>(n * s.channels + c),
              static_cast<std::size_t>((n * s.positions + p) * s.channels + c));
}

/// The function as plain loops.
Values reference_forward(const GroupNormShape& s, const std::vector<double>& x, const std::vector<double>& scale,
                         const std::vector<double>& shift, double epsilon) {
  const auto samples = static_cast<std::size_t>(s.samples), channels = static_cast<std::size_t>(s.channels);
  Values v{std::vector<double>(x.size()), std::vector<double>(samples * channels), std::vector<double>(samples)};
  for_elements(s, [&](std::size_t, std::size_t, std::size_t i, std::size_t at) { v.norm[i] += x[at] * x[at]; });
  for (double& norm : v.norm) norm = std::sqrt(norm);
  for (std::size_t n = 0; n < samples; ++n) {
    double sum = 0;
    for (std::size_t c = 0; c < channels; ++c) sum += v.norm[n * channels + c];
    v.inverse[n] = 1 / (sum / static_cast<double>(channels) + epsilon);
  }
  for_elements(s, [&](std::size_t n, std::size_t c, std::size_t i, std::size_t at) {
    v.y[at] = scale[c] * (x[at] * (v.norm[i] * v.inverse[n])) + shift[c] + x[at];
  });
  return v;
}

/// The gradients, one rule of the chain after the other.
Gradients reference_backward(const GroupNormShape& s, const std::vector<double>& x, const std::vector<double>& dy,
                             const std::vector<double>& scale, const Values& v) {
  const auto samples = static_cast<std::size_t>(s.samples), channels = static_cast<std::size_t>(s.channels);
  Gradients g{std::vector<double>(x.size()), std::vector<double>(channels), std::vector<double>(channels)};
  std::vector<double> d_response(samples * channels), d_norm(samples * channels);
  for_elements(s, [&](std::size_t n, std::size_t c, std::size_t i, std::size_t at) {
    g.dshift[c] += dy[at];
    g.dscale[c] += dy[at] * x[at] * v.norm[i] * v.inverse[n];
    d_response[i] += dy[at] * x[at] * scale[c];
  });
  for (std::size_t n = 0; n < samples; ++n) {
    double d_mean = 0;  // N = G/(mean + ε): of the mean -Σ dN·G/(mean + ε)²
    for (std::size_t c = 0; c < channels; ++c)
      d_mean -= d_response[n * channels + c] * v.norm[n * channels + c] * v.inverse[n] * v.inverse[n];
    for (std::size_t c = 0; c < channels; ++c)
      d_norm[n * channels + c] = d_response[n * channels + c] * v.inverse[n] + d_mean / static_cast<double>(channels);
  }
  for_elements(s, [&](std::size_t n, std::size_t c, std::size_t i, std::size_t at) {
    const double direction = v.norm[i] > 0 ? x[at] / v.norm[i] : 0;
    g.dx[at] = dy[at] * (scale[c] * v.norm[i] * v.inverse[n] + 1) + direction * d_norm[i];
  });
  return g;
}

Values expected_forward(const GroupNormShape& s, const Inputs& in, float epsilon = kEpsilon) {
  return reference_forward(s, as_double(in.x), as_double(in.scale), as_double(in.shift), epsilon);
}
Gradients expected_backward(const GroupNormShape& s, const Inputs& in, const Values& v) {
  return reference_backward(s, as_double(in.x), as_double(in.dy), as_double(in.scale), v);
}

struct Options {
  bool in_place = false;
  float epsilon = kEpsilon;
};

/// Forward on a device; applying the statistics that it saved makes the same bits, whatever the test is about.
struct Forward {
  Forward(KernelDevice& device, const GroupNormShape& s, DType dtype, const Inputs& in, Options options = {})
      : y(device, s.elements(), dtype),
        norm(device, s.samples * s.channels, DType::float32),
        inverse(device, s.samples, DType::float32) {
    const DeviceBuffer x(device, in.x, dtype), scale(device, in.scale, DType::float32),
        shift(device, in.shift, DType::float32);
    GuardedBytes workspace(device, global_response_workspace_bytes(s, device.exec().device.kind));
    if (options.in_place) copy_bytes(y.data(), x.data(), x.bytes(), device.stream());
    ResponseOperand operand{
        .x = options.in_place ? y.data() : x.data(), .scale = scale.as<float>(), .shift = shift.as<float>()};
    const ResponseStatistics to{norm.as<float>(), inverse.as<float>(), options.epsilon};
    BANTAM_KERNEL(device.exec(), global_response_forward, s, dtype, operand, to, y.data(), workspace.workspace());
    operand.x = x.data();
    operand.norm = to.norm;
    operand.inverse = to.inverse;
    GuardedBuffer again(device, s.elements(), dtype);
    BANTAM_KERNEL(device.exec(), global_response_apply, s, dtype, operand, again.data());
    device.synchronize();
    EXPECT_EQ(again.download_bytes(), y.download_bytes());
  }
  GuardedBuffer y, norm, inverse;
};

/// Which gradients a call of backward writes.
struct Wanted {
  bool dx = true, dscale = true, dshift = true;
};

/// Backward on a device, from statistics rounded to float32.
struct Backward {
  Backward(KernelDevice& device, const GroupNormShape& s, DType dtype, const Inputs& in, const Values& saved,
           Options options = {}, const std::vector<float>* start = nullptr, Wanted wanted = {true, true, true})
      : dx(device, s.elements(), dtype),
        dscale(device, s.channels, DType::float32),
        dshift(device, s.channels, DType::float32) {
    const DeviceBuffer x(device, in.x, dtype), dy(device, in.dy, dtype), scale(device, in.scale, DType::float32);
    const DeviceBuffer norm(device, {saved.norm.begin(), saved.norm.end()}, DType::float32);
    const DeviceBuffer inverse(device, {saved.inverse.begin(), saved.inverse.end()}, DType::float32);
    GuardedBytes workspace(device, global_response_workspace_bytes(s, device.exec().device.kind));
    if (start) dscale.upload(start->data());
    if (start) dshift.upload(start->data());
    if (options.in_place) copy_bytes(dx.data(), dy.data(), dy.bytes(), device.stream());
    BANTAM_KERNEL(device.exec(), global_response_backward, s, dtype,
                  {.x = x.data(),
                   .scale = scale.as<float>(),
                   .shift = nullptr,
                   .norm = norm.as<float>(),
                   .inverse = inverse.as<float>()},
                  options.in_place ? dx.data() : dy.data(),
                  {wanted.dx ? dx.data() : nullptr, wanted.dscale ? dscale.as<float>() : nullptr,
                   wanted.dshift ? dshift.as<float>() : nullptr, start != nullptr},
                  workspace.workspace());
    device.synchronize();
  }
  std::vector<std::uint8_t> all_bytes() const {
    std::vector<std::uint8_t> all = dx.download_bytes();
    for (const GuardedBuffer* vector : {&dscale, &dshift})
      for (const std::uint8_t byte : vector->download_bytes()) all.push_back(byte);
    return all;
  }
  GuardedBuffer dx, dscale, dshift;
};

/// Sums run in blocks of at most 512 terms or so.
double tolerance_of(std::int64_t terms) { return sum_tolerance(DType::float32, std::min<std::int64_t>(terms, 512)); }

TEST_P(GlobalResponseNormTest, HandComputed) {
  // Two positions: channel 0 is 3, 4 (norm 5), channel 1 is 6, 8 (norm 10). Mean 7.5 and ε 0.5: N = 5/8 and 10/8.
  const GroupNormShape s{1, 2, 2, 1};
  Inputs in(s, DType::float32);
  in.x = {3, 6, 4, 8};
  in.dy = {1, 0, 0, 1};
  in.scale = {2, 4};
  in.shift = {1, -1};
  const Forward r(device(), s, DType::float32, in, {.epsilon = 0.5f});
  EXPECT_EQ(r.norm.download(), (std::vector<float>{5, 10}));
  EXPECT_EQ(r.inverse.download(), (std::vector<float>{0.125f}));
  EXPECT_EQ(r.y.download(), (std::vector<float>{7.75f, 35, 10, 47}));  // x·(2.25, 6) + (1, -1)
  // Σ dy·x = 3 and 8: dscale = 3·5/8, 8·10/8. dN = 6 and 32, mean(dN·N) = (3.75 + 40)/2 = 21.875, dG = (dN - 21.875)/8,
  // dx = dy·(2.25, 6) + x·dG/G with dG/G = -0.396875 and 0.1265625.
  const Backward g(device(), s, DType::float32, in, {.y = {}, .norm = {5, 10}, .inverse = {0.125}});
  EXPECT_EQ(g.dshift.download(), (std::vector<float>{1, 1}));
  EXPECT_EQ(g.dscale.download(), (std::vector<float>{1.875f, 10}));
  const std::vector<float> dx = g.dx.download(), expected{1.059375f, 0.759375f, -1.5875f, 7.0125f};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(dx[i], expected[i], 1e-6);  // two roundings of numbers below 8
}

TEST_P(GlobalResponseNormTest, ForwardMatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const GroupNormShape& s : kShapes) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      const Forward r(device(), s, dtype, in);
      const Values expected = expected_forward(s, in);
      const double tolerance = tolerance_of(s.positions);
      EXPECT_LT(relative_error(r.norm.download(), expected.norm), tolerance);
      EXPECT_LT(relative_error(r.inverse.download(), expected.inverse), tolerance);
      EXPECT_LT(relative_error(r.y.download(), expected.y), unit_roundoff(dtype) + tolerance);
    }
  }
}

TEST_P(GlobalResponseNormTest, BackwardMatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const GroupNormShape& s : kShapes) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      const Values saved = expected_forward(s, in);
      const Gradients expected = expected_backward(s, in, saved);
      const Backward r(device(), s, dtype, in, saved);
      const double sums = tolerance_of(s.samples * s.positions);
      EXPECT_LT(relative_error(r.dshift.download(), expected.dshift), sums);
      EXPECT_LT(relative_error(r.dscale.download(), expected.dscale), sums);
      EXPECT_LT(relative_error(r.dx.download(), expected.dx), unit_roundoff(dtype) + tolerance_of(s.positions));
    }
  }
}

// x/G is defined as 0 where G is, as in PyTorch.
TEST_P(GlobalResponseNormTest, ChannelsOfZerosPassTheGradient) {
  const GroupNormShape s{3, 50, 24, 1};
  for (const DType dtype : kFloatingTypes) {
    SCOPED_TRACE(to_string(dtype));
    Inputs in(s, dtype);
    // All of sample 1, and channel 5 of the others.
    const auto is_zero = [](std::size_t n, std::size_t c) { return n == 1 || c == 5; };
    for_elements(s, [&](std::size_t n, std::size_t c, std::size_t, std::size_t at) {
      if (is_zero(n, c)) in.x[at] = 0;
    });
    const Forward r(device(), s, dtype, in);
    const Values saved = expected_forward(s, in);
    const Backward g(device(), s, dtype, in, saved);
    const std::vector<float> y = r.y.download(), dx = g.dx.download();
    for_elements(s, [&](std::size_t n, std::size_t c, std::size_t, std::size_t at) {
      ASSERT_TRUE(std::isfinite(y[at]) && std::isfinite(dx[at]));
      if (!is_zero(n, c)) return;
      ASSERT_NEAR(y[at], in.shift[c], unit_roundoff(dtype));
      ASSERT_EQ(dx[at], in.dy[at]);
    });
    const Gradients expected = expected_backward(s, in, saved);
    EXPECT_LT(relative_error(g.dx.download(), expected.dx), unit_roundoff(dtype) + tolerance_of(s.positions));
    EXPECT_LT(relative_error(g.dscale.download(), expected.dscale), tolerance_of(s.samples * s.positions));
  }
}

TEST_P(GlobalResponseNormTest, OutputsMayAliasInputs) {
  for (const DType dtype : kFloatingTypes) {
    for (const GroupNormShape& s : {GroupNormShape{3, 500, 64, 1}, GroupNormShape{2, 30, 65, 1}}) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      EXPECT_EQ(Forward(device(), s, dtype, in, {.in_place = true}).y.download_bytes(),
                Forward(device(), s, dtype, in).y.download_bytes());
      const Values saved = expected_forward(s, in);
      EXPECT_EQ(Backward(device(), s, dtype, in, saved, {.in_place = true}).all_bytes(),
                Backward(device(), s, dtype, in, saved).all_bytes());
    }
  }
}

TEST_P(GlobalResponseNormTest, GradientsAccumulateAndMayBeLeftOut) {
  const GroupNormShape s{3, 300, 20, 1};
  const Inputs in(s, DType::float32);
  const Values saved = expected_forward(s, in);
  const std::vector<float> start = random_values(s.channels, 8);
  const Backward fresh(device(), s, DType::float32, in, saved),
      added(device(), s, DType::float32, in, saved, {}, &start);
  std::vector<double> dscale = as_double(fresh.dscale.download()), dshift = as_double(fresh.dshift.download());
  for (std::size_t c = 0; c < start.size(); ++c) dscale[c] += start[c], dshift[c] += start[c];
  EXPECT_LT(relative_error(added.dscale.download(), dscale), 2 * unit_roundoff(DType::float32));
  EXPECT_LT(relative_error(added.dshift.download(), dshift), 2 * unit_roundoff(DType::float32));
  const auto alone = [&](Wanted wanted) {
    return Backward(device(), s, DType::float32, in, saved, {}, nullptr, wanted).all_bytes();
  };
  const auto poison = [](const GuardedBuffer& buffer) {
    return std::vector<std::uint8_t>(buffer.download_bytes().size(), 0xff);
  };
  const auto joined = [](std::vector<std::uint8_t> a, const std::vector<std::uint8_t>& b,
                         const std::vector<std::uint8_t>& c) {
    a.insert(a.end(), b.begin(), b.end());
    a.insert(a.end(), c.begin(), c.end());
    return a;
  };
  const std::vector<std::uint8_t> dx = fresh.dx.download_bytes();
  EXPECT_EQ(alone({.dx = true, .dscale = false, .dshift = false}),
            joined(dx, poison(fresh.dscale), poison(fresh.dshift)));
  EXPECT_EQ(alone({.dx = false, .dscale = true, .dshift = false}),
            joined(poison(fresh.dx), fresh.dscale.download_bytes(), poison(fresh.dshift)));
  EXPECT_EQ(alone({.dx = false, .dscale = false, .dshift = true}),
            joined(poison(fresh.dx), poison(fresh.dscale), fresh.dshift.download_bytes()));
}

TEST_P(GlobalResponseNormTest, StatisticsAlone) {
  const GroupNormShape s{3, 300, 20, 1};
  const Inputs in(s, DType::float16);
  const DeviceBuffer x(device(), in.x, DType::float16);
  GuardedBuffer norm(device(), s.samples * s.channels, DType::float32), inverse(device(), s.samples, DType::float32);
  GuardedBytes workspace(device(), global_response_workspace_bytes(s, GetParam().kind));
  const ResponseStatistics to{norm.as<float>(), inverse.as<float>(), kEpsilon};
  BANTAM_KERNEL(exec(), global_response_forward, s, DType::float16, {.x = x.data()}, to, nullptr,
                workspace.workspace());
  const Forward whole(device(), s, DType::float16, in);
  EXPECT_EQ(norm.download_bytes(), whole.norm.download_bytes());
  EXPECT_EQ(inverse.download_bytes(), whole.inverse.download_bytes());
}

TEST_P(GlobalResponseNormTest, UnalignedMemory) {
  // One element past an aligned address: no vector can be loaded.
  const GroupNormShape s{2, 50, 32, 1};
  const Inputs in(s, DType::float16);
  std::vector<float> moved = in.x;
  moved.insert(moved.begin(), 0.0f);
  const DeviceBuffer x(device(), moved, DType::float16), scale(device(), in.scale, DType::float32),
      shift(device(), in.shift, DType::float32);
  GuardedBuffer y(device(), s.elements() + 1, DType::float16), norm(device(), s.samples * s.channels, DType::float32),
      inverse(device(), s.samples, DType::float32);
  GuardedBytes workspace(device(), global_response_workspace_bytes(s, GetParam().kind));
  const ResponseOperand operand{
      .x = static_cast<const char*>(x.data()) + 2, .scale = scale.as<float>(), .shift = shift.as<float>()};
  const ResponseStatistics to{norm.as<float>(), inverse.as<float>(), kEpsilon};
  BANTAM_KERNEL(exec(), global_response_forward, s, DType::float16, operand, to, static_cast<char*>(y.data()) + 2,
                workspace.workspace());
  std::vector<float> values = y.download();
  values.erase(values.begin());
  EXPECT_LT(relative_error(values, expected_forward(s, in).y),
            unit_roundoff(DType::float16) + tolerance_of(s.positions));
}

TEST_P(GlobalResponseNormTest, IsDeterministic) {
  for (const GroupNormShape& s : kShapes) {
    const Inputs in(s, DType::float16);
    const Values saved = expected_forward(s, in);
    EXPECT_EQ(Backward(device(), s, DType::float16, in, saved).all_bytes(),
              Backward(device(), s, DType::float16, in, saved).all_bytes());
  }
}

TEST_P(GlobalResponseNormTest, NothingOfNothing) {
  BANTAM_KERNEL(exec(), global_response_forward, {0, 4, 8, 1}, DType::float32, {}, {}, nullptr, Workspace{});
  GuardedBuffer dscale(device(), std::vector<float>(8, 3.0f));
  BANTAM_KERNEL(exec(), global_response_backward, {0, 4, 8, 1}, DType::float32, {}, nullptr,
                {.dscale = dscale.as<float>(), .accumulate = true}, Workspace{});
  EXPECT_EQ(dscale.download(), std::vector<float>(8, 3.0f));
  BANTAM_KERNEL(exec(), global_response_backward, {0, 4, 8, 1}, DType::float32, {}, nullptr,
                {.dscale = dscale.as<float>()}, Workspace{});
  EXPECT_EQ(dscale.download(), std::vector<float>(8, 0.0f));
}

TEST_P(GlobalResponseNormTest, RefusesTooSmallWorkspace) {
  const GroupNormShape s{2, 700, 64, 1};
  const std::size_t needed = global_response_workspace_bytes(s, GetParam().kind);
  ASSERT_GT(needed, 256u);
  GuardedBuffer x(device(), s.elements(), DType::float16), values(device(), s.samples * s.channels, DType::float32);
  GuardedBytes workspace(device(), needed - 1);
  const ResponseOperand operand{.x = x.data(),
                                .scale = values.as<float>(),
                                .shift = values.as<float>(),
                                .norm = values.as<float>(),
                                .inverse = values.as<float>()};
  EXPECT_THROW(BANTAM_KERNEL(exec(), global_response_backward, s, DType::float16, operand, x.data(), {.dx = x.data()},
                             workspace.workspace()),
               Error);
}

TEST(GlobalResponseNormCpuTest, SameBitsForAllThreads) {
  for (const GroupNormShape& s : kShapes) {
    const Inputs in(s, DType::float32);
    const Values saved = expected_forward(s, in);
    expect_same_bits_for_all_threads([&](KernelDevice& device) {
      std::vector<std::uint8_t> all = Forward(device, s, DType::float32, in).y.download_bytes();
      for (const std::uint8_t byte : Backward(device, s, DType::float32, in, saved).all_bytes()) all.push_back(byte);
      return all;
    });
  }
}

TEST(GlobalResponseNormReferenceTest, GradientsAreTheDerivatives) {
  for (const GroupNormShape& s : {GroupNormShape{4, 1, 6, 1}, GroupNormShape{2, 4, 3, 1}}) {
    const Inputs in(s, DType::float32);
    const auto x = as_double(in.x), dy = as_double(in.dy), scale = as_double(in.scale), shift = as_double(in.shift);
    const auto loss = [&](const auto& at_x, const auto& at_scale, const auto& at_shift) {
      const std::vector<double> y = reference_forward(s, at_x, at_scale, at_shift, kEpsilon).y;
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    const Gradients g = expected_backward(s, in, expected_forward(s, in));
    expect_gradient(x, g.dx, [&](const auto& v) { return loss(v, scale, shift); });
    expect_gradient(scale, g.dscale, [&](const auto& v) { return loss(x, v, shift); });
    expect_gradient(shift, g.dshift, [&](const auto& v) { return loss(x, scale, v); });
  }
}

// Two samples of 5 positions and 8 channels: 80 values of float16, 16 norms and 2 inverses, two vectors of 8.
TEST(GlobalResponseNormWork, IsWhatTheContractSays) {
  const GroupNormShape s{2, 5, 8, 1};
  const auto forward = [=](void* y) {
    return [=](const Exec& e) { work::global_response_forward(e, s, kHalf, {}, {}, y, {}); };
  };
  const auto backward = [=](const NormGradients& to) {
    return [=](const Exec& e) { work::global_response_backward(e, s, kHalf, {}, kSome, to, {}); };
  };
  expect_work(
      {{"global_response_forward", forward(kSome), 2 * 3 * 80 + 4 * 18 + 2 * 32, 0, KernelKind::pass, 3},
       {"global_response_forward", forward(nullptr), 2 * 80 + 4 * 18, 0, KernelKind::pass, 2},
       {"global_response_apply", [=](const Exec& e) { work::global_response_apply(e, s, kHalf, {}, kSome); },
        2 * 2 * 80 + 4 * 18 + 2 * 32, 0},
       {"global_response_backward",  // x and dy; x, dy and dx
        backward({kSome, kFloats, kFloats, true}), 2 * 5 * 80 + 4 * 18 + 32 + 2 * 2 * 32, 0, KernelKind::pass, 4},
       {"global_response_backward", backward({.dscale = kFloats}), 2 * 2 * 80 + 4 * 18 + 32 + 32, 0, KernelKind::pass,
        3}});
}

}  // namespace
}  // namespace bantam::kernels::global_response_norm_test
