// The separable block's forward pass: hand values, every device against the reference in double, codes, ties, guards.
#include "bantam/kernels/separable/separable_block.h"

#include <bit>
#include <cmath>
#include <string>
#include <thread>

#include "bantam/kernels/separable/separable_block_reference.h"
#include "tests/kernels/guarded_buffer.h"
#include "tests/kernels/separable/separable_block_shapes.h"

namespace bantam::kernels::separable_block_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = SeparableBlockShape;

class SeparableBlockTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SeparableBlockTest, ::testing::ValuesIn(test_devices()), device_test_name);

struct Inputs {
  Inputs(const S& s, DType dtype)
      : x(random_values(s.x_elements(), 1, dtype)),
        depthwise(random_values(s.depthwise_elements(), 2, dtype)),
        pointwise(random_values(s.pointwise_elements(), 3, dtype)),
        bias(random_values(s.out_channels, 4, dtype)) {}
  /// Small whole numbers: sums are exact in every type, and many are equal.
  static Inputs whole(const S& s) {
    Inputs in(s, DType::float32);
    for (std::vector<float>* values : {&in.x, &in.depthwise, &in.pointwise, &in.bias})
      for (float& v : *values) v = std::round(0.8f * v);
    return in;
  }
  reference::SeparableBlock<double> expected(const S& s) const {
    return reference::separable_block_forward(s, as_double(x), as_double(depthwise), as_double(pointwise),
                                              as_double(bias));
  }
  std::vector<float> x, depthwise, pointwise, bias;
};

/// y and codes of a device.
struct Results {
  Results(KernelDevice& device, const S& s, DType dtype, const Inputs& in, bool with_codes = true)
      : y(device, s.y_elements(), dtype), codes(device, static_cast<std::size_t>(separable_block_code_bytes(s))) {
    const DeviceBuffer x(device, in.x, dtype), depthwise(device, in.depthwise, dtype),
        pointwise(device, in.pointwise, dtype), bias(device, in.bias, dtype);
    GuardedBytes workspace(
        device, separable_block_workspace_bytes(s, dtype, SeparableBlockPass::forward, device.exec().device.kind));
    const SeparableBlockWeights weights{
        .depthwise = depthwise.data(), .pointwise = pointwise.data(), .bias = s.bias ? bias.data() : nullptr};
    BANTAM_KERNEL(device.exec(), separable_block_forward, s, dtype, x.data(), weights, y.data(),
                  with_codes ? codes.as<std::uint8_t>() : nullptr, workspace.workspace());
    device.synchronize();
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = y.download_bytes();
    const std::vector<std::uint8_t> more = codes.download_bytes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  GuardedBuffer y;
  GuardedBytes codes;
};

TEST_P(SeparableBlockTest, HandComputed) {
  // One channel, a 4x4 image, two 2x2 windows' worth of sums: a kernel that picks its centre, weights 1 and -1.
  const S s{.batch = 1, .in_h = 4, .in_w = 4, .in_channels = 1, .out_channels = 8, .pool = 2};
  Inputs in(s, DType::float32);
  in.x = {9, 9, 9, 9, 9, 1, 4, 9, 9, 3, 4, 9, 9, 9, 9, 9};
  in.depthwise = {0, 0, 0, 0, 1, 0, 0, 0, 0};
  in.pointwise = {1, -1, 2, 0, 1, 1, 1, 1};
  in.bias = {0, 0, -7, 0, -4, -5, 1, 0};
  for (const DType dtype : kFloatingTypes) {
    const Results r(device(), s, dtype, in);
    EXPECT_EQ(r.y.download(), (std::vector<float>{4, 0, 1, 0, 0, 0, 5, 4}));
    // The first of two maxima, at the upper right: bit 1. Closed: at -1, and at zeros.
    EXPECT_EQ(r.codes.download_bytes(), (std::vector<std::uint8_t>{0x02, 0x02, 0x00, 0x22}));
  }
}

TEST_P(SeparableBlockTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const S& s : separable_block_shapes()) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << name_of(s));
      const Inputs in(s, dtype);
      const Results r(device(), s, dtype, in);
      // Three roundings to dtype: between the convolutions (or of the weights' products), of their sum, of the result.
      EXPECT_LT(relative_error(r.y.download(), in.expected(s).y),
                sum_tolerance(dtype, 9 + s.in_channels) + 2 * unit_roundoff(dtype));
    }
  }
}

