// Room on disk, known before a run begins: sizes by the plan, of disks that the test makes up.
#include "bantam/run/train/disk_room.h"

#include "bantam/run/train/train.h"
#include "tests/run/run_fixture.h"

namespace bantam::run::disk_room_test {
namespace {

namespace fs = std::filesystem;

struct Warnings : RunObserver {
  void on_warning(std::string_view text) override { all += std::string(text) + "\n"; }
  std::string all;
};

class DiskRoomTest : public RunTest {
 protected:
  static DiskCheck disk_of(std::uint64_t bytes, bool strict = false) {
    return {.strict = strict, .free_bytes = [bytes](const fs::path&) { return std::optional(bytes); }};
  }
  std::string warnings_of(const std::string& name, const DiskCheck& disk) {
    Warnings warnings;
    (void)train(tiny({}), {.threads = 1, .folder = path(name)}, {}, {.observer = &warnings, .disk = disk});
    return warnings.all;
  }
};

TEST_F(DiskRoomTest, NeedCountsFilesOfWeightsAndCheckpoints) {
  RunPlan plan;
  plan.by_category[Category::parameter] = 4'000'000;
  plan.by_category[Category::optimizer] = 8'000'000;
  const RunConfig config = tiny({});
  const DiskNeed need = disk_need(config, plan);
  EXPECT_GE(need.weights_bytes, 4'000'000u);
  EXPECT_LE(need.weights_bytes, 4'100'000u);
  EXPECT_GE(need.checkpoint_bytes, 16'000'000u);
  EXPECT_EQ(need.checkpoints, 2);
  EXPECT_EQ(need.run_bytes(), need.weights_bytes + 2 * need.checkpoint_bytes);
  EXPECT_EQ(disk_need(config, plan, 2).checkpoints, 1) << "of a run that goes on one more";
  EXPECT_EQ(need.packed_bytes, 0u);
}

TEST_F(DiskRoomTest, ShortageNamesSizesFolderAndRemedy) {
  const DiskNeed need{.weights_bytes = 10 << 20, .checkpoint_bytes = 30 << 20};
  EXPECT_EQ(disk_shortage(need, "runs/a", disk_of(70 << 20)), "");
  const std::string text = disk_shortage(need, "runs/a", disk_of((70 << 20) - 1));
  EXPECT_EQ(text,
            "weights (10.0 MiB) and 2 checkpoints (30.0 MiB each) need 70.0 MiB, but the disk of runs/a has 70.0 MiB "
            "free; --run-dir names a folder on another disk");
  EXPECT_EQ(disk_shortage(need, "runs/a", {.free_bytes = [](const fs::path&) { return std::nullopt; }}), "")
      << "the system does not say";
}

TEST_F(DiskRoomTest, PackedSamplesCountOnTheirDisk) {
  DiskNeed need{.weights_bytes = 10 << 20, .checkpoint_bytes = 30 << 20, .packed_bytes = 100 << 20};
  const std::string together = disk_shortage(need, path("run"), disk_of(100 << 20));
  EXPECT_NE(together.find("packed samples of cache: disk (100 MiB) need 170 MiB"), std::string::npos) << together;
  fs::create_directories(path("run"));
  { std::ofstream(path("run") / "samples-training.cache").seekp(80 << 20) << "x"; }
  EXPECT_EQ(disk_shortage(need, path("run"), disk_of(100 << 20)), "") << "most of them are packed already";
  need.packed_folder = "/proc";  // another file system
  const DiskCheck by_folder{.free_bytes = [](const fs::path& folder) -> std::optional<std::uint64_t> {
    return folder == "/proc" ? 1 << 20 : 1 << 30;
  }};
  const std::string apart = disk_shortage(need, path("run"), by_folder);
  EXPECT_EQ(apart.find("weights"), std::string::npos) << apart;
  EXPECT_NE(apart.find("the disk of /proc has 1.00 MiB free"), std::string::npos) << apart;
}

TEST_F(DiskRoomTest, ARunWarnsOrIsRefused) {
  EXPECT_EQ(warnings_of("room", disk_of(std::uint64_t{1} << 40)), "");
  const std::string warned = warnings_of("none", disk_of(1000));
  EXPECT_NE(warned.find("1000 B free; --run-dir"), std::string::npos) << warned;
  EXPECT_NE(warned.find("--strict-disk refuses such a run"), std::string::npos) << warned;
  EXPECT_TRUE(fs::exists(path("none") / "weights.safetensors"));
  EXPECT_THROW((void)warnings_of("strict", disk_of(1000, true)), NoRoomOnDisk);
  EXPECT_FALSE(fs::exists(path("strict"))) << "nothing is left";
  EXPECT_EQ(warnings_of("strict", disk_of(std::uint64_t{1} << 40, true)), "");
}

TEST_F(DiskRoomTest, TheSystemSaysWhatIsFree) {
  EXPECT_GT(free_disk_bytes(path("not-there-yet")).value_or(0), 0u);
  EXPECT_GT(free_disk_bytes("").value_or(0), 0u);
}

}  // namespace
}  // namespace bantam::run::disk_room_test
