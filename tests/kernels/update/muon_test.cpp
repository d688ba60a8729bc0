// Muon's kernels: momentum, norm, polynomial and step by the textbook in double, skipped updates and frozen spans.
#include "bantam/kernels/contracts/update/muon.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/kernels/update/update_arena.h"

namespace bantam::testing {
namespace {

using kernels::MuonMatrix;

constexpr double kUnit = 0x1p-24;  // half a unit in the last place of float32, relative

class MuonTest : public DeviceTest {
 protected:
  /// The matrices of an arena's chunks, in order.
  static std::vector<MuonMatrix> matrices(const TestArena& arena) {
    std::vector<MuonMatrix> all;
    for (const kernels::SpanChunk& chunk : arena.chunks()) {
      if (all.empty() || all.back().first != chunk.first)
        all.push_back({.first = chunk.first, .chunks = chunk.chunks, .scale = 2.0f});
      all.back().elements += chunk.granules * kernels::kSpanGranule;
    }
    return all;
  }
  void momentum(TestArena& arena, bool nesterov) {
    arena.begin();
    BANTAM_KERNEL(device().exec(), muon_momentum, arena.arena(), nesterov, arena.control.data());
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
    for (const MuonMatrix& matrix : matrices(arena)) {
      const std::size_t begin = matrix.first == 0 ? 0 : arena.offset(1);
      const DeviceBuffer x(device(), std::vector<float>(static_cast<std::size_t>(matrix.elements), NAN),
                           DType::float32);
      BANTAM_KERNEL(device().exec(), muon_normalize, arena.arena(), matrix, x.as<float>());
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
    BANTAM_KERNEL(device().exec(), muon_polynomial, n, a.as<float>(), b.as<float>(), out.as<float>());
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
  for (const MuonMatrix& matrix : matrices(arena))
    BANTAM_KERNEL(device().exec(), muon_apply, arena.arena(), matrix, arena.control.data());
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

TEST_P(MuonTest, ASkippedUpdateAndAFrozenSpanChangeNoBit) {
  for (const bool frozen : {false, true}) {
    std::vector<TestSpan> some = spans();
    TestArena arena(device(), some, kGroups);
    const std::vector<MuonMatrix> all = matrices(arena);
    arena.master.upload(arena.random_padded(1));
    arena.moment1.upload(arena.random_padded(2));
    std::vector<float> gradient = arena.random_padded(3);
    if (!frozen) gradient[2] = INFINITY;
    arena.gradient.upload(gradient);
    if (frozen) arena.freeze(0);
    const auto state = [&] { return std::vector{arena.master.download(), arena.moment1.download()}; };
    const auto before = state();
    momentum(arena, true);
    for (const MuonMatrix& matrix : all)
      BANTAM_KERNEL(device().exec(), muon_apply, arena.arena(), matrix, arena.control.data());
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

INSTANTIATE_TEST_SUITE_P(Devices, MuonTest, ::testing::ValuesIn(test_devices()), device_test_name);

TEST(SpanChunks, CoverEachWantedSpanOnce) {
  // Spans of 1, 40 and 6000 granules; the second is not wanted.
  std::vector<std::int32_t> spans(1, 0);
  spans.insert(spans.end(), 40, 1);
  spans.insert(spans.end(), 6000, 2);
  const std::vector<std::uint8_t> wanted = {1, 0, 1};
  const std::vector<kernels::SpanChunk> chunks = kernels::cut_spans(spans, wanted);
  ASSERT_EQ(chunks.size(), 251u) << "1, and 6,000 granules by 24";
  EXPECT_EQ(chunks[0].granules, 1);
  std::int32_t next = 41;
  for (std::size_t i = 1; i < chunks.size(); ++i) {
    EXPECT_EQ(chunks[i].granule, next);
    EXPECT_EQ(chunks[i].first, 1);
    EXPECT_EQ(chunks[i].chunks, 250);
    next += chunks[i].granules;
  }
  EXPECT_EQ(next, 6041);
}

}  // namespace
}  // namespace bantam::testing
