// Matrix products: hand values, every type and transposition against plain loops in double, with what is added to them,
// bits over thread counts.
#include "bantam/kernels/matmul/matmul.h"

#include <gtest/gtest.h>

#include "bantam/kernels/matmul/matmul_reference.h"
#include "tests/kernels/device_buffer.h"
#include "tests/kernels/guarded_workspace.h"

namespace bantam::testing::matmul_test {
namespace {

using kernels::MatmulShape;

class MatmulTest : public DeviceTest {};
INSTANTIATE_TEST_SUITE_P(Devices, MatmulTest, ::testing::ValuesIn(test_devices()), device_test_name);

struct Types {
  DType in, out;
};
constexpr Types kTypes[] = {{DType::float32, DType::float32},
                            {DType::float16, DType::float16},
                            {DType::float16, DType::float32},
                            {DType::bfloat16, DType::bfloat16},
                            {DType::bfloat16, DType::float32}};

/// Errors of k float32 additions of random signs grow like a random walk: sqrt(k) roundings of 2^-24, relative to a
/// result that grows alike; 4 for the spread of the walk. Storing in a half type rounds once more.
double tolerance(const MatmulShape& s, DType out) {
  const double rounding = out == DType::float32 ? 0.0 : unit_roundoff(out);
  return 4 * std::sqrt(static_cast<double>(s.k) + 1) * unit_roundoff(DType::float32) + rounding;
}

std::string describe(const MatmulShape& s, Types types) {
  return "m=" + std::to_string(s.m) + " n=" + std::to_string(s.n) + " k=" + std::to_string(s.k) +
         " transposes=" + std::to_string(s.transpose_a) + std::to_string(s.transpose_b) + " " +
         std::string(to_string(types.in)) + "->" + std::string(to_string(types.out));
}

struct Addends {
  const void* bias = nullptr;
  const void* residual = nullptr;
};

void run(KernelDevice& device, const MatmulShape& s, Types types, const DeviceBuffer& a, const DeviceBuffer& b,
         const DeviceBuffer& c, bool accumulate, Addends addends = {}) {
  GuardedWorkspace workspace(device, matmul_workspace_bytes(s, types.in, types.out, device.exec().device.kind));
  BANTAM_KERNEL(device.exec(), matmul, s, types.in, a.data(), b.data(),
                {.data = c.data(),
                 .dtype = types.out,
                 .accumulate = accumulate,
                 .bias = addends.bias,
                 .residual = addends.residual},
                workspace.get());
  device.synchronize();
  workspace.expect_guard_intact();
}

/// The values that are added to a product.
enum class Added : std::uint8_t { nothing, bias, residual, both };

void check(KernelDevice& device, const MatmulShape& s, Types types, bool accumulate, Added added = Added::nothing) {
  SCOPED_TRACE(describe(s, types) + (accumulate ? " accumulate" : "") + " addends " +
               std::to_string(static_cast<int>(added)));
  const std::vector<float> a = random_values(s.m * s.k, 1, types.in), b = random_values(s.k * s.n, 2, types.in);
  const std::vector<float> before = random_values(s.m * s.n, 3, types.out);
  const DeviceBuffer a_device(device, a, types.in), b_device(device, b, types.in);
  const DeviceBuffer c_device(device, s.m * s.n, types.out);  // NaN: shows where it is read without accumulate
  if (accumulate) const_cast<DeviceBuffer&>(c_device).upload(before);
  const bool biased = added == Added::bias || added == Added::both;
  const bool summed = added == Added::residual || added == Added::both;
  const std::vector<float> bias = random_values(s.n, 4, types.out), residual = random_values(s.m * s.n, 5, types.out);
  const DeviceBuffer bias_device(device, bias, types.out), residual_device(device, residual, types.out);
  run(device, s, types, a_device, b_device, c_device, accumulate,
      {biased ? bias_device.data() : nullptr, summed ? residual_device.data() : nullptr});
  const std::vector<double> a64(a.begin(), a.end()), b64(b.begin(), b.end());
  const std::vector<double> bias64(bias.begin(), bias.end()), residual64(residual.begin(), residual.end());
  std::vector<double> expected(before.begin(), before.end());
  kernels::reference::matmul(s, a64.data(), b64.data(), expected.data(), accumulate, biased ? bias64.data() : nullptr,
                             summed ? residual64.data() : nullptr);
  // Where cuBLASLt has no algorithm with the bias, it is added to a sum that was rounded.
  const double roundings = biased && summed ? 2 : 1;
  EXPECT_LE(relative_error(c_device.download(), expected), roundings * tolerance(s, types.out));
}

TEST_P(MatmulTest, TwoByTwoByHand) {
  const MatmulShape s{.m = 2, .n = 2, .k = 3};
  const DeviceBuffer a(device(), {1, 2, 3, 4, 5, 6}, DType::float32);
  const DeviceBuffer b(device(), {7, 8, 9, 10, 11, 12}, DType::float32);
  const DeviceBuffer c(device(), {1, 1, 1, 1}, DType::float32);
  run(device(), s, kTypes[0], a, b, c, false);
  EXPECT_EQ(c.download(), (std::vector<float>{58, 64, 139, 154}));
  run(device(), s, kTypes[0], a, b, c, true);
  EXPECT_EQ(c.download(), (std::vector<float>{116, 128, 278, 308}));
}

TEST_P(MatmulTest, MatchesReferenceForEveryTypeAndTransposition) {
  for (const Types types : kTypes) {
    for (const bool ta : {false, true}) {
      for (const bool tb : {false, true}) {
        for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                      {1, 10, 64},
                                      {5, 3, 7},
                                      {17, 33, 29},
                                      {64, 64, 64},
                                      {130, 70, 300},
                                      {16, 10, 64}}) {
          check(device(), {m, n, k, ta, tb}, types, false);
          check(device(), {m, n, k, ta, tb}, types, true);
        }
      }
    }
  }
}

