// Arena layout, initial values, and initialisers' distributions.
#include "bantam/base/error.h"
#include "tests/engine/engine_fixture.h"

namespace bantam {
namespace {

using testing::EngineTest;

class ParametersTest : public EngineTest {};
BANTAM_INSTANTIATE_ON_DEVICES(ParametersTest);

TEST_P(ParametersTest, SegmentsStandInReverseForwardOrderAndAreAligned) {
  ParameterArena arena;
  arena.declare({.name = "first", .shape = {3}, .initializer = constant(1)});
  arena.declare({.name = "second", .shape = {200}, .initializer = constant(2)});
  arena.declare({.name = "third", .shape = {128}, .initializer = constant(3)});
  EXPECT_THROW(arena.declare({.name = "first", .shape = {1}, .initializer = zeros()}), ConfigError);
  const Context ctx = context({PrecisionKind::mixed_float16});
  arena.materialize(ctx, 1);
  EXPECT_EQ(arena.find("third")->offset(), 0);
  EXPECT_EQ(arena.find("second")->offset(), 128);
  EXPECT_EQ(arena.find("first")->offset(), 384);
  EXPECT_EQ(arena.slot_elements(), 512);
  EXPECT_EQ(arena.parameter_count(), 331);
  EXPECT_EQ(arena.segment_of_granule(), (std::vector<std::int32_t>{0, 1, 1, 2}));
  const std::vector<float> master = to_host<float>(arena.master(), ctx.stream);
  const std::vector<float> compute = to_host_floats(arena.compute(), ctx.stream);
  EXPECT_EQ(master, compute);
  EXPECT_EQ(master[327], 2.0f);
  EXPECT_EQ(master[328], 0.0f);  // padding
  EXPECT_EQ(arena.find("first")->value().dtype(), DType::float16);
}

TEST_P(ParametersTest, InitialValuesDependOnSeedAndNameOnly) {
  const auto values = [&](std::uint64_t seed, bool other_first) {
    ParameterArena arena;
    const Fans fans{100, 50};
    if (other_first) arena.declare({.name = "other", .shape = {17}, .initializer = he_normal(fans)});
    arena.declare({.name = "w", .shape = {50, 100}, .initializer = glorot_uniform(fans)});
    arena.materialize(context(), seed);
    return to_host<float>(arena.find("w")->master(), context().stream);
  };
  EXPECT_EQ(values(1, false), values(1, true));
  EXPECT_NE(values(1, false), values(2, false));
}

TEST(InitializerTest, DistributionsHaveTheirMoments) {
  const std::int64_t count = 200000;
  const Fans fans{300, 100};
  const auto draw = [&](const Initializer& initializer) {
    std::vector<float> values(static_cast<std::size_t>(count));
    PhiloxSequence random(philox_key(5, RandomPurpose::initializer, 9));
    initializer.fill(values, {count}, random);
    return values;
  };
  const auto check = [&](const std::string& name, double deviation, double limit) {
    double sum = 0, squares = 0, largest = 0;
    for (const float v : draw(make_initializer(name, fans))) {
      sum += static_cast<double>(v);
      squares += static_cast<double>(v) * static_cast<double>(v);
      largest = std::max(largest, std::abs(static_cast<double>(v)));
    }
    const double n = static_cast<double>(count);
    // Mean and variance of n draws scatter by about 1/√n = 0.0022 (relative to the deviation): five times that.
    EXPECT_NEAR(sum / n / deviation, 0, 0.012) << name;
    EXPECT_NEAR(std::sqrt(squares / n) / deviation, 1, 0.012) << name;
    EXPECT_LE(largest, limit) << name;
  };
  check("glorot_uniform", std::sqrt(2.0 / 400), std::sqrt(6.0 / 400));
  check("glorot_normal", std::sqrt(2.0 / 400), 1e9);
  check("he_uniform", std::sqrt(2.0 / 300), std::sqrt(6.0 / 300));
  check("he_normal", std::sqrt(2.0 / 300), 1e9);
  check("lecun_normal", std::sqrt(1.0 / 300), 1e9);
  check("fan_in_uniform", 1 / std::sqrt(900.0), 1 / std::sqrt(300.0));
  check("truncated_normal", 0.05 * 0.8796, 0.1);  // deviation of a normal cut at 2σ: 0.8796σ
  EXPECT_THROW((void)make_initializer("glorot", fans), ConfigError);
}

TEST_P(ParametersTest, BuffersStartAtTheirValueAndPendingFollows) {
  BufferArena buffers;
  const Buffer& mean = buffers.declare("mean", {5}, 0.0f);
  const Buffer& variance = buffers.declare("variance", {5}, 1.0f);
  buffers.materialize(context());
  EXPECT_EQ(to_host<float>(buffers.current(mean), context().stream), std::vector<float>(5, 0.0f));
  EXPECT_EQ(to_host<float>(buffers.pending(variance), context().stream), std::vector<float>(5, 1.0f));
  EXPECT_EQ(variance.offset % kernels::kSegmentGranule, 0);
}

}  // namespace
}  // namespace bantam