/// One thread's calls, over and over on memory of its own.
class Caller {
 public:
  Caller(Device device, std::int64_t batch)
      : shape_{.batch = batch, .in_h = 12, .in_w = 12, .in_channels = 16, .out_channels = 32, .pool = 2},
        device_(device),
        in_(shape_, kType),
        once_(device_, shape_, kType, in_) {}
  /// Ends at the first error, and says it.
  void run(int calls) {
    try {
      for (int i = 0; i < calls; ++i)
        BANTAM_KERNEL(device_.exec(), separable_block_forward, shape_, kType, x_.data(),
                      {.depthwise = depthwise_.data(), .pointwise = pointwise_.data(), .bias = bias_.data()}, y_.data(),
                      nullptr, workspace_.get());
    } catch (const Error& error) {
      error_ = error.what();
    }
  }
  const std::string& error() const { return error_; }
  bool same_as_once() const { return y_.download() == once_.y.download(); }

 private:
  static constexpr DType kType = DType::float16;
  S shape_;
  KernelDevice device_;
  Inputs in_;
  Results once_;
  DeviceBuffer x_{device_, in_.x, kType}, depthwise_{device_, in_.depthwise, kType},
      pointwise_{device_, in_.pointwise, kType}, bias_{device_, in_.bias, kType};
  GuardedBuffer y_{device_, shape_.y_elements(), kType};
  TestWorkspace workspace_{
      device_, separable_block_workspace_bytes(shape_, kType, SeparableBlockPass::forward, device_.exec().device.kind)};
  std::string error_;
};

// On CUDA a launch asks for shared memory by its grid, of a limit that belongs to the process.
TEST_P(SeparableBlockTest, ThreadsLaunchTheSameKernelWithDifferentGrids) {
  const int calls = GetParam().is_cuda() ? 5000 : 3;
  Caller few(GetParam(), 2), many(GetParam(), 700);
  std::thread second([&] { many.run(calls); });
  few.run(calls);
  second.join();
  for (const Caller* caller : {&few, &many}) {
    EXPECT_EQ(caller->error(), "");
    EXPECT_TRUE(caller->same_as_once());
  }
}

TEST_P(SeparableBlockTest, CodesPointAtTheMaximum) {
  for (const DType dtype : kFloatingTypes) {
    for (const S& s : separable_block_shapes()) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << name_of(s));
      const Inputs in(s, dtype);
      const Results r(device(), s, dtype, in);
      const auto expected = in.expected(s);
      const std::vector<float> y = r.y.download();
      const std::vector<std::uint8_t> pixel = reference::unpack_codes(s, r.codes.download_bytes());
      // An element's error is a few roundings of the terms it sums: 9·C_in products of numbers below 1, and a bias.
      const double near = 3 * unit_roundoff(dtype) * (9.0 * static_cast<double>(s.in_channels) + 1);
      for (std::size_t i = 0; i < y.size(); ++i) {
        if (s.relu) {
          ASSERT_EQ(pixel[i] != 0, y[i] > 0.0f) << "element " << i;
        }
        if (pixel[i] == 0) continue;
        ASSERT_TRUE(pixel[i] == 1 || (s.pool == 2 && (pixel[i] == 2 || pixel[i] == 4 || pixel[i] == 8))) << i;
        const int place = std::countr_zero(pixel[i]);
        const double chosen = expected.sums[reference::pixel_of(s, static_cast<std::int64_t>(i), place / 2, place % 2)];
        ASSERT_NEAR(chosen, y[i], near) << "element " << i;
      }
    }
  }
}

TEST_P(SeparableBlockTest, TheFirstOfEqualMaximaWins) {
  for (const DType dtype : kFloatingTypes) {
    for (const S& s : separable_block_shapes()) {
      if (s.in_channels > 16) continue;  // sums stay below 256, where bfloat16 is exact
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << name_of(s));
      const Inputs in = Inputs::whole(s);
      const Results r(device(), s, dtype, in);
      const auto expected = in.expected(s);
      EXPECT_EQ(as_double(r.y.download()), expected.y);
      EXPECT_EQ(r.codes.download_bytes(), reference::pack_codes(s, expected.pixel));
    }
  }
}

TEST_P(SeparableBlockTest, EvaluationNeedsNoCodes) {
  for (const DType dtype : kFloatingTypes) {
    const S s = separable_block_shapes()[5];
    const Inputs in(s, dtype);
    const Results r(device(), s, dtype, in, false);
    EXPECT_EQ(r.y.download_bytes(), Results(device(), s, dtype, in).y.download_bytes());
    EXPECT_EQ(r.codes.download_bytes(), std::vector<std::uint8_t>(r.codes.workspace().bytes, 0xff));  // untouched
  }
}

