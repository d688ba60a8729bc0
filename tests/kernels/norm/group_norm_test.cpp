// Group, instance and layer norms: hand values, PyTorch's, every device and activation against the reference in double,
// large means, aliasing.
#include "bantam/kernels/norm/group_norm.h"

#include "bantam/kernels/norm/group_norm_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/norm/group_norm_oracle.h"

namespace bantam::kernels::group_norm_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support

constexpr float kEpsilon = 1e-3f;

class GroupNormTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, GroupNormTest, ::testing::ValuesIn(test_devices()), device_test_name);

// Rows of memory: fewer values than a vector, ConvNeXt's, a row of several warps, one that no block's registers hold;
// few and many rows; several groups a row.
constexpr GroupNormShape kRows[] = {{5, 1, 3, 1},      {300, 1, 20, 1}, {70, 1, 65, 1},  {7, 1, 96, 1},
                                    {33, 1, 192, 1},   {40, 1, 384, 1}, {10, 1, 768, 1}, {4, 1, 1000, 1},
                                    {600, 1, 1536, 1}, {3, 1, 2304, 1}, {2, 1, 9000, 1}, {2000, 1, 8, 1},
                                    {6, 1, 12, 3},     {50, 1, 48, 4},  {9, 1, 2100, 2}};
// Images: groups narrower and wider than a vector, a group of one channel, of all, of more than a block's columns; one
// part a sample and many.
constexpr GroupNormShape kImages[] = {{2, 9, 4, 2},     {3, 49, 24, 8},    {2, 100, 65, 5}, {4, 64, 32, 32},
                                      {1, 4000, 16, 4}, {2, 1000, 64, 32}, {3, 7, 512, 32}, {2, 5, 300, 3},
                                      {1, 30000, 3, 1}, {5, 8, 3, 3},      {2, 40, 260, 1}};

std::vector<GroupNormShape> shapes() {
  std::vector<GroupNormShape> all(std::begin(kRows), std::end(kRows));
  all.insert(all.end(), std::begin(kImages), std::end(kImages));
  return all;
}

std::string name(const GroupNormShape& s, DType dtype) {
  return (::testing::Message() << to_string(dtype) << " " << s.samples << "x" << s.positions << "x" << s.channels
                               << " in " << s.groups)
      .GetString();
}

struct Inputs {
  Inputs(const GroupNormShape& s, DType dtype, float low = -2.0f, float high = 3.0f)
      : x(random_values(s.elements(), 1, dtype, low, high)),
        dy(random_values(s.elements(), 2, dtype)),
        scale(random_values(s.channels, 3, DType::float32, 0.5f, 2.0f)),
        shift(random_values(s.channels, 4)) {}
  std::vector<float> x, dy, scale, shift;
};

struct Options {
  bool affine = true;
  bool in_place = false;
  const std::vector<float>* addend = nullptr;  ///< of dx
  bool in_addend = false;                      ///< dx is written over it
  ActivationFunction activation{};
  float epsilon = kEpsilon;
};

/// Forward on a device; applying the statistics that it saved makes the same bits, whatever the test is about.
struct Forward {
  Forward(KernelDevice& device, const GroupNormShape& s, DType dtype, const Inputs& in, Options options = {})
      : y(device, s.elements(), dtype),
        mean(device, s.samples * s.groups, DType::float32),
        inv_std(device, s.samples * s.groups, DType::float32) {
    const DeviceBuffer x(device, in.x, dtype), scale(device, in.scale, DType::float32),
        shift(device, in.shift, DType::float32);
    GuardedBytes workspace(device, group_norm_workspace_bytes(s, dtype, device.exec().device.kind));
    if (options.in_place) copy_bytes(y.data(), x.data(), x.bytes(), device.stream());
    const BatchNormAffine affine{options.affine ? scale.as<float>() : nullptr,
                                 options.affine ? shift.as<float>() : nullptr, options.activation};
    BANTAM_KERNEL(device.exec(), group_norm_forward, s, dtype, options.in_place ? y.data() : x.data(), affine,
                  options.epsilon, y.data(), mean.as<float>(), inv_std.as<float>(), workspace.workspace());
    GuardedBuffer again(device, s.elements(), dtype);
    BANTAM_KERNEL(device.exec(), group_norm_apply, s, dtype, {x.data(), affine, mean.as<float>(), inv_std.as<float>()},
                  again.data());
    device.synchronize();
    EXPECT_EQ(again.download_bytes(), y.download_bytes());
  }
  GuardedBuffer y, mean, inv_std;
};

