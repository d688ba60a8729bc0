// Muon's kernels: momentum, norm, polynomial and step by the textbook in double, of one matrix and of several, in every
// type; skipped updates and frozen spans.
#include "bantam/kernels/update/muon.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/kernels/update/update_arena.h"

namespace bantam::testing::muon_test {
namespace {

using kernels::MuonMatrices;

constexpr double kUnit = 0x1p-24;  // half a unit in the last place of float32, relative

class MuonTest : public DeviceTest {
 protected:
  /// The matrices of an arena's chunks, in order.
  static std::vector<MuonMatrices> matrices(const TestArena& arena) {
    std::vector<MuonMatrices> all;
    for (const kernels::SpanChunk& chunk : arena.chunks()) {
      if (all.empty() || all.back().first[0] != chunk.first)
        all.push_back({.first = {chunk.first}, .count = 1, .chunks = chunk.chunks, .scale = 2.0f});
      all.back().elements += chunk.weight_blocks * kernels::kWeightBlockSize;
      all.back().values = all.back().elements;
    }
    return all;
  }
  /// All matrices of an arena whose spans have one size.
  static MuonMatrices together(const TestArena& arena, std::int64_t values) {
    const std::vector<MuonMatrices> all = matrices(arena);
    MuonMatrices together = all[0];
    together.values = values;
    together.count = static_cast<std::int32_t>(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) together.first[i] = all[i].first[0];
    return together;
  }
  void momentum(TestArena& arena, bool nesterov, const kernels::MuonNormalization& normalization = {}) {
    arena.begin();
    BANTAM_KERNEL(device().exec(), muon_momentum, arena.arena(), nesterov, normalization, arena.control.data());
  }
};

std::vector<TestSpan> spans() { return {{300, {.group = 0, .compute_copy = 1}}, {600001, {.group = 1}}}; }
const std::vector<kernels::UpdateGroup> kGroups = {{.learning_rate = 0.5f, .weight_decay = 0.25f, .beta1 = 0.875f},
                                                   {.learning_rate = 0.125f, .beta1 = 0.5f}};

TEST_P(MuonTest, MomentumAndNormAreTheTextbook) {
  for (const bool nesterov : {true, false}) {
    TestArena arena(device(), spans(), kGroups);
    arena.control.upload({{.loss_scale = 4}});
    const std::vector<float> m = arena.random_padded(1), g = arena.random_padded(5, -4, 4);
    arena.moment1.upload(m);
    arena.gradient.upload(g);
    momentum(arena, nesterov);
    std::vector<double> moved(m.size()), u(m.size());
    for (std::size_t i = 0; i < m.size(); ++i) {
      const double beta = i < arena.offset(1) ? 0.875 : 0.5, own = (1 - beta) * g[i] / 4;
      moved[i] = beta * m[i] + own;
      u[i] = nesterov ? beta * moved[i] + own : moved[i];
    }
    expect_close(arena.moment1.download(), moved, 4 * kUnit);
    expect_close(arena.moment2.download(), u, 6 * kUnit);
    for (const MuonMatrices& matrix : matrices(arena)) {
      const std::size_t begin = matrix.first[0] == 0 ? 0 : arena.offset(1);
      const DeviceBuffer x(device(), std::vector<float>(static_cast<std::size_t>(matrix.elements), NAN),
                           DType::float32);
      BANTAM_KERNEL(device().exec(), muon_normalize, arena.arena(), matrix, DType::float32, x.data());
      std::vector<double> unit(u.begin() + static_cast<std::ptrdiff_t>(begin),
                               u.begin() + static_cast<std::ptrdiff_t>(begin) + matrix.elements);
      double norm = 0;
      for (const double value : unit) norm += value * value;
      for (double& value : unit) value /= std::sqrt(norm) + 1e-7;
      expect_close(x.download(), unit, 8 * kUnit);
    }
  }
}

TEST_P(MuonTest, ThePolynomialIsOfASquareMatrix) {
  for (const std::int64_t n : {1, 3, 130}) {
    const std::vector<float> gram = random_values(n * n, 1), square = random_values(n * n, 2);
    const DeviceBuffer a(device(), gram, DType::float32), b(device(), square, DType::float32),
        out(device(), std::vector<float>(gram.size(), NAN), DType::float32);
    BANTAM_KERNEL(device().exec(), muon_polynomial, {1, n, n * n}, {}, DType::float32, a.data(), b.data(), out.data());
    std::vector<double> expected;
    for (std::int64_t i = 0; i < n * n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      expected.push_back((i / n == i % n ? 3.4445 : 0.0) - 4.7750 * gram[at] + 2.0315 * square[at]);
    }
    expect_close(out.download(), expected, 32 * kUnit);
  }
}

TEST_P(MuonTest, AStepDecaysMovesAndCopies) {
  TestArena arena(device(), spans(), kGroups);
  const std::vector<float> w = arena.random_padded(1), u = arena.random_padded(5);
  arena.master.upload(w);
  arena.moment2.upload(u);
  for (const MuonMatrices& matrix : matrices(arena))
    BANTAM_KERNEL(device().exec(), muon_apply, arena.arena(), matrix, {}, DType::float32,
                  arena.moment2.as<float>() + (matrix.first[0] == 0 ? 0 : arena.offset(1)), arena.control.data());
  std::vector<double> moved(w.size());
  for (std::size_t i = 0; i < w.size(); ++i)
    moved[i] = i < arena.offset(1) ? w[i] - 0.5 * (2.0 * u[i] + 0.25 * w[i]) : w[i] - 0.125 * 2.0 * u[i];
  const std::vector<float> master = arena.master.download(), copy = arena.compute.download();
  expect_close(master, moved, 6 * kUnit);
  for (std::size_t i = 0; i < w.size(); ++i) {
    if (i < arena.offset(1)) {
      ASSERT_EQ(copy[i], rounded(master[i], DType::float16));
    } else {
      ASSERT_TRUE(std::isnan(copy[i])) << "this span has no copy";
    }
  }
}

/// Weights without masters: stored, scaled and rounded once, as with masters that were float16 numbers before.
TEST_P(MuonTest, AStepOfWeightsWithoutMastersRoundsOnce) {
  const std::vector<TestSpan> some = {{300, {.group = 0, .compute_copy = 1}},
                                      {600001, {.group = 1, .compute_copy = 1}}};
  TestArena with(device(), some, kGroups), without(device(), some, kGroups);
  without.first_master = static_cast<std::int64_t>(without.elements());
  without.keeps_masters = false;
  std::vector<float> w = with.random_padded(1);
  for (float& value : w) value = rounded(value, DType::float16);
  const std::vector<float> g = with.random_padded(5), untouched(w.size(), 7.0f);
  with.master.upload(w);
  without.master.upload(untouched);
  without.compute.upload(w);
  const kernels::MuonNormalization every{.every = 1};
  for (TestArena* arena : {&with, &without}) {
    arena->gradient.upload(g);
    momentum(*arena, true, every);
    for (MuonMatrices matrix : matrices(*arena)) {
      matrix.norm = 3.0f;
      BANTAM_KERNEL(device().exec(), muon_apply, arena->arena(), matrix, every, DType::float32,
                    arena->moment2.as<float>() + (matrix.first[0] == 0 ? 0 : arena->offset(1)), arena->control.data());
    }
  }
  EXPECT_EQ(bits_of(without.compute.download()), bits_of(with.compute.download()));
  EXPECT_EQ(without.master.download(), untouched);
  EXPECT_NE(without.compute.download(), w);
}

TEST_P(MuonTest, ASkippedUpdateAndAFrozenSpanChangeNoBit) {
  for (const bool frozen : {false, true}) {
    std::vector<TestSpan> some = spans();
    TestArena arena(device(), some, kGroups);
    const std::vector<MuonMatrices> all = matrices(arena);
    arena.master.upload(arena.random_padded(1));
    arena.moment1.upload(arena.random_padded(2));
    std::vector<float> gradient = arena.random_padded(3);
    if (!frozen) gradient[2] = INFINITY;
    arena.gradient.upload(gradient);
    if (frozen) arena.freeze(0);
    const auto state = [&] { return std::vector{arena.master.download(), arena.moment1.download()}; };
    const auto before = state();
    momentum(arena, true);
    for (const MuonMatrices& matrix : all)
      BANTAM_KERNEL(device().exec(), muon_apply, arena.arena(), matrix, {}, DType::float32,
                    arena.moment2.as<float>() + (matrix.first[0] == 0 ? 0 : arena.offset(1)), arena.control.data());
    const auto after = state();
    if (!frozen) {
      EXPECT_EQ(after, before);
    }
    for (std::size_t slot = 0; slot < 2; ++slot) {
      const auto end = static_cast<std::ptrdiff_t>(arena.offset(1));
      EXPECT_TRUE(std::equal(after[slot].begin(), after[slot].begin() + end, before[slot].begin()));
      EXPECT_EQ(after[slot] != before[slot], frozen) << "the other span moves unless all is skipped";
    }
  }
}

TEST_P(MuonTest, ClippedValuesAreWhatMomentumReads) {
  TestArena arena(device(), {{3, {.group = 0}}}, {{.beta1 = 0.5f}});
  arena.clip_value = 1.0f;
  arena.gradient.upload(arena.padded({{0.5f, -4, 8}}));
  momentum(arena, false);
  const std::vector<float> m = arena.moment1.download();
  EXPECT_EQ((std::vector<float>{m[0], m[1], m[2]}), (std::vector<float>{0.25f, -0.5f, 0.5f}));
}

constexpr DType kTypes[] = {DType::float32, DType::float16, DType::bfloat16};

/// Three matrices of 30 x 11 with another span between; 330 elements of 384 are theirs.
constexpr std::int64_t kValues = 330, kPlace = 384;
std::vector<TestSpan> alike() {
  return {{kValues, {.compute_copy = 1}}, {500, {.frozen = 1}}, {kValues, {}}, {kValues, {}}};
}
constexpr std::size_t kSpans[] = {0, 2, 3};

// What is rounded once lies within half a unit of the type from float32's value, which has 8 roundings of its own.
TEST_P(MuonTest, MatricesOfOneShapeAreNormalisedTogetherInEveryType) {
  for (const DType dtype : kTypes) {
    TestArena arena(device(), alike(), kGroups);
    arena.gradient.upload(arena.random_padded(5, -4, 4));
    momentum(arena, true);
    const std::vector<float> u = arena.moment2.download();
    const DeviceBuffer x(device(), std::vector<float>(3 * kPlace + 1, 7.0f), dtype);
    BANTAM_KERNEL(device().exec(), muon_normalize, arena.arena(), together(arena, kValues), dtype, x.data());
    std::vector<double> expected;
    for (const std::size_t span : kSpans) {
      const auto begin = u.begin() + static_cast<std::ptrdiff_t>(arena.offset(span));
      double norm = 0;
      for (std::int64_t i = 0; i < kPlace; ++i) norm += static_cast<double>(begin[i]) * begin[i];
      ASSERT_GT(norm, 0);
      for (std::int64_t i = 0; i < kPlace; ++i) expected.push_back(begin[i] / (std::sqrt(norm) + 1e-7));
    }
    expected.push_back(7.0);  // what follows is not written
    expect_close(x.download(), expected, 8 * kUnit + (is_half(dtype) ? unit_roundoff(dtype) : 0.0));
  }
}

TEST_P(MuonTest, PolynomialsOfSeveralMatricesInEveryType) {
  constexpr std::int64_t kCount = 3, n = 5, kStride = 32;
  for (const DType dtype : kTypes) {
    const std::vector<float> gram = random_values(kCount * kStride, 1, dtype),
                             square = random_values(kCount * kStride, 2, dtype);
    const DeviceBuffer a(device(), gram, dtype), b(device(), square, dtype);
    BANTAM_KERNEL(device().exec(), muon_polynomial, {kCount, n, kStride}, {}, dtype, a.data(), b.data(), b.data());
    std::vector<double> expected(square.begin(), square.end());  // between matrices nothing is written
    for (std::int64_t matrix = 0; matrix < kCount; ++matrix) {
      for (std::int64_t i = 0; i < n * n; ++i) {
        const auto at = static_cast<std::size_t>(matrix * kStride + i);
        expected[at] = (i / n == i % n ? 3.4445 : 0.0) - 4.7750 * gram[at] + 2.0315 * square[at];
      }
    }
    expect_close(b.download(), expected, 32 * kUnit + (is_half(dtype) ? unit_roundoff(dtype) : 0.0));
  }
}

TEST_P(MuonTest, ThePolynomialHasTheSaidCoefficients) {
  constexpr std::int64_t n = 2;
  const DeviceBuffer gram(device(), std::vector<float>{1, 2, 2, 4}, DType::float32),
      square(device(), std::vector<float>{5, 10, 10, 20}, DType::float32);
  BANTAM_KERNEL(device().exec(), muon_polynomial, {1, n, n * n}, {.a = 3, .b = -0.5f, .c = 0.25f}, DType::float32,
                gram.data(), square.data(), square.data());
  EXPECT_EQ(square.download(), (std::vector<float>{3.75f, 1.5f, 1.5f, 6.0f}));
}

// Due at the first update, not at the second, at the third. A matrix of zeros has no norm to divide by.
TEST_P(MuonTest, WeightsAreScaledToANormWhereThatIsDue) {
  for (const bool zeros : {false, true}) {
    TestArena arena(device(), spans(), kGroups);
    std::vector<float> w = arena.random_padded(1);
    if (zeros) std::fill(w.begin() + static_cast<std::ptrdiff_t>(arena.offset(1)), w.end(), 0.0f);
    arena.master.upload(w);
    arena.gradient.upload(arena.random_padded(5));
    const DeviceBuffer x(device(), arena.random_padded(6), DType::float32);
    const std::vector<float> step = x.download();
    for (int update = 0; update < 3; ++update) {
      const std::vector<float> before = arena.master.download();
      momentum(arena, true, {.every = 2});
      std::vector<double> expected(before.begin(), before.end());
      for (MuonMatrices matrix : matrices(arena)) {
        matrix.norm = 3.0f;
        const std::size_t begin = matrix.first[0] == 0 ? 0 : arena.offset(1);
        const double lr = begin == 0 ? 0.5 : 0.125, decay = begin == 0 ? 0.25 : 0.0;
        double norm = 0;
        for (std::size_t i = 0; i < static_cast<std::size_t>(matrix.values); ++i)
          norm += static_cast<double>(before[begin + i]) * before[begin + i];
        const double factor = update != 1 && norm > 0 ? 3.0 / std::sqrt(norm) : 1.0;
        for (std::size_t i = begin; i < begin + static_cast<std::size_t>(matrix.values); ++i)
          expected[i] = before[i] * factor - lr * (2.0 * step[i] + decay * before[i] * factor);
        BANTAM_KERNEL(device().exec(), muon_apply, arena.arena(), matrix, {.every = 2}, DType::float32,
                      x.as<float>() + begin, arena.control.data());
      }
      expect_close(arena.master.download(), expected, 8 * kUnit);
    }
  }
}

// The padding of X is NaN: products do not write it, and weights' padding must stay 0.
TEST_P(MuonTest, AStepOfSeveralMatricesReadsEveryType) {
  for (const DType dtype : kTypes) {
    TestArena arena(device(), alike(), kGroups);
    const std::vector<float> w = arena.random_padded(1);
    arena.master.upload(w);
    std::vector<float> x = random_values(3 * kPlace, 2, dtype);
    for (std::int64_t i = 0; i < 3 * kPlace; ++i) {
      if (i % kPlace >= kValues) x[static_cast<std::size_t>(i)] = NAN;
    }
    const DeviceBuffer steps(device(), x, dtype);
    BANTAM_KERNEL(device().exec(), muon_apply, arena.arena(), together(arena, kValues), {}, dtype, steps.data(),
                  arena.control.data());
    std::vector<double> moved(w.begin(), w.end());
    for (std::size_t matrix = 0; matrix < 3; ++matrix) {
      for (std::size_t i = 0; i < kValues; ++i) {
        const std::size_t at = arena.offset(kSpans[matrix]) + i;
        moved[at] = w[at] - 0.5 * (2.0 * x[matrix * kPlace + i] + 0.25 * w[at]);
      }
    }
    const std::vector<float> master = arena.master.download(), copy = arena.compute.download();
    expect_close(master, moved, 6 * kUnit);
    for (std::size_t i = 0; i < kPlace; ++i) ASSERT_EQ(copy[i], rounded(master[i], DType::float16));
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, MuonTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST(SpanChunks, CoverEachWantedSpanOnce) {
  // Spans of 1, 40 and 6000 weight blocks; the second is not wanted.
  std::vector<std::int32_t> spans(1, 0);
  spans.insert(spans.end(), 40, 1);
  spans.insert(spans.end(), 6000, 2);
  const std::vector<std::uint8_t> wanted = {1, 0, 1};
  const std::vector<kernels::SpanChunk> chunks = kernels::cut_spans(spans, wanted);
  ASSERT_EQ(chunks.size(), 251u) << "1, and 6,000 weight blocks by 24";
  EXPECT_EQ(chunks[0].weight_blocks, 1);
  std::int32_t next = 41;
  for (std::size_t i = 1; i < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i].weight_block, next);
    EXPECT_EQ(chunks[i].first, 1);
    EXPECT_EQ(chunks[i].chunks, 250);
    next += chunks[i].weight_blocks;
  }
  EXPECT_EQ(next, 6041);
}

}  // namespace
}  // namespace bantam::testing::muon_test
