// Targets by name, devices known by theirs, and profiles from files.
#include "bantam/memory/device/device_profile.h"

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "bantam/base/error.h"
#include "bantam/memory/device/known_gpus.h"

namespace bantam::device_profile_test {
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
    EXPECT_GT(profile->total_bytes, 3ull << 30) << name;
    EXPECT_GE(profile->copy_bytes_per_s, 1e11) << name;
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
  const DeviceProfile absent = profile_of(Device::cuda(cuda_device_count()));
  EXPECT_EQ(absent.name, "h200");
  EXPECT_EQ(absent.title(), "h200 (stand-in)");
  EXPECT_FALSE(absent.measured) << "of a card that nobody named";
}

TEST(DeviceProfile, CardsAreKnownInAnySpelling) {
  const std::vector<std::pair<const char*, const char*>> spellings = {
      {"rtx3060", "rtx3060"},
      {"RTX3090", "rtx3090"},
      {"RTX 3060", "rtx3060"},
      {"GeForce RTX 4070 Ti", "rtx4070-ti"},
      {"NVIDIA GeForce RTX 4070 Laptop GPU", "rtx4070-laptop"},
      {"RTX 3060 Mobile", "rtx3060-laptop"},
      {"rtx_4070_ti_super", "rtx4070-ti-super"},
      {"3060", "rtx3060"},
      {"1660s", "gtx1660-super"},
      {"2070 Super", "rtx2070-super"},
      {"GTX 3060", "rtx3060"},
      {"RTX 3060 8GB", "rtx3060-8gb"},
      {"rtx3060-12gb", "rtx3060"},
      {"RTX 4060 Ti 16 GB", "rtx4060-ti-16gb"},
      {"A100", "a100"},
      {"A100 80GB", "a100"},
      {"NVIDIA A100-PCIE-40GB", "a100-40gb"},
      {"H100 80GB HBM3", "h100"},
      {"Tesla T4", "t4"},
      {"L40S", "l40s"}};
  for (const auto& [typed, name] : spellings) {
    const auto profile = find_device_profile(typed);
    ASSERT_TRUE(profile.has_value()) << typed;
    EXPECT_EQ(profile->name, name) << typed;
  }
  for (const std::string& name : device_profile_names()) EXPECT_EQ(find_device_profile(name)->name, name);
  for (const char* other : {"", "cpu", "cuda", "auto", "rtx9999", "RTX 3060 10GB", "V100"})
    EXPECT_FALSE(find_device_profile(other).has_value()) << other;
}

TEST(DeviceProfile, CardsThatCannotBeUsedSayWhy) {
  for (const char* old : {"V100", "Tesla V100-SXM2-16GB", "p100", "GTX 1080 Ti", "1060", "K80", "Quadro P4000"})
    EXPECT_NE(unsupported_gpu(old).find("needs 7.5"), std::string::npos) << old;
  for (const char* other : {"RX 7900 XTX", "MI300X", "Apple M2", "Arc A770", "tpu"})
    EXPECT_NE(unsupported_gpu(other).find("no NVIDIA GPU"), std::string::npos) << other;
  for (const std::string& name : device_profile_names()) EXPECT_EQ(unsupported_gpu(name), "") << name;
  for (const char* other : {"cuda:0", "cpu", "h20", "p4000x"}) EXPECT_EQ(unsupported_gpu(other), "") << other;
}

TEST(DeviceProfile, AStandInHasTheBytesAndTheRatesOfAUsualCard) {
  const DeviceProfile small = stand_in_profile(8ull << 30), large = stand_in_profile(24ull << 30);
  EXPECT_EQ(small.total_bytes, 8ull << 30);
  EXPECT_EQ(small.title(), "a GPU of 8.00 GiB (stand-in)");
  EXPECT_EQ(small.stand_in, "rtx3060-ti");
  EXPECT_EQ(large.stand_in, "rtx3090");
  EXPECT_FALSE(small.measured);
  EXPECT_LT(small.copy_bytes_per_s, large.copy_bytes_per_s);
  EXPECT_EQ(small.overhead, find_device_profile("rtx3060-ti")->overhead);
}

TEST(DeviceProfile, AFileMayHaveADataSheetsFiveNumbers) {
  const auto path = std::filesystem::temp_directory_path() / ("bantam-sheet-" + std::to_string(getpid()) + ".yaml");
  const std::string good =
      "memory: 12GiB\nbandwidth_gb_per_s: 360\nfloat16_tflops: 25.5\nfloat32_tflops: 12.7\nmultiprocessors: 28\n";
  std::ofstream(path) << good;
  const DeviceProfile profile = load_device_profile(path), known = *find_device_profile("rtx3060");
  EXPECT_EQ(profile.title(), path.stem().string() + " (estimate)");
  EXPECT_EQ(profile.total_bytes, 12ull << 30);
  EXPECT_EQ(profile.overhead, known.overhead);
  EXPECT_DOUBLE_EQ(profile.copy_bytes_per_s, known.copy_bytes_per_s);
  EXPECT_DOUBLE_EQ(profile.float16_flops_per_s, known.float16_flops_per_s);
  EXPECT_DOUBLE_EQ(profile.float32_flops_per_s, known.float32_flops_per_s);
  std::ofstream(path) << good << "bandwith: 3\n";
  EXPECT_THROW((void)load_device_profile(path), ConfigError);
  std::ofstream(path) << "memory: 12GiB\n";
  try {
    (void)load_device_profile(path);
    ADD_FAILURE() << "four numbers are missing";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("bandwidth_gb_per_s"), std::string::npos) << error.what();
  }
  std::filesystem::remove(path);
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
}  // namespace bantam::device_profile_test