/// Backward on a device, from statistics rounded to float32.
struct Backward {
  Backward(KernelDevice& device, const GroupNormShape& s, DType dtype, const Inputs& in,
           const reference::GroupNormOutput<double>& saved, Options options = {},
           const std::vector<float>* start = nullptr)
      : dx(device, s.elements(), dtype),
        dscale(device, s.channels, DType::float32),
        dshift(device, s.channels, DType::float32) {
    const DeviceBuffer x(device, in.x, dtype), dy(device, in.dy, dtype), scale(device, in.scale, DType::float32),
        shift(device, in.shift, DType::float32);
    const DeviceBuffer mean(device, {saved.mean.begin(), saved.mean.end()}, DType::float32);
    const DeviceBuffer inv_std(device, {saved.inv_std.begin(), saved.inv_std.end()}, DType::float32);
    GuardedBytes workspace(device, group_norm_workspace_bytes(s, dtype, device.exec().device.kind));
    if (start) dscale.upload(start->data());
    if (start) dshift.upload(start->data());
    const DeviceBuffer addend(device, options.addend != nullptr ? *options.addend : in.dy, dtype);
    const void* added = options.addend != nullptr ? (options.in_addend ? dx.data() : addend.data()) : nullptr;
    if (options.in_place) copy_bytes(dx.data(), dy.data(), dy.bytes(), device.stream());
    if (options.in_addend) copy_bytes(dx.data(), addend.data(), addend.bytes(), device.stream());
    const BatchNormAffine affine{options.affine ? scale.as<float>() : nullptr,
                                 options.affine ? shift.as<float>() : nullptr, options.activation};
    BANTAM_KERNEL(device.exec(), group_norm_backward, s, dtype,
                  {x.data(), affine, mean.as<float>(), inv_std.as<float>()}, options.in_place ? dx.data() : dy.data(),
                  added, {dx.data(), dscale.as<float>(), dshift.as<float>(), start != nullptr}, workspace.workspace());
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

reference::Affine<double> affine_of(const Inputs& in, const Options& options = {}) {
  if (!options.affine) return {{}, {}, options.activation};
  return {as_double(in.scale), as_double(in.shift), options.activation};
}

reference::GroupNormOutput<double> expected_forward(const GroupNormShape& s, const Inputs& in, Options options = {}) {
  return reference::group_norm_forward<double>(s, as_double(in.x), affine_of(in, options), options.epsilon);
}

reference::BatchNormGradients<double> expected_backward(const GroupNormShape& s, const Inputs& in,
                                                        const reference::GroupNormOutput<double>& saved,
                                                        Options options = {}) {
  return reference::group_norm_backward(s, as_double(in.x), as_double(in.dy), affine_of(in, options), saved.mean,
                                        saved.inv_std);
}

/// Sums of a group run in blocks of at most 512 terms or so. With a variance near ε (2 or 3 values) errors of the mean
/// weigh up to 1/√ε = 32 times more.
double tolerance_of(const GroupNormShape& s) {
  const std::int64_t count = s.positions * s.group_channels();
  return sum_tolerance(DType::float32, std::min<std::int64_t>(count, 512)) * (count < 8 ? 32 : 1);
}

/// How much smaller dx is than the terms that it is what remains of.
double cancellation(const GroupNormShape& s, const Inputs& in, const reference::GroupNormOutput<double>& saved,
                    const std::vector<double>& dx) {
  double terms = 0, remains = 0;
  reference::for_groups(s, [&](std::int64_t sample, std::int64_t g, std::size_t i) {
    reference::for_group(s, sample, g, [&](std::size_t at, std::size_t c) {
      terms += std::pow(in.scale[c] * saved.inv_std[i] * in.dy[at], 2);
      remains += dx[at] * dx[at];
    });
  });
  return std::max(1.0, std::sqrt(terms / remains));
}

TEST_P(GroupNormTest, HandComputed) {
  // One sample of two positions; group 0 is 1, 3, 1, 3 (mean 2, variance 1), group 1 is -4, 4, 4, -4 (0 and 16).
  Inputs in({1, 2, 4, 2}, DType::float32);
  in.x = {1, 3, -4, 4, 1, 3, 4, -4};
  in.dy = {1, 0, 0, 0, 0, 0, 0, 2};
  in.scale = {2, 1, 1, 4};
  in.shift = {10, 0, 0, 1};
  const Forward r(device(), {1, 2, 4, 2}, DType::float32, in);
  const float a = 1 / std::sqrt(1.001f), b = 1 / std::sqrt(16.001f);
  const std::vector<float> expected{10 - 2 * a, a, -4 * b, 1 + 16 * b, 10 - 2 * a, a, 4 * b, 1 - 16 * b};
  const std::vector<float> y = r.y.download();
  for (std::size_t i = 0; i < 8; ++i) EXPECT_NEAR(y[i], expected[i], 1e-6 * 16);  // one rounding of numbers below 16
  EXPECT_EQ(r.mean.download(), (std::vector<float>{2, 0}));
  // w = 2, 0, 0, 0 in group 0: dx = a(w - 1/2 - x̂·mean(w·x̂)), x̂ = ±a, mean(w·x̂) = -a/2.
  const Backward g(device(), {1, 2, 4, 2}, DType::float32, in, {.y = {}, .mean = {2, 0}, .inv_std = {a, b}});
  const std::vector<float> dx = g.dx.download();
  EXPECT_NEAR(dx[0], a * (2 - 0.5f - a * a / 2), 1e-6);
  EXPECT_NEAR(dx[1], a * (0 - 0.5f + a * a / 2), 1e-6);
  const std::vector<float> more{10, 20, 30, 40, 50, 60, 70, 80};
  const Backward sum(device(), {1, 2, 4, 2}, DType::float32, in, {.y = {}, .mean = {2, 0}, .inv_std = {a, b}},
                     {.addend = &more});
  EXPECT_NEAR(sum.dx.download()[0], a * (2 - 0.5f - a * a / 2) + 10, 2e-6);
  EXPECT_NEAR(sum.dx.download()[1], a * (0 - 0.5f + a * a / 2) + 20, 2e-6);
  EXPECT_EQ(g.dshift.download(), (std::vector<float>{1, 0, 0, 2}));
  const std::vector<float> dscale = g.dscale.download();
  EXPECT_NEAR(dscale[0], -a, 1e-6);
  EXPECT_NEAR(dscale[3], -8 * b, 1e-6);
}

std::vector<float> eighths(std::int64_t count, std::int64_t step, std::int64_t modulus, float more = 0) {
  std::vector<float> values;
  const std::int64_t half = modulus / 2;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(i * step % modulus - half) / 8 + more);
  return values;
}

TEST_P(GroupNormTest, ValuesOfPyTorch) {
  for (const NormOracle& oracle : kNormOracles) {
    SCOPED_TRACE(oracle.name);
    const GroupNormShape& s = oracle.shape;
    Inputs in(s, DType::float32);
    in.x = eighths(s.elements(), 37, 23);
    in.dy = eighths(s.elements(), 29, 19);
    in.scale = eighths(s.channels, 5, 11, 1.5f);
    in.shift = eighths(s.channels, 3, 7);
    const Options options{.affine = oracle.affine, .activation = {oracle.activation}, .epsilon = kOracleEpsilon};
    const double tolerance = sum_tolerance(DType::float32, 64);  // sums of 25 values, and an activation's roundings
    EXPECT_LT(relative_error(Forward(device(), s, DType::float32, in, options).y.download(), oracle.y), tolerance);
    const Backward g(device(), s, DType::float32, in, expected_forward(s, in, options), options);
    EXPECT_LT(relative_error(g.dx.download(), oracle.dx), tolerance);
    if (!oracle.affine) continue;
    EXPECT_LT(relative_error(g.dscale.download(), oracle.dscale), tolerance);
    EXPECT_LT(relative_error(g.dshift.download(), oracle.dshift), tolerance);
  }
}

TEST_P(GroupNormTest, ForwardMatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const GroupNormShape& s : shapes()) {
      for (const bool affine : {true, false}) {
        SCOPED_TRACE(name(s, dtype));
        const Inputs in(s, dtype);
        const Forward r(device(), s, dtype, in, {.affine = affine});
        const auto expected = expected_forward(s, in, {.affine = affine});
        EXPECT_LT(relative_error(r.mean.download(), expected.mean), tolerance_of(s));
        EXPECT_LT(relative_error(r.inv_std.download(), expected.inv_std), tolerance_of(s));
        EXPECT_LT(relative_error(r.y.download(), expected.y), unit_roundoff(dtype) + tolerance_of(s));
      }
    }
  }
}

