// Runtime::memory_report: a model's memory by layer and category, and what trim releases once it is gone.
#include <algorithm>

#include "bantam/memory/reports/memory_report.h"
#include "tests/engine/engine_fixture.h"

namespace bantam::testing::memory_report_of_model_test {
namespace {

class MemoryReportOfModel : public EngineTest {};

TEST_P(MemoryReportOfModel, NamesLayersAndReleasesWhatItSays) {
  Graph graph({8, 8, 3});
  graph.add("stem", conv2d({.filters = 4, .kernel = {3, 3}}));
  graph.add(flatten());
  graph.add("head", dense({.units = 3}));
  Tensor last;  // outlives the model, and lies after it
  {
    Model model(runtime(), device(), graph, {.seed = 1});
    Optimizer optimizer(model, {});
    const Context at_stem = context().at("stem");
    const Tensor kept = at_stem.allocate({1000}, DType::float32);
    const MemoryReport report = runtime().memory_report(device());
    EXPECT_EQ(report.device, to_string(device()));
    const auto holder = std::ranges::find(report.holders, "stem", &Holder::owner);
    ASSERT_NE(holder, report.holders.end());
    EXPECT_EQ(holder->category, Category::activation);
    EXPECT_EQ(holder->bytes, 4096u) << "4000 bytes, rounded up to a multiple of 256";
    EXPECT_GE(report.rounding_bytes(), 96u);
    for (const Category category : {Category::parameter, Category::gradient, Category::optimizer})
      EXPECT_GT(report.stats.by_category[category], 0u) << to_string(category);
    EXPECT_EQ(report.stats.by_category.total(), report.stats.in_use_bytes);
    const Tensor pages = at_stem.allocate({1 << 20}, DType::float32);  // whole ones, of 2 MiB on a GPU
    last = at_stem.allocate({3 << 20}, DType::float32);
  }
  const MemoryReport cached = runtime().memory_report(device());
  EXPECT_EQ(cached.stats.in_use_bytes, std::uint64_t{12} << 20);
  EXPECT_EQ(cached.holders.size(), 1u);
  EXPECT_GT(cached.trimmable_bytes, 0u);
  EXPECT_EQ(runtime().allocator(device()).trim(), cached.trimmable_bytes);
  EXPECT_EQ(runtime().memory_report(device()).reserved_bytes(), cached.reserved_bytes() - cached.trimmable_bytes);
  last = Tensor();
  const MemoryReport empty = runtime().memory_report(device());
  EXPECT_EQ(empty.trimmable_bytes, empty.reserved_bytes()) << "nothing live is in the way";
  EXPECT_EQ(runtime().allocator(device()).trim(), empty.trimmable_bytes);
  const MemoryReport nothing = runtime().memory_report(device());
  EXPECT_EQ(nothing.total_bytes(), nothing.overhead_bytes());
}

BANTAM_INSTANTIATE_ON_DEVICES(MemoryReportOfModel);

}  // namespace
}  // namespace bantam::testing::memory_report_of_model_test
