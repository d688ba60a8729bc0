// Backward of the separable block on CUDA against the reference in double: odd shapes, all types, codes of both kinds,
// accumulation, gradients nobody wants, guards, the same bits every time.
#include <array>

#include "bantam/kernels/separable/separable_backward_tiles.h"
#include "bantam/kernels/separable/separable_block_reference.h"
#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

#if defined(BANTAM_WITH_CUDA)

namespace bantam::kernels::separable_block_backward_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = SeparableBlockShape;

class SeparableBlockBackwardTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, SeparableBlockBackwardTest, ::testing::Values(Device::cuda(0)), device_test_name);

/// Padding (top, bottom, left, right).
S block(std::int64_t batch, std::int64_t height, std::int64_t width, std::int64_t in, std::int64_t out,
        std::int64_t pool, std::array<std::int64_t, 4> pad = {0, 0, 0, 0}, bool relu = true) {
  return {.batch = batch,
          .in_h = height,
          .in_w = width,
          .in_channels = in,
          .out_channels = out,
          .pad_top = pad[0],
          .pad_bottom = pad[1],
          .pad_left = pad[2],
          .pad_right = pad[3],
          .pool = pool,
          .relu = relu};
}

std::vector<S> shapes() {
  std::vector<S> all;
  for (const std::int64_t pool : {1, 2}) {
    for (const std::int64_t in : {1, 2, 3, 4, 8, 24, 32, 48, 64}) {
      all.push_back(block(3, 9, 8, in, 32, pool));
      all.push_back(block(2, 8, 11, in, 40, pool, {1, 1, 1, 1}));
      all.push_back(block(1, 7, 6, in, 8, pool, {2, 0, 0, 2}, pool == 2));
    }
    all.push_back(block(3, 13, 12, 8, 128, pool, {0, 1, 2, 1}, false));
    all.push_back(block(2, 12, 13, 32, 128, pool, {1, 2, 0, 1}));
    all.push_back(block(2, 5, 5, 3, 128, pool, {1, 2, 0, 1}));
    all.push_back(block(2, 40, 40, 64, 64, pool, {1, 1, 1, 1}));  // bands of rows
    all.push_back(block(1, 60, 50, 3, 16, pool));
  }
  for (const std::int64_t batch : {1, 16, 130}) {
    all.push_back(block(batch, 32, 32, 3, 32, 2));
    all.push_back(block(batch, 15, 15, 32, 64, 1));
  }
  all.push_back(block(600, 8, 8, 16, 16, 1));  // several images a thread block
  all.push_back(block(900, 6, 6, 3, 8, 2));
  return all;
}

std::string name(const S& s) {
  return (::testing::Message() << "n" << s.batch << " " << s.in_h << "x" << s.in_w << "x" << s.in_channels << " to "
                               << s.out_channels << " pool " << s.pool << " pad " << s.pad_top << s.pad_bottom
                               << s.pad_left << s.pad_right << (s.relu ? " relu" : ""))
      .GetString();
}

/// Operands, with codes as a forward pass could write them: a fifth of the windows closed where there is ReLU.
struct Inputs {
  Inputs(const S& s, DType dtype)
      : x(random_values(s.x_elements(), 1, dtype)),
        w_depthwise(random_values(s.depthwise_elements(), 2, dtype)),
        w_pointwise(random_values(s.pointwise_elements(), 3, dtype)),
        dy(random_values(s.y_elements(), 4, dtype)) {
    for (const float choice : random_values(s.y_elements(), 5, DType::float32, 0.0f, 5.0f)) {
      const auto place = static_cast<int>(choice);
      const bool closed = s.relu && place >= 4;
      pixel.push_back(closed ? 0 : static_cast<std::uint8_t>(s.pool == 2 ? 1 << place % 4 : 1));
    }
    codes = reference::pack_codes(s, pixel);
  }
  std::vector<float> x, w_depthwise, w_pointwise, dy;
  std::vector<std::uint8_t> pixel, codes;
};