TEST_P(MatmulTest, MatchesReferenceWhereTheWorkIsCut) {
  for (const Types types : kTypes) {
    check(device(), {.m = 16, .n = 64, .k = 10816, .transpose_b = true}, types, false);  // split-K
    check(device(), {.m = 16, .n = 64, .k = 10816, .transpose_b = true}, types, true);
    check(device(), {.m = 64, .n = 5408, .k = 16, .transpose_a = true}, types, true);  // columns
    check(device(), {.m = 3001, .n = 65, .k = 33}, types, false);                      // rows
    check(device(), {.m = 300, .n = 290, .k = 513}, types, true);                      // both, ragged
  }
}

TEST_P(MatmulTest, AddsByHand) {
  const MatmulShape s{.m = 2, .n = 2, .k = 3};
  const DeviceBuffer a(device(), {1, 2, 3, 4, 5, 6}, DType::float32);
  const DeviceBuffer b(device(), {7, 8, 9, 10, 11, 12}, DType::float32);
  const DeviceBuffer bias(device(), {100, 200}, DType::float32);
  const DeviceBuffer residual(device(), {1000, 2000, 3000, 4000}, DType::float32);
  const DeviceBuffer c(device(), 4, DType::float32);
  run(device(), s, kTypes[0], a, b, c, false, {bias.data(), nullptr});
  EXPECT_EQ(c.download(), (std::vector<float>{158, 264, 239, 354}));
  run(device(), s, kTypes[0], a, b, c, true, {bias.data(), nullptr});
  EXPECT_EQ(c.download(), (std::vector<float>{316, 528, 478, 708}));
  run(device(), s, kTypes[0], a, b, c, false, {bias.data(), residual.data()});
  EXPECT_EQ(c.download(), (std::vector<float>{1158, 2264, 3239, 4354}));
  const MatmulShape empty{.m = 2, .n = 2, .k = 0};
  run(device(), empty, kTypes[0], a, b, c, false, {bias.data(), residual.data()});
  EXPECT_EQ(c.download(), (std::vector<float>{1100, 2200, 3100, 4200}));
}

TEST_P(MatmulTest, AddsBiasAndResidualForEveryType) {
  for (const Types types : kTypes) {
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                  {5, 3, 7},
                                  {17, 33, 29},
                                  {64, 64, 64},
                                  {130, 70, 300},
                                  {40, 384, 520},
                                  {300, 290, 513}}) {
      for (const bool transpose_b : {false, true}) {
        const MatmulShape s{.m = m, .n = n, .k = k, .transpose_b = transpose_b};
        for (const Added added : {Added::bias, Added::residual, Added::both}) check(device(), s, types, false, added);
        check(device(), s, types, true, Added::bias);
      }
    }
    check(device(), {.m = 16, .n = 64, .k = 10816, .transpose_b = true}, types, false, Added::both);  // split-K
    check(device(), {.m = 16, .n = 64, .k = 10816, .transpose_b = true}, types, true, Added::bias);
    check(device(), {.m = 3001, .n = 65, .k = 33}, types, false, Added::both);  // rows
    check(device(), {.m = 70, .n = 33, .k = 65, .transpose_a = true}, types, false, Added::both);
  }
}

