// Ranks of a run decide together from its configuration: the cache of their data sets.
#include "bantam/run/ranks/rank_config.h"

#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/data/formats/sample_reader.h"
#include "bantam/engine/comm/local_network.h"
#include "bantam/engine/comm/mesh.h"
#include "bantam/memory/device/device.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::rank_config_test {
namespace {

constexpr std::int64_t kSampleBytes = 32 * 32 * 3 + 4, kHeldOut = 10;

/// So many samples as nobody has; they are never read. Encoded ones are of differing sizes.
class Sized : public SampleReader {
 public:
  Sized(std::int64_t samples, bool encoded) : samples_(samples), encoded_(encoded) {}
  DatasetFacts facts() const override {
    const Shape image = encoded_ ? Shape{0, 0, 3} : Shape{32, 32, 3};
    return {.size = samples_, .image_shape = image, .class_names = std::vector<std::string>(10, "class")};
  }
  void read(std::int64_t, std::span<const std::span<std::byte>>) const override { throw DataError("not to be read"); }

 private:
  std::int64_t samples_;
  bool encoded_;
};

/// Data sets of so many bytes in all.
class RankCacheTest : public RunTest {
 protected:
  static void SetUpTestSuite() {
    sample_formats().add("sized", [](ConfigMap& map) {
      const std::int64_t samples = map.integer({"samples", "How many.", "1"}, {.min = 1}, 1);
      const bool encoded = map.boolean({"encoded", "As files."}, false);
      return SampleSplits{std::make_shared<Sized>(samples, encoded), std::make_shared<Sized>(kHeldOut, encoded)};
    });
  }
  static RunConfig config(std::uint64_t bytes, std::vector<std::string> overrides = {},
                          const std::string& stages = "cache: auto", bool encoded = false) {
    const auto samples = static_cast<std::int64_t>(bytes) / kSampleBytes - kHeldOut;
    overrides.insert(overrides.begin(),
                     {"train.replicas=4", fmt::format("data={{format: sized, samples: {}, encoded: {}, pipeline: [{}, "
                                                      "batch: {{size: 16}}]}}",
                                                      samples, encoded, stages)});
    return tiny(overrides);
  }
  static CacheKind decided(RunConfig config, int ranks, int local_ranks) {
    decide_cache(config, {.all = ranks, .local = local_ranks});
    return config.data->pipeline.cache;
  }
  /// Half of what one process may have of the memory that is free here: another process's needs of less than half of
  /// it change no result.
  static std::uint64_t half_of_room() { return device_info(Device::cpu()).free_bytes / 8 * 3; }
};

TEST_F(RankCacheTest, RanksOfAHostShareItsFreeMemory) {
  if (half_of_room() == 0) GTEST_SKIP() << "the system does not say how much memory is free";
  const RunConfig half = config(half_of_room());
  EXPECT_EQ(half.data->pipeline.cache, CacheKind::ram);
  EXPECT_EQ(decided(half, 1, 1), CacheKind::ram);
  EXPECT_EQ(decided(half, 4, 1), CacheKind::ram) << "each on a host of its own";
  EXPECT_EQ(decided(half, 4, 4), CacheKind::off);
  const RunConfig given = config(half_of_room(), {}, "cache: ram");
  EXPECT_EQ(decided(given, 4, 4), CacheKind::ram) << "the configuration says so";
}

TEST_F(RankCacheTest, ALimitIsEachRanksAndTheLeastHolds) {
  const std::uint64_t bytes = 40u << 20;
  EXPECT_EQ(decided(config(bytes, {"memory.limits={cpu: 64MiB}"}), 4, 4), CacheKind::ram);
  const RunConfig lists = config(bytes, {"memory.limits={cpu: [64MiB, 64MiB, 16MiB, 64MiB]}"});
  EXPECT_EQ(lists.data->pipeline.cache, CacheKind::ram);
  EXPECT_EQ(decided(lists, 4, 4), CacheKind::off);
}

/// The run's folder is rank 0's.
TEST_F(RankCacheTest, DiskIsNoChoiceOfRanks) {
  const RunConfig files =
      config(40u << 20, {"memory.limits={cpu: 16MiB}"}, "cache: auto, resize: {size: [32, 32]}", true);
  EXPECT_EQ(files.data->pipeline.cache, CacheKind::disk) << "is a quarter of the free disk less than 40 MiB?";
  EXPECT_EQ(decided(files, 4, 4), CacheKind::off);
  EXPECT_NO_THROW(require_ranks(files, 4)) << "it is decided anew";
  EXPECT_THROW(require_ranks(config(40u << 20, {}, "cache: disk"), 4), ConfigError);
}

/// Ranks that read the configuration alone would each choose ram.
TEST_F(RankCacheTest, AllRanksHaveTheCacheThatRankZeroHasChosen) {
  if (half_of_room() == 0) GTEST_SKIP() << "the system does not say how much memory is free";
  const RunConfig half = config(half_of_room());
  std::vector<std::unique_ptr<Network>> networks = local_networks(4);
  std::vector<CacheKind> caches(4, CacheKind::automatic);
  std::vector<std::string> names(4);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      Mesh mesh(std::move(networks[rank]));
      const RunRanks ranks{.link = &mesh, .local_rank = static_cast<int>(rank), .local_size = 4};
      try {
        DecisionLog log;
        const RunConfig shared = rank == 0 ? share_config(half, ranks, true, log) : receive_config(ranks);
        caches[rank] = shared.data->pipeline.cache;
        names[rank] = shared.name;
        EXPECT_NE(shared.document.resolved_yaml().find("cache: auto"), std::string::npos) << "for who goes on";
      } catch (const std::exception& error) {
        ADD_FAILURE() << rank << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(caches, std::vector<CacheKind>(4, CacheKind::off));
  EXPECT_EQ(names, std::vector<std::string>(4, "tiny"));
}

}  // namespace
}  // namespace bantam::run::rank_config_test