/// One backward pass; weight gradients start at `start` where `accumulate` says so, and are written as partial sums and
/// added up afterwards where `in_parts` does.
struct Results {
  Results(KernelDevice& device, const S& s, DType dtype, const Inputs& in, bool wants_dx,
          std::array<bool, 3> accumulate = {}, float start = 0.0f, bool in_parts = false)
      : dx(device, s.x_elements(), dtype),
        d_depthwise(device, std::vector<float>(static_cast<std::size_t>(s.depthwise_elements()), start)),
        d_pointwise(device, std::vector<float>(static_cast<std::size_t>(s.pointwise_elements()), start)),
        d_bias(device, std::vector<float>(static_cast<std::size_t>(s.out_channels), start)) {
    const DeviceBuffer x(device, in.x, dtype), w_depthwise(device, in.w_depthwise, dtype);
    const DeviceBuffer w_pointwise(device, in.w_pointwise, dtype), dy(device, in.dy, dtype);
    const DeviceArray<std::uint8_t> codes(device, in.codes);
    GuardedBytes workspace(device, separable_backward_workspace_bytes(s, dtype));
    PartialSums partial;
    const SeparableBlockInputs inputs{
        .x = x.data(),
        .weights = {.depthwise = w_depthwise.data(), .pointwise = w_pointwise.data(), .bias = nullptr},
        .dy = dy.data(),
        .codes = in.codes.empty() ? nullptr : codes.data()};
    const SeparableBlockGradients to{.dx = wants_dx ? dx.data() : nullptr,
                                     .depthwise = {d_depthwise.as<float>(), accumulate[0]},
                                     .pointwise = {d_pointwise.as<float>(), accumulate[1]},
                                     .bias = {s.bias ? d_bias.as<float>() : nullptr, accumulate[2]},
                                     .partial_sums = in_parts ? &partial : nullptr};
    BANTAM_KERNEL(device.exec(), separable_block_backward, s, dtype, inputs, to, workspace.workspace());
    EXPECT_EQ(partial.count, in_parts ? 2 + s.bias : 0);
    BANTAM_KERNEL(device.exec(), add_up_parts, partial);
    device.synchronize();
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = dx.download_bytes();
    for (const GuardedBuffer* buffer : {&d_depthwise, &d_pointwise, &d_bias}) {
      const std::vector<std::uint8_t> more = buffer->download_bytes();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  GuardedBuffer dx, d_depthwise, d_pointwise, d_bias;
};

/// Weight gradients: sums of at most a few hundred terms are added part by part, over operands rounded to `dtype`
/// (mid, and nothing else, is rounded once more).
void expect_gradients(const Results& r, const S& s, DType dtype, const Inputs& in, bool wants_dx, double start = 0) {
  const auto x = as_double(in.x), w_depthwise = as_double(in.w_depthwise), w_pointwise = as_double(in.w_pointwise);
  auto expected = reference::separable_block_backward(s, x, w_depthwise, w_pointwise, as_double(in.dy), in.pixel);
  for (auto* gradient : {&expected.d_depthwise, &expected.d_pointwise, &expected.d_bias}) {
    for (double& v : *gradient) v += start;
  }
  EXPECT_LT(relative_error(r.d_depthwise.download(), expected.d_depthwise), sum_tolerance(DType::float32, 256));
  EXPECT_LT(relative_error(r.d_pointwise.download(), expected.d_pointwise), sum_tolerance(dtype, 256));
  if (s.bias) {
    EXPECT_LT(relative_error(r.d_bias.download(), expected.d_bias), sum_tolerance(DType::float32, 256));
  }
  if (wants_dx) {
    EXPECT_LT(relative_error(r.dx.download(), expected.dx), sum_tolerance(dtype, 9 * s.out_channels));
  }
}

TEST_P(SeparableBlockBackwardTest, HandComputed) {
  // One image of 3x3 pixels and one channel, without padding: one position, whose depthwise sum is 45. Of 8 outputs,
  // the first alone has a gradient, 2, and a weight, 3: d_pointwise = 2·45, d_mid = 2·3.
  const S s = block(1, 3, 3, 1, 8, 1, {0, 0, 0, 0}, false);
  Inputs in(s, DType::float32);
  in.x = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  in.w_depthwise.assign(9, 1.0f);
  in.w_pointwise = {3, 0, 0, 0, 0, 0, 0, 0};
  in.dy = {2, 0, 0, 0, 0, 0, 0, 0};
  for (const DType dtype : kFloatingTypes) {
    const Results r(device(), s, dtype, in, true);
    EXPECT_EQ(r.d_pointwise.download(), (std::vector<float>{90, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(r.d_depthwise.download(), (std::vector<float>{6, 12, 18, 24, 30, 36, 42, 48, 54}));
    EXPECT_EQ(r.d_bias.download(), (std::vector<float>{2, 0, 0, 0, 0, 0, 0, 0}));
    EXPECT_EQ(r.dx.download(), std::vector<float>(9, 6.0f));
  }
}

TEST_P(SeparableBlockBackwardTest, MatchesReference) {
  for (const DType dtype : kFloatingTypes) {
    for (const S& s : shapes()) {
      if (dtype == DType::bfloat16 && s.batch > 16) continue;  // the reference is slow
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << name(s));
      ASSERT_TRUE(separable_backward_fits(s, dtype));
      const Inputs in(s, dtype);
      expect_gradients(Results(device(), s, dtype, in, true), s, dtype, in, true);
    }
  }
}

TEST_P(SeparableBlockBackwardTest, WithoutInputGradient) {
  for (const S& s : {block(3, 9, 8, 3, 32, 2), block(3, 9, 8, 32, 64, 1)}) {
    const Inputs in(s, DType::float16);
    const Results r(device(), s, DType::float16, in, false);
    expect_gradients(r, s, DType::float16, in, false);
    EXPECT_EQ(r.dx.download_bytes(), std::vector<std::uint8_t>(r.dx.download_bytes().size(), 0xff)) << "dx was written";
  }
}

TEST_P(SeparableBlockBackwardTest, Accumulates) {
  for (S s : {block(20, 9, 8, 3, 32, 2), block(20, 9, 8, 32, 64, 1)}) {
    for (const DType dtype : kFloatingTypes) {
      const Inputs in(s, dtype);
      expect_gradients(Results(device(), s, dtype, in, true, {true, true, true}, 3.0f), s, dtype, in, true, 3);
      expect_gradients(Results(device(), s, dtype, in, true, {false, false, false}, 3.0f), s, dtype, in, true, 0);
    }
    // Each array by its own flag.
    const Inputs in(s, DType::float32);
    const Results plain(device(), s, DType::float32, in, true),
        one(device(), s, DType::float32, in, true, {true, false, false}, 1.0f);
    EXPECT_EQ(one.d_pointwise.download_bytes(), plain.d_pointwise.download_bytes());
    EXPECT_EQ(one.d_bias.download_bytes(), plain.d_bias.download_bytes());
    EXPECT_NE(one.d_depthwise.download_bytes(), plain.d_depthwise.download_bytes());
  }
}

TEST_P(SeparableBlockBackwardTest, LeftInPartsItIsTheSameBits) {
  std::vector<S> all = {block(130, 32, 32, 3, 32, 2), block(20, 15, 15, 32, 64, 1), block(3, 9, 8, 24, 40, 2)};
  all.push_back(all.back());
  all.back().bias = false;
  all.push_back(block(0, 9, 8, 8, 16, 1));  // no images: zeros
  for (const S& s : all) {
    for (const DType dtype : kFloatingTypes) {
      const Inputs in(s, dtype);
      for (const bool accumulate : {false, true}) {
        const std::array<bool, 3> each = {accumulate, accumulate, accumulate};
        EXPECT_EQ(Results(device(), s, dtype, in, true, each, 3.0f, true).bytes(),
                  Results(device(), s, dtype, in, true, each, 3.0f, false).bytes())
            << name(s);
      }
    }
  }
}

TEST_P(SeparableBlockBackwardTest, WithoutBias) {
  for (S s : {block(3, 9, 8, 3, 32, 2), block(3, 9, 8, 32, 64, 1)}) {
    s.bias = false;
    const Inputs in(s, DType::float16);
    const Results r(device(), s, DType::float16, in, true, {}, 5.0f);
    expect_gradients(r, s, DType::float16, in, true);
    EXPECT_EQ(r.d_bias.download(), std::vector<float>(static_cast<std::size_t>(s.out_channels), 5.0f));
  }
}

TEST_P(SeparableBlockBackwardTest, SameBitsEveryTime) {
  for (const S& s : {block(130, 32, 32, 3, 32, 2), block(130, 15, 15, 32, 64, 1), block(16, 15, 15, 32, 64, 1)}) {
    for (const DType dtype : kFloatingTypes) {
      const Inputs in(s, dtype);
      EXPECT_EQ(Results(device(), s, dtype, in, true).bytes(), Results(device(), s, dtype, in, true).bytes());
    }
  }
}

TEST_P(SeparableBlockBackwardTest, EmptyBatch) {
  for (const S& s : {block(0, 9, 8, 3, 32, 2), block(0, 9, 8, 32, 64, 1)}) {
    const Results r(device(), s, DType::float16, Inputs(s, DType::float16), true, {}, 5.0f);
    EXPECT_EQ(r.d_pointwise.download(), std::vector<float>(static_cast<std::size_t>(s.pointwise_elements()), 0.0f));
    EXPECT_EQ(r.d_bias.download(), std::vector<float>(static_cast<std::size_t>(s.out_channels), 0.0f));
  }
}

}  // namespace
}  // namespace bantam::kernels::separable_block_backward_test

#endif