/// 2049 is not a float16: a product of 2048 that was rounded before 1 + 1 were added one by one would stay 2048.
TEST_P(MatmulTest, AddendsAreRoundedOnceWithTheSum) {
  constexpr Types kHalf{DType::float16, DType::float16};
  const MatmulShape s{.m = 64, .n = 64, .k = 64, .transpose_b = true};
  std::vector<float> a(static_cast<std::size_t>(s.m * s.k), 0.0f), b(static_cast<std::size_t>(s.n * s.k), 0.0f);
  for (std::int64_t i = 0; i < 64; ++i)
    a[static_cast<std::size_t>(i * 64)] = 64, b[static_cast<std::size_t>(i * 64)] = 32;
  const DeviceBuffer a_device(device(), a, DType::float16), b_device(device(), b, DType::float16);
  const DeviceBuffer bias(device(), std::vector<float>(64, 1.0f), DType::float16);
  const DeviceBuffer residual(device(), std::vector<float>(64 * 64, 1.0f), DType::float16);
  const DeviceBuffer c(device(), s.m * s.n, DType::float16);
  run(device(), s, kHalf, a_device, b_device, c, false, {bias.data(), residual.data()});
  EXPECT_EQ(c.download(), std::vector<float>(64 * 64, 2050.0f));
}

TEST_P(MatmulTest, RefusesAddendsOfSeveralProductsAndAResidualOfASum) {
  const DeviceBuffer a(device(), 64, DType::float32), c(device(), 64, DType::float32);
  const MatmulShape s{.m = 2, .n = 2, .k = 2};
  const kernels::MatmulBatch batch{2, 4, 4, 4};
  EXPECT_THROW(BANTAM_KERNEL(exec(), batched_matmul, s, batch, DType::float32, a.data(), a.data(),
                             {.data = c.data(), .bias = a.data()}, kernels::Workspace{}),
               Error);
  EXPECT_THROW(BANTAM_KERNEL(exec(), matmul, s, DType::float32, a.data(), a.data(),
                             {.data = c.data(), .accumulate = true, .residual = a.data()}, kernels::Workspace{}),
               Error);
}

// On CUDA one call of cuBLASLt, which may add in another order than one product's: so both are held against double.
TEST_P(MatmulTest, ProductsOfABatchAreEachTheirOwn) {
  constexpr std::int64_t kCount = 3;
  for (const Types types : kTypes) {
    for (const MatmulShape& s :
         {MatmulShape{.m = 10, .n = 10, .k = 27, .transpose_b = true}, MatmulShape{.m = 70, .n = 72, .k = 300},
          MatmulShape{.m = 64, .n = 64, .k = 576, .transpose_a = true}}) {
      SCOPED_TRACE(describe(s, types));
      const auto place = [](std::int64_t elements) { return elements / 8 * 8 + 16; };  // 16 bytes, and room between
      const kernels::MatmulBatch batch{kCount, place(s.m * s.k), place(s.k * s.n), place(s.m * s.n)};
      const std::vector<float> a = random_values(kCount * batch.a_stride, 1, types.in),
                               b = random_values(kCount * batch.b_stride, 2, types.in);
      const DeviceBuffer a_device(device(), a, types.in), b_device(device(), b, types.in),
          c_device(device(), std::vector<float>(static_cast<std::size_t>(kCount * batch.c_stride), 7.0f), types.out);
      GuardedWorkspace workspace(device(), matmul_workspace_bytes(s, types.in, types.out, device().exec().device.kind));
      BANTAM_KERNEL(device().exec(), batched_matmul, s, batch, types.in, a_device.data(), b_device.data(),
                    {.data = c_device.data(), .dtype = types.out}, workspace.get());
      device().synchronize();
      workspace.expect_guard_intact();
      const std::vector<float> c = c_device.download();
      for (std::int64_t i = 0; i < kCount; ++i) {
        const std::vector<double> a64(a.begin() + i * batch.a_stride, a.begin() + i * batch.a_stride + s.m * s.k);
        const std::vector<double> b64(b.begin() + i * batch.b_stride, b.begin() + i * batch.b_stride + s.k * s.n);
        std::vector<double> expected(static_cast<std::size_t>(s.m * s.n));
        kernels::reference::matmul(s, a64.data(), b64.data(), expected.data(), false);
        const auto begin = c.begin() + i * batch.c_stride, end = begin + s.m * s.n;
        EXPECT_LE(relative_error({begin, end}, expected), tolerance(s, types.out));
        EXPECT_TRUE(std::all_of(end, begin + batch.c_stride, [](float value) { return value == 7.0f; }));
      }
    }
  }
}