TEST_P(SeparableBlockTest, NanIsKept) {
  for (const DType dtype : kFloatingTypes) {
    for (const std::int64_t pool : {1, 2}) {
      const S s{.batch = 1, .in_h = 6, .in_w = 6, .in_channels = 8, .out_channels = 8, .pool = pool};
      Inputs in(s, dtype);
      in.x[(2 * 6 + 2) * 8] = std::nanf("");  // in every window around it
      EXPECT_TRUE(std::isnan(Results(device(), s, dtype, in).y.download()[0]));
    }
  }
}

TEST_P(SeparableBlockTest, EmptyBatch) {
  const S s{.batch = 0, .in_h = 6, .in_w = 6, .in_channels = 8, .out_channels = 8, .pool = 2};
  EXPECT_TRUE(Results(device(), s, DType::float16, Inputs(s, DType::float16)).bytes().empty());
}

TEST_P(SeparableBlockTest, OtherShapesAreRefused) {
  const S good{.batch = 1, .in_h = 6, .in_w = 6, .in_channels = 8, .out_channels = 8};
  const DeviceKind kind = exec().device.kind;
  EXPECT_TRUE(separable_block_supported(good, DType::float16, kind));
  EXPECT_FALSE(separable_block_supported(good, DType::int32, kind));
  const auto refused = [&](auto change) {
    S s = good;
    change(s);
    EXPECT_FALSE(separable_block_supported(s, DType::float32, kind)) << name_of(s);
    EXPECT_THROW(check_separable_block(s, DType::float32, kind), ShapeError);
  };
  refused([](S& s) { s.in_channels = 5; });
  refused([](S& s) { s.in_channels = 72; });
  refused([](S& s) { s.out_channels = 12; });
  refused([](S& s) { s.out_channels = 136; });
  refused([](S& s) { s.pad_left = 3; });
  refused([](S& s) { s.pool = 3; });
  refused([](S& s) { s.in_h = 2; });
  refused([](S& s) { s.in_h = 3, s.pool = 2; });
}

TEST(SeparableBlockCpuTest, SameBitsForAllThreads) {
  for (const S& s : separable_block_shapes()) {
    const Inputs in(s, DType::float32);
    expect_same_bits_for_all_threads(
        [&](KernelDevice& device) { return Results(device, s, DType::float32, in).bytes(); });
  }
}

TEST(SeparableBlockReferenceTest, GradientsAreTheDerivatives) {
  for (const std::int64_t pool : {1, 2}) {
    const S s{.batch = 2,
              .in_h = 5,
              .in_w = 6,
              .in_channels = 3,
              .out_channels = 4,
              .pad_top = 1,
              .pad_right = 2,
              .pool = pool};
    const Inputs in(s, DType::float32);
    const auto x = as_double(in.x), depthwise = as_double(in.depthwise), pointwise = as_double(in.pointwise),
               bias = as_double(in.bias), dy = as_double(random_values(s.y_elements(), 5));
    using Values = std::vector<double>;
    const auto loss = [&](const Values& at_x, const Values& at_d, const Values& at_p, const Values& at_b) {
      const Values y = reference::separable_block_forward(s, at_x, at_d, at_p, at_b).y;
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
      return sum;
    };
    const auto pixel = reference::separable_block_forward(s, x, depthwise, pointwise, bias).pixel;
    const auto g = reference::separable_block_backward(s, x, depthwise, pointwise, dy, pixel);
    expect_gradient(x, g.dx, [&](const Values& v) { return loss(v, depthwise, pointwise, bias); });
    expect_gradient(depthwise, g.d_depthwise, [&](const Values& v) { return loss(x, v, pointwise, bias); });
    expect_gradient(pointwise, g.d_pointwise, [&](const Values& v) { return loss(x, depthwise, v, bias); });
    expect_gradient(bias, g.d_bias, [&](const Values& v) { return loss(x, depthwise, pointwise, v); });
  }
}

TEST(SeparableBlockReferenceTest, CodesAreUnpackedAsTheyWerePacked) {
  for (const S& s : separable_block_shapes()) {
    const auto pixel = Inputs(s, DType::float32).expected(s).pixel;
    const auto unpacked = reference::unpack_codes(s, reference::pack_codes(s, pixel));
    EXPECT_EQ(unpacked, separable_block_code_bytes(s) > 0 ? pixel : std::vector<std::uint8_t>(pixel.size(), 1));
  }
}

}  // namespace
}  // namespace bantam::kernels::separable_block_test