TEST_P(GroupNormTest, BackwardMatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const GroupNormShape& s : shapes()) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      const auto saved = expected_forward(s, in);
      const auto expected = expected_backward(s, in, saved);
      const Backward r(device(), s, dtype, in, saved);
      const double sums = sum_tolerance(DType::float32, std::min<std::int64_t>(s.samples * s.positions, 512));
      EXPECT_LT(relative_error(r.dshift.download(), expected.dshift), sums);
      EXPECT_LT(relative_error(r.dscale.download(), expected.dscale), sums);
      EXPECT_LT(relative_error(r.dx.download(), expected.dx),
                unit_roundoff(dtype) + tolerance_of(s) * cancellation(s, in, saved, expected.dx));
    }
  }
}

/// The addend is as large as dx itself.
TEST_P(GroupNormTest, BackwardAddsToDx) {
  for (const DType dtype : kFloatingTypes) {
    for (const GroupNormShape& s : shapes()) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      const auto saved = expected_forward(s, in);
      auto expected = expected_backward(s, in, saved);
      const double terms = tolerance_of(s) * cancellation(s, in, saved, expected.dx);
      const std::vector<float> addend = random_values(s.elements(), 9, dtype, -3.0f, 3.0f);
      for (std::size_t i = 0; i < addend.size(); ++i) expected.dx[i] += static_cast<double>(addend[i]);
      const Backward r(device(), s, dtype, in, saved, {.addend = &addend}), plain(device(), s, dtype, in, saved);
      EXPECT_LT(relative_error(r.dx.download(), expected.dx), unit_roundoff(dtype) + terms);
      EXPECT_EQ(r.dscale.download_bytes(), plain.dscale.download_bytes());
      EXPECT_EQ(r.dshift.download_bytes(), plain.dshift.download_bytes());
      for (const Options& options :
           {Options{.in_place = true, .addend = &addend}, Options{.addend = &addend, .in_addend = true}})
        EXPECT_EQ(Backward(device(), s, dtype, in, saved, options).all_bytes(), r.all_bytes());
    }
  }
}

