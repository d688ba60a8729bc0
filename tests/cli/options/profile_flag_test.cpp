// `--device h200` and `--profile FILE`: which profile they name, and what the options then ask for.
#include "bantam/cli/options/profile_flag.h"

#include "bantam/base/json.h"
#include "bantam/cli/print/step_json.h"
#include "tests/run/run_fixture.h"

namespace bantam::cli::profile_flag_test {
namespace {

class ProfileFlagTest : public run::RunTest {
 protected:
  static CommonOptions with_device(const std::string& device) { return {.flag_overrides = {{"device", device}}}; }
};

TEST_F(ProfileFlagTest, NoFlagIsNoProfile) {
  CommonOptions options;
  EXPECT_FALSE(take_profile(options, "").has_value());
  EXPECT_TRUE(options.flag_overrides.empty());
}

TEST_F(ProfileFlagTest, ADeviceStaysWhatItIs) {
  for (const char* device : {"cpu", "auto", "cuda:0", "cuda:3"}) {
    CommonOptions options = with_device(device);
    EXPECT_FALSE(take_profile(options, "").has_value()) << device;
    EXPECT_EQ(options.flag_overrides.at("device"), device);
  }
}

TEST_F(ProfileFlagTest, AProfilesNameBecomesAGpu) {
  for (const std::string& name : device_profile_names()) {
    CommonOptions options = with_device(name);
    const std::optional<DeviceProfile> profile = take_profile(options, "");
    ASSERT_TRUE(profile.has_value()) << name;
    EXPECT_EQ(profile->name, name);
    EXPECT_EQ(options.flag_overrides.at("device"), "cuda:0");
  }
}

TEST_F(ProfileFlagTest, WhatIsNeitherIsToldTheNearestProfileFirst) {
  CommonOptions options = with_device("h20");
  try {
    (void)take_profile(options, "");
    FAIL() << "h20 was accepted";
  } catch (const ConfigError& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find("--device: 'h20'"), std::string::npos) << message;
    const std::size_t nearest = message.find(" h200");
    ASSERT_NE(nearest, std::string::npos) << message;
    for (const std::string& name : device_profile_names()) {
      if (name == "h200") continue;
      EXPECT_GT(message.find(" " + name + ","), nearest) << message;
    }
    EXPECT_NE(message.find("devices --profiles"), std::string::npos) << message;
  }
}

TEST_F(ProfileFlagTest, SpellingsAreOneCardAndOldOnesAreRefusedByName) {
  for (const char* spelling : {"rtx3060", "RTX 3060", "GeForce RTX 3060", "3060"}) {
    CommonOptions options = with_device(spelling);
    const auto profile = take_profile(options, "");
    ASSERT_TRUE(profile.has_value()) << spelling;
    EXPECT_EQ(profile->name, "rtx3060");
  }
  CommonOptions options = with_device("V100");
  try {
    (void)take_profile(options, "");
    FAIL() << "a V100 was accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("Volta (compute capability 7.0)"), std::string::npos) << error.what();
  }
}

TEST_F(ProfileFlagTest, AFileIsReadAndImpliesAGpu) {
  const std::optional<DeviceProfile> written = find_device_profile("h200");
  ASSERT_TRUE(written.has_value());
  nlohmann::ordered_json json = profile_json(*written);
  json["name"] = "mine";
  json["multiprocessors"] = 7;
  write_file_atomically(path("mine.json"), json_text(json));
  CommonOptions options;
  const std::optional<DeviceProfile> read = take_profile(options, path("mine.json").string());
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(options.flag_overrides.at("device"), "cuda:0");
  EXPECT_EQ(read->name, "mine");
  EXPECT_EQ(read->multiprocessors, 7);
  EXPECT_EQ(read->compute_capability, written->compute_capability);
  EXPECT_EQ(read->total_bytes, written->total_bytes);
  EXPECT_EQ(read->overhead, written->overhead) << "what profile_json writes is what is read";
  EXPECT_EQ(read->copy_bytes_per_s, written->copy_bytes_per_s);
  EXPECT_EQ(read->float16_flops_per_s, written->float16_flops_per_s);
  EXPECT_EQ(read->measured, written->measured);

  CommonOptions chosen = with_device("cuda:1");
  EXPECT_TRUE(take_profile(chosen, path("mine.json").string()).has_value());
  EXPECT_EQ(chosen.flag_overrides.at("device"), "cuda:1") << "a device that was asked for stays";
  EXPECT_THROW((void)take_profile(chosen, path("none.json").string()), ConfigError);
}

}  // namespace
}  // namespace bantam::cli::profile_flag_test