TEST_P(MatmulTest, RefusesBatchesThatAreNone) {
  const DeviceBuffer a(device(), 64, DType::float16), c(device(), 64, DType::float16);
  const MatmulShape s{.m = 2, .n = 2, .k = 2};
  for (const kernels::MatmulBatch& batch : {kernels::MatmulBatch{.count = 0}, kernels::MatmulBatch{2, 8, 4, 8}}) {
    EXPECT_THROW(BANTAM_KERNEL(exec(), batched_matmul, s, batch, DType::float16, a.data(), a.data(),
                               {.data = c.data(), .dtype = DType::float16}, kernels::Workspace{}),
                 ShapeError);
  }
}

TEST_P(MatmulTest, EmptySumsStoreZeroOrKeepC) {
  const DeviceBuffer nothing(device(), 4, DType::float32);
  const DeviceBuffer c(device(), {1, 2, 3, 4}, DType::float32);
  const MatmulShape s{.m = 2, .n = 2, .k = 0};
  run(device(), s, kTypes[0], nothing, nothing, c, true);
  EXPECT_EQ(c.download(), (std::vector<float>{1, 2, 3, 4}));
  run(device(), s, kTypes[0], nothing, nothing, c, false);
  EXPECT_EQ(c.download(), (std::vector<float>{0, 0, 0, 0}));
}

TEST_P(MatmulTest, SameCallComputesSameBits) {
  const MatmulShape s{.m = 16, .n = 64, .k = 10816, .transpose_b = true};
  for (const Types types : kTypes) {
    const DeviceBuffer a(device(), random_values(s.m * s.k, 1, types.in), types.in);
    const DeviceBuffer b(device(), random_values(s.k * s.n, 2, types.in), types.in);
    const DeviceBuffer first(device(), s.m * s.n, types.out), second(device(), s.m * s.n, types.out);
    run(device(), s, types, a, b, first, false);
    run(device(), s, types, a, b, second, false);
    EXPECT_EQ(first.download_bytes(), second.download_bytes());
  }
}

TEST_P(MatmulTest, RefusesUnknownTypesAndSmallWorkspaces) {
  const DeviceBuffer a(device(), {1, 2, 3, 4}, DType::float32), c(device(), 4, DType::float32);
  const MatmulShape s{.m = 2, .n = 2, .k = 2};
  EXPECT_THROW(matmul_workspace_bytes(s, DType::int32, DType::int32, DeviceKind::cpu), DTypeError);
  EXPECT_THROW(BANTAM_KERNEL(exec(), matmul, s, DType::float32, a.data(), a.data(),
                             {.data = c.data(), .dtype = DType::float16}, kernels::Workspace{}),
               DTypeError);
  const MatmulShape cut{.m = 16, .n = 64, .k = 10816};
  EXPECT_THROW(BANTAM_KERNEL(exec(), matmul, cut, DType::float32, a.data(), a.data(),
                             {.data = c.data(), .dtype = DType::float32}, kernels::Workspace{}),
               Error);
}

TEST(MatmulThreadsTest, BitsDoNotDependOnTheNumberOfThreads) {
  for (const Types types : kTypes) {
    for (const MatmulShape& s : {MatmulShape{.m = 16, .n = 64, .k = 10816}, MatmulShape{.m = 700, .n = 130, .k = 200},
                                 MatmulShape{.m = 64, .n = 9000, .k = 24, .transpose_a = true},
                                 MatmulShape{.m = 5003, .n = 70, .k = 300, .transpose_b = true}}) {
      std::vector<std::vector<std::uint8_t>> results;
      for (const int threads : {1, 2, 3}) {
        KernelDevice device(Device::cpu(), threads);
        const DeviceBuffer a(device, random_values(s.m * s.k, 1, types.in), types.in);
        const DeviceBuffer b(device, random_values(s.k * s.n, 2, types.in), types.in);
        const DeviceBuffer c(device, s.m * s.n, types.out);
        const DeviceBuffer bias(device, random_values(s.n, 3, types.out), types.out);
        const DeviceBuffer residual(device, random_values(s.m * s.n, 4, types.out), types.out);
        run(device, s, types, a, b, c, false, {bias.data(), residual.data()});
        results.push_back(c.download_bytes());
      }
      EXPECT_EQ(results[0], results[1]) << describe(s, types);
      EXPECT_EQ(results[0], results[2]) << describe(s, types);
    }
  }
}

TEST(MatmulSizesTest, CountOperationsAndBytes) {
  const MatmulShape s{.m = 2, .n = 3, .k = 5};
  EXPECT_EQ(kernels::matmul_flops(s), 60);
  EXPECT_EQ(kernels::matmul_bytes(s, DType::float16, DType::float32), 2 * (10 + 15) + 4 * 6);
}

}  // namespace
}  // namespace bantam::testing::matmul_test