TEST_P(GroupNormTest, LargeMeanKeepsTheVariance) {
  // Mean 1e3, standard deviation 1: E[x²] - E[x]² in float32 would lose all but one digit (1e6·2^-24 = 0.06). Uniform
  // values of width √12.
  for (const GroupNormShape& s :
       {GroupNormShape{200, 1, 96, 1}, GroupNormShape{5, 1, 1536, 1}, GroupNormShape{3, 1, 77, 1},
        GroupNormShape{2, 1000, 32, 4}, GroupNormShape{4, 300, 20, 20}, GroupNormShape{1, 20000, 6, 1}}) {
    SCOPED_TRACE(name(s, DType::float32));
    const Inputs in(s, DType::float32, 1e3f - 1.7320508f, 1e3f + 1.7320508f);
    const Forward r(device(), s, DType::float32, in);
    const auto expected = expected_forward(s, in);
    EXPECT_LT(relative_error(r.mean.download(), expected.mean), 4 * unit_roundoff(DType::float32));
    // A mean that is off by 2^-24·1e3 = 6e-5 shifts the variance by its square only; sums of squares add their error.
    EXPECT_LT(relative_error(r.inv_std.download(), expected.inv_std), 1e-5);
    EXPECT_LT(relative_error(r.y.download(), expected.y), 1e-4);  // the saved mean is rounded by up to 3e-5
  }
}

