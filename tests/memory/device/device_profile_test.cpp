// Targets by name, devices known by theirs, and profiles from files.
#include "bantam/memory/device/device_profile.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bantam/base/error.h"

namespace bantam {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;

TEST(DeviceProfile, H200IsMeasuredAndTheOthersSayThatTheyAreNot) {
  const auto h200 = find_device_profile("h200");
  ASSERT_TRUE(h200.has_value());
  EXPECT_EQ(h200->title(), "h200 (measured)");
  EXPECT_EQ(h200->overhead.front(), (OverheadLine{"CUDA context", 518 * kMiB})) << "the figure that was measured";
  EXPECT_NEAR(h200->copy_bytes_per_s, 4.0e12, 1e9);
  EXPECT_EQ(h200->flops_per_s(DType::bfloat16), h200->float16_flops_per_s);
  for (const std::string& name : device_profile_names()) {
    const auto profile = find_device_profile(name);
    ASSERT_TRUE(profile.has_value()) << name;
    EXPECT_EQ(profile->measured, name == "h200");
    EXPECT_GE(profile->compute_capability, 75) << name;
    EXPECT_GT(profile->total_bytes, 10ull << 30) << name;
    EXPECT_LT(profile->copy_bytes_per_s, 1e13) << name;
    EXPECT_GT(profile->float16_flops_per_s, profile->float32_flops_per_s) << name;
    EXPECT_EQ(profile->overhead.size(), 4u) << name;
  }
  EXPECT_FALSE(find_device_profile("cuda:0").has_value());
}

TEST(DeviceProfile, AnUnknownGpuIsEstimatedByItsSize) {
  const DeviceProfile half = estimate_profile("Some GPU", 80, 66, 16ull << 30), whole = *find_device_profile("h200");
  EXPECT_EQ(half.title(), "Some GPU (estimate)");
  EXPECT_NEAR(half.copy_bytes_per_s, whole.copy_bytes_per_s / 2, 1e6);
  EXPECT_EQ(half.overhead.front().bytes, 260 * kMiB) << "half of 518 MiB, in pages of 2";
  EXPECT_EQ(half.overhead.back(), whole.overhead.back()) << "kernels do not depend on the size";
}

TEST(DeviceProfile, TheCpuHasNoOverheadAndAbsentGpusAreTheH200) {
  EXPECT_TRUE(profile_of(Device::cpu()).overhead.empty());
  EXPECT_EQ(profile_of(Device::cuda(cuda_device_count())).name, "h200");
}

TEST(DeviceProfile, FilesAreReadBackAndCheckedByLine) {
  const auto path = std::filesystem::temp_directory_path() / ("bantam-profile-" + std::to_string(getpid()) + ".json");
  const std::string good = R"({"name": "mine", "compute_capability": 86, "multiprocessors": 82,
 "total_bytes": 25296961536, "overhead": {"CUDA context": 337641472, "kernels": 1048576},
 "copy_bytes_per_s": 7.8e11, "float32_flops_per_s": 2.6e13, "float16_flops_per_s": 5.6e13, "measured": true})";
  std::ofstream(path) << good;
  const DeviceProfile profile = load_device_profile(path);
  EXPECT_EQ(profile.title(), "mine (measured)");
  EXPECT_EQ(profile.overhead, (std::vector<OverheadLine>{{"CUDA context", 337641472}, {"kernels", 1048576}}));
  EXPECT_EQ(profile.total_bytes, 25296961536u);
  std::string bad = good;
  bad.replace(bad.find("7.8e11"), 6, "-1");
  std::ofstream(path) << bad;
  try {
    (void)load_device_profile(path);
    ADD_FAILURE() << "a negative rate was accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(".json:3:"), std::string::npos) << error.what();
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace bantam
