// The masked input gradient of a pointwise convolution: every device against plain loops in double; sums of what was
// written, aliasing, masks of zeros, NaN, determinism.
#include "bantam/kernels/pointwise/masked_gradient.h"

#include <algorithm>
#include <limits>

#include "tests/kernels/arrays.h"
#include "tests/kernels/guarded_buffer.h"

namespace bantam::kernels::masked_gradient_test {
namespace {

using namespace bantam::testing;  // NOLINT: test support
using S = PointwiseShape;

const DType kHalves[] = {DType::float16, DType::bfloat16};

class MaskedGradientTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, MaskedGradientTest, ::testing::ValuesIn(test_devices()), device_test_name);

// Unfinished tiles of 64 rows, one row, a warpgroup without a tile; one block of 128 columns, some, and so many that a
// warpgroup has several tiles one after another; each depth of the weights from 64 to 512; chunks of 16 MiB of dz, and
// an unfinished one.
const S kShapes[] = {
    {1, 128, 64},           {130, 128, 64},          {64 * 37 + 19, 512, 128}, {700, 384, 192},
    {1000, 1024, 256},      {333, 640, 320},         {400, 256, 384},          {200, 128, 448},
    {64 * 5 + 1, 256, 512}, {64 * 64 + 5, 2048, 64}, {64 * 64 + 5, 2048, 256}, {64 * 32 + 5, 2048, 512}};

struct Inputs {
  Inputs(const S& s, DType dtype)
      : dy(random_values(s.rows * s.out, 1, dtype)),
        w(random_values(s.out * s.in, 2, dtype)),
        addend(random_values(s.rows * s.in, 3, dtype, -4.0f, 4.0f)),
        mask(static_cast<std::size_t>(s.rows * s.in / 8)) {
    PhiloxSequence random(philox_key(4, RandomPurpose::test));
    for (std::uint8_t& byte : mask) byte = static_cast<std::uint8_t>(random.below(256));
  }
  bool bit(std::int64_t at) const { return (mask[static_cast<std::size_t>(at / 8)] >> (at % 8) & 1) != 0; }
  /// A row of dz before it is rounded.
  std::vector<double> row(const S& s, std::int64_t r) const {
    const auto in = static_cast<std::size_t>(s.in);
    std::vector<double> sum(addend.begin() + r * s.in, addend.begin() + (r + 1) * s.in);
    for (std::int64_t o = 0; o < s.out; ++o) {
      const double g = dy[static_cast<std::size_t>(r * s.out + o)];
      const float* const from = w.data() + o * s.in;
      for (std::size_t i = 0; i < in; ++i) sum[i] += g * static_cast<double>(from[i]);
    }
    for (std::size_t i = 0; i < in; ++i)
      if (!bit(r * s.in + static_cast<std::int64_t>(i))) sum[i] = 0;
    return sum;
  }
  std::vector<float> dy, w, addend;
  std::vector<std::uint8_t> mask;
};

struct Results {
  Results(KernelDevice& device, const S& s, DType dtype, const Inputs& in, bool in_place = false)
      : dz(device, s.rows * s.in, dtype), sums(device, s.in, DType::float32) {
    const DeviceBuffer dy(device, in.dy, dtype), w(device, in.w, dtype), addend(device, in.addend, dtype);
    const DeviceArray<std::uint8_t> mask(device, in.mask);
    GuardedBytes workspace(device, masked_gradient_workspace_bytes(s, dtype, device.exec().device.kind));
    if (in_place) dz.upload(addend.download_bytes().data());
    BANTAM_KERNEL(device.exec(), masked_gradient, s, dtype, dy.data(), w.data(), in_place ? dz.data() : addend.data(),
                  mask.data(), dz.data(), sums.as<float>(), workspace.workspace());
    device.synchronize();
  }
  std::vector<std::uint8_t> bytes() const {
    std::vector<std::uint8_t> all = dz.download_bytes();
    const std::vector<std::uint8_t> more = sums.download_bytes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  GuardedBuffer dz, sums;
};

/// Each sum beside that of the values as they were written, in double. A float32 sum of n terms in a row has an error
/// of at most n/2 units of 2^-23 of Σ|dz|, and of about √n: some hundred terms are added before double takes over.
void expect_sums(const S& s, const std::vector<float>& dz, const std::vector<float>& sums) {
  std::vector<double> exact(sums.size()), size(sums.size());
  for (std::size_t i = 0; i < dz.size(); ++i) {
    exact[i % sums.size()] += static_cast<double>(dz[i]);
    size[i % sums.size()] += std::abs(static_cast<double>(dz[i]));
  }
  for (std::size_t c = 0; c < sums.size(); ++c)
    ASSERT_LE(std::abs(static_cast<double>(sums[c]) - exact[c]), 2e-6 * size[c]) << s.rows << " rows, column " << c;
}

TEST_P(MaskedGradientTest, IsTheReference) {
  for (const DType dtype : kHalves)
    for (const S& s : kShapes) {
      SCOPED_TRACE(::testing::Message() << to_string(dtype) << " " << s.rows << ": " << s.out << " to " << s.in);
      const Inputs in(s, dtype);
      const Results r(device(), s, dtype, in);
      const std::vector<float> dz = r.dz.download();
      // All rows, or of long products some of each tile and the last ones.
      const std::int64_t step = s.rows * s.in * s.out > 100'000'000 ? 7 : 1;
      std::vector<float> some;
      std::vector<double> expected;
      for (std::int64_t row = 0; row < s.rows; row += row + 70 < s.rows ? step : 1) {
        const std::vector<double> exact = in.row(s, row);
        expected.insert(expected.end(), exact.begin(), exact.end());
        some.insert(some.end(), dz.begin() + row * s.in, dz.begin() + (row + 1) * s.in);
      }
      EXPECT_LT(relative_error(some, expected), sum_tolerance(dtype, s.out + 1));
      std::int64_t leaks = 0;
      for (std::size_t i = 0; i < dz.size(); ++i)
        if (!in.bit(static_cast<std::int64_t>(i)) && dz[i] != 0) ++leaks;
      EXPECT_EQ(leaks, 0);
      expect_sums(s, dz, r.sums.download());
    }
}

TEST_P(MaskedGradientTest, SameBitsEveryTimeAndInPlace) {
  for (const DType dtype : kHalves)
    for (const S& s : {S{64 * 37 + 19, 512, 128}, S{64 * 32 + 5, 2048, 512}}) {
      const Inputs in(s, dtype);
      const std::vector<std::uint8_t> first = Results(device(), s, dtype, in).bytes();
      EXPECT_EQ(Results(device(), s, dtype, in).bytes(), first);
      EXPECT_EQ(Results(device(), s, dtype, in, true).bytes(), first) << "dz aliases addend";
    }
}

TEST_P(MaskedGradientTest, AMaskOfZerosGivesZeros) {
  const S s{64 * 5 + 1, 256, 512};
  Inputs in(s, DType::float16);
  std::fill(in.mask.begin(), in.mask.end(), std::uint8_t{0});
  const Results r(device(), s, DType::float16, in);
  for (const float v : r.dz.download()) ASSERT_EQ(v, 0.0f);
  for (const float v : r.sums.download()) ASSERT_EQ(v, 0.0f);
}

TEST_P(MaskedGradientTest, NanStaysAlsoWhereItIsMasked) {
  // As masked_activation_grad, which multiplies by 0: so that an overflow shows, whichever kernel masks.
  const S s{64 * 5 + 1, 256, 128};
  for (const DType dtype : kHalves) {
    Inputs in(s, dtype);
    const std::int64_t risen = 70 * s.in + 5, masked = (s.rows - 1) * s.in + 200;
    in.mask[static_cast<std::size_t>(risen / 8)] = 0xff;
    in.mask[static_cast<std::size_t>(masked / 8)] = 0;
    for (const std::int64_t at : {risen, masked})
      in.addend[static_cast<std::size_t>(at)] = std::numeric_limits<float>::quiet_NaN();
    const Results r(device(), s, dtype, in);
    const std::vector<float> dz = r.dz.download(), sums = r.sums.download();
    for (std::int64_t i = 0; i < s.rows * s.in; ++i)
      ASSERT_EQ(std::isnan(dz[static_cast<std::size_t>(i)]), i == risen || i == masked) << i;
    for (std::int64_t c = 0; c < s.in; ++c)
      ASSERT_EQ(std::isnan(sums[static_cast<std::size_t>(c)]), c == risen % s.in || c == masked % s.in) << c;
  }
}

TEST(MaskedGradientCpuTest, SameBitsForAllThreads) {
  const S s{700, 384, 192};
  const Inputs in(s, DType::bfloat16);
  expect_same_bits_for_all_threads(
      [&](KernelDevice& device) { return Results(device, s, DType::bfloat16, in).bytes(); });
}

TEST(MaskedGradientShapes, AreThoseThatTheKernelsSupport) {
  const auto supports = [](const S& s, DType dtype = DType::float16, DeviceKind target = DeviceKind::cuda) {
    return masked_gradient_supports(s, dtype, target);
  };
  for (const S& s : kShapes) EXPECT_TRUE(supports(s) && supports(s, DType::bfloat16));
  EXPECT_FALSE(supports({1000, 256, 64}, DType::float32)) << "half types";
  EXPECT_FALSE(supports({1000, 256, 64}, DType::float16, DeviceKind::cpu)) << "no gain on the CPU";
  EXPECT_FALSE(supports({1000, 192, 64})) << "blocks of 128 columns";
  EXPECT_FALSE(supports({1000, 256, 96})) << "stages of 64 channels";
  EXPECT_FALSE(supports({1000, 256, 576})) << "weights that stay in shared memory";
}

}  // namespace
}  // namespace bantam::kernels::masked_gradient_test