TEST_P(GroupNormTest, ActivationsMatchReference) {
  for (const GroupNormShape& s : {GroupNormShape{12, 1, 40, 2}, GroupNormShape{3, 50, 24, 3}}) {
    const Inputs in(s, DType::float32);
    for (const ActivationFunction f :
         {ActivationFunction{Activation::relu}, ActivationFunction{Activation::leaky_relu, 0.25f},
          ActivationFunction{Activation::gelu}, ActivationFunction{Activation::silu}}) {
      SCOPED_TRACE(name(s, DType::float32) + " " + std::string(to_string(f.kind)));
      const Options options{.activation = f};
      const auto expected = expected_forward(s, in, options);
      const auto gradients = expected_backward(s, in, expected, options);
      const Forward r(device(), s, DType::float32, in, options);
      const Backward g(device(), s, DType::float32, in, expected, options);
      // An activation and its derivative in float32 are good to some 16 units in the last place.
      const double tolerance = sum_tolerance(DType::float32, 512);
      EXPECT_LT(relative_error(r.y.download(), expected.y), tolerance);
      EXPECT_LT(relative_error(g.dx.download(), gradients.dx), tolerance);
      EXPECT_LT(relative_error(g.dscale.download(), gradients.dscale), tolerance);
      EXPECT_LT(relative_error(g.dshift.download(), gradients.dshift), tolerance);
    }
  }
}

TEST_P(GroupNormTest, AGroupOfOneValueIsItsShift) {
  const GroupNormShape s{9, 1, 7, 7};
  const Inputs in(s, DType::float32);
  const std::vector<float> y = Forward(device(), s, DType::float32, in).y.download();
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], in.shift[i % 7]);
  const Backward g(device(), s, DType::float32, in, expected_forward(s, in));
  // x - mean is 0 and w its own mean: nothing remains of terms as large as inv_std·scale·dy = 32·2·1.
  for (const float dx : g.dx.download()) EXPECT_NEAR(dx, 0, 64 * 4 * unit_roundoff(DType::float32));
}

TEST_P(GroupNormTest, OutputsMayAliasInputs) {
  for (const DType dtype : kFloatingTypes) {
    for (const GroupNormShape& s :
         {GroupNormShape{50, 1, 3, 1}, GroupNormShape{70, 1, 384, 1}, GroupNormShape{3, 1, 2304, 1},
          GroupNormShape{3, 500, 64, 8}, GroupNormShape{2, 30, 65, 13}}) {
      SCOPED_TRACE(name(s, dtype));
      const Inputs in(s, dtype);
      EXPECT_EQ(Forward(device(), s, dtype, in, {.in_place = true}).y.download_bytes(),
                Forward(device(), s, dtype, in).y.download_bytes());
      const auto saved = expected_forward(s, in);
      EXPECT_EQ(Backward(device(), s, dtype, in, saved, {.in_place = true}).all_bytes(),
                Backward(device(), s, dtype, in, saved).all_bytes());
    }
  }
}

TEST_P(GroupNormTest, GradientsAccumulateAndMayBeLeftOut) {
  for (const GroupNormShape& s : {GroupNormShape{700, 1, 48, 1}, GroupNormShape{3, 300, 20, 5}}) {
    SCOPED_TRACE(name(s, DType::float32));
    const Inputs in(s, DType::float32);
    const auto saved = expected_forward(s, in);
    const std::vector<float> start = random_values(s.channels, 8);
    const Backward fresh(device(), s, DType::float32, in, saved),
        added(device(), s, DType::float32, in, saved, {}, &start);
    std::vector<double> dscale = as_double(fresh.dscale.download()), dshift = as_double(fresh.dshift.download());
    for (std::size_t c = 0; c < start.size(); ++c) dscale[c] += start[c], dshift[c] += start[c];
    EXPECT_LT(relative_error(added.dscale.download(), dscale), 2 * unit_roundoff(DType::float32));
    EXPECT_LT(relative_error(added.dshift.download(), dshift), 2 * unit_roundoff(DType::float32));

    const DeviceBuffer x(device(), in.x, DType::float32), dy(device(), in.dy, DType::float32),
        scale(device(), in.scale, DType::float32),
        mean(device(), {saved.mean.begin(), saved.mean.end()}, DType::float32),
        inv_std(device(), {saved.inv_std.begin(), saved.inv_std.end()}, DType::float32);
    GuardedBytes workspace(device(), group_norm_workspace_bytes(s, DType::float32, GetParam().kind));
    GuardedBuffer dx(device(), s.elements(), DType::float32), only(device(), s.channels, DType::float32);
    const NormOperand norm{x.data(), {.scale = scale.as<float>()}, mean.as<float>(), inv_std.as<float>()};
    BANTAM_KERNEL(exec(), group_norm_backward, s, DType::float32, norm, dy.data(), nullptr,
                  {.dshift = only.as<float>()}, workspace.workspace());
    EXPECT_EQ(only.download(), fresh.dshift.download());
    BANTAM_KERNEL(exec(), group_norm_backward, s, DType::float32, norm, dy.data(), nullptr, {.dx = dx.data()},
                  workspace.workspace());
    EXPECT_EQ(dx.download(), fresh.dx.download());
  }
}

TEST_P(GroupNormTest, StatisticsAlone) {
  for (const GroupNormShape& s : {GroupNormShape{40, 1, 96, 1}, GroupNormShape{3, 300, 20, 5}}) {
    const Inputs in(s, DType::float16);
    const DeviceBuffer x(device(), in.x, DType::float16);
    GuardedBuffer mean(device(), s.samples * s.groups, DType::float32),
        inv_std(device(), s.samples * s.groups, DType::float32);
    GuardedBytes workspace(device(), group_norm_workspace_bytes(s, DType::float16, GetParam().kind));
    BANTAM_KERNEL(exec(), group_norm_forward, s, DType::float16, x.data(), {}, kEpsilon, nullptr, mean.as<float>(),
                  inv_std.as<float>(), workspace.workspace());
    const Forward whole(device(), s, DType::float16, in);
    EXPECT_EQ(mean.download_bytes(), whole.mean.download_bytes());
    EXPECT_EQ(inv_std.download_bytes(), whole.inv_std.download_bytes());
  }
}

TEST_P(GroupNormTest, UnalignedMemory) {
  // One element past an aligned address: no vector can be loaded.
  for (const GroupNormShape& s : {GroupNormShape{20, 1, 96, 1}, GroupNormShape{2, 50, 32, 4}}) {
    Inputs in(s, DType::float16);
    const auto expected = expected_forward(s, in);
    std::vector<float> moved = in.x;
    moved.insert(moved.begin(), 0.0f);
    const DeviceBuffer x(device(), moved, DType::float16);
    GuardedBuffer y(device(), s.elements() + 1, DType::float16);
    GuardedBuffer mean(device(), s.samples * s.groups, DType::float32),
        inv_std(device(), s.samples * s.groups, DType::float32);
    GuardedBytes workspace(device(), group_norm_workspace_bytes(s, DType::float16, GetParam().kind));
    BANTAM_KERNEL(exec(), group_norm_forward, s, DType::float16, static_cast<const char*>(x.data()) + 2, {}, kEpsilon,
                  static_cast<char*>(y.data()) + 2, mean.as<float>(), inv_std.as<float>(), workspace.workspace());
    std::vector<float> values = y.download();
    values.erase(values.begin());
    const auto plain = expected_forward(s, in, {.affine = false});
    EXPECT_LT(relative_error(values, plain.y), unit_roundoff(DType::float16) + tolerance_of(s));
  }
}

TEST_P(GroupNormTest, IsDeterministic) {
  for (const GroupNormShape& s : shapes()) {
    const Inputs in(s, DType::float16);
    const auto saved = expected_forward(s, in);
    EXPECT_EQ(Backward(device(), s, DType::float16, in, saved).all_bytes(),
              Backward(device(), s, DType::float16, in, saved).all_bytes());
  }
}

TEST_P(GroupNormTest, NothingOfNothing) {
  BANTAM_KERNEL(exec(), group_norm_forward, {0, 1, 8, 1}, DType::float32, nullptr, {}, kEpsilon, nullptr, nullptr,
                nullptr, Workspace{});
  GuardedBuffer dscale(device(), std::vector<float>(8, 3.0f));
  BANTAM_KERNEL(exec(), group_norm_backward, {0, 4, 8, 2}, DType::float32, {}, nullptr, nullptr,
                {.dscale = dscale.as<float>()}, Workspace{});
  EXPECT_EQ(dscale.download(), std::vector<float>(8, 0.0f));
  BANTAM_KERNEL(exec(), group_norm_backward, {0, 1, 8, 1}, DType::float32, {}, nullptr, nullptr,
                {.dscale = dscale.as<float>(), .accumulate = true}, Workspace{});
  EXPECT_EQ(dscale.download(), std::vector<float>(8, 0.0f));
}

TEST_P(GroupNormTest, RefusesTooSmallWorkspace) {
  for (const GroupNormShape& s : {GroupNormShape{7000, 1, 64, 1}, GroupNormShape{2, 700, 64, 4}}) {
    const std::size_t needed = group_norm_workspace_bytes(s, DType::float16, GetParam().kind);
    ASSERT_GT(needed, 256u);
    GuardedBuffer x(device(), s.elements(), DType::float16), values(device(), s.samples * s.groups, DType::float32);
    GuardedBytes workspace(device(), needed - 1);
    EXPECT_THROW(BANTAM_KERNEL(exec(), group_norm_backward, s, DType::float16,
                               {x.data(), {}, values.as<float>(), values.as<float>()}, x.data(), nullptr,
                               {.dx = x.data()}, workspace.workspace()),
                 Error);
  }
}

TEST(GroupNormCpuTest, SameBitsForAllThreads) {
  for (const GroupNormShape& s : shapes()) {
    const Inputs in(s, DType::float32);
    expect_same_bits_for_all_threads([&](KernelDevice& device) {
      std::vector<std::uint8_t> all = Forward(device, s, DType::float32, in).y.download_bytes();
      const Options added{.addend = &in.x};
      for (const std::uint8_t byte :
           Backward(device, s, DType::float32, in, expected_forward(s, in), added).all_bytes())
        all.push_back(byte);
      return all;
    });
  }
}

TEST(GroupNormReferenceTest, GradientsAreTheDerivatives) {
  for (const GroupNormShape& s : {GroupNormShape{4, 1, 6, 1}, GroupNormShape{2, 3, 6, 3}, GroupNormShape{2, 4, 3, 3}}) {
    const Inputs in(s, DType::float32);
    const auto x = as_double(in.x), dy = as_double(in.dy);
    for (const ActivationFunction f : {ActivationFunction{}, ActivationFunction{Activation::silu}}) {
      const Options options{.activation = f};
      const auto affine = affine_of(in, options);
      const auto loss = [&](const auto& at_x, const auto& at_scale, const auto& at_shift) {
        const auto y = reference::group_norm_forward<double>(s, at_x, {at_scale, at_shift, f}, kEpsilon).y;
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
        return sum;
      };
      const auto g = expected_backward(s, in, expected_forward(s, in, options), options);
      expect_gradient(x, g.dx, [&](const auto& v) { return loss(v, affine.scale, affine.shift); });
      expect_gradient(affine.scale, g.dscale, [&](const auto& v) { return loss(x, v, affine.shift); });
      expect_gradient(affine.shift, g.dshift, [&](const auto& v) { return loss(x, affine.scale, v); });
    }
  }
}

}  // namespace
}  // namespace bantam::kernels::group_norm_test
