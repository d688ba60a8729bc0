// Where the algorithm cache lies, by configuration and environment.
#include "bantam/run/train/algorithm_cache.h"

#include <cstdlib>

#include <gtest/gtest.h>

namespace bantam::run::algorithm_cache_test {
namespace {

/// The environment as a test sets it; what was there before comes back.
class AlgorithmCacheTest : public ::testing::Test {
 protected:
  static constexpr const char* kNames[] = {"BANTAM_ALGORITHM_CACHE", "XDG_CACHE_HOME", "HOME",
                                           "NV_NSIGHT_INJECTION_TRANSPORT_TYPE",
                                           "NV_SANITIZER_INJECTION_TRANSPORT_TYPE"};
  void SetUp() override {
    for (const char* name : kNames) {
      const char* const value = std::getenv(name);
      before_.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(name);
    }
  }
  void TearDown() override {
    for (std::size_t i = 0; i < before_.size(); ++i) {
      if (before_[i]) {
        ::setenv(kNames[i], before_[i]->c_str(), 1);
      } else {
        ::unsetenv(kNames[i]);
      }
    }
  }
  std::vector<std::optional<std::string>> before_;
};

TEST_F(AlgorithmCacheTest, AutoIsTheUsersCacheFolder) {
  EXPECT_EQ(algorithm_cache_path("auto", "NVIDIA H200"), std::nullopt);  // no home: nowhere
  ::setenv("HOME", "/home/a", 1);
  EXPECT_EQ(algorithm_cache_path("auto", "NVIDIA H200"), "/home/a/.cache/bantam/algorithms-NVIDIA_H200.json");
  ::setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(algorithm_cache_path("auto", "GPU/../x 1.5"), "/cache/bantam/algorithms-GPU_.._x_1.5.json");
}

TEST_F(AlgorithmCacheTest, TheEnvironmentPlacesAutoOnly) {
  ::setenv("HOME", "/home/a", 1);
  ::setenv("BANTAM_ALGORITHM_CACHE", "/tmp/mine.json", 1);
  EXPECT_EQ(algorithm_cache_path("auto", "NVIDIA H200"), "/tmp/mine.json");
  EXPECT_EQ(algorithm_cache_path("given.json", "NVIDIA H200"), "given.json");
  EXPECT_EQ(algorithm_cache_path("off", "NVIDIA H200"), std::nullopt);
  ::setenv("BANTAM_ALGORITHM_CACHE", "off", 1);
  EXPECT_EQ(algorithm_cache_path("auto", "NVIDIA H200"), std::nullopt);
  ::setenv("BANTAM_ALGORITHM_CACHE", "", 1);
  EXPECT_EQ(algorithm_cache_path("auto", "NVIDIA H200"), "/home/a/.cache/bantam/algorithms-NVIDIA_H200.json");
}

TEST_F(AlgorithmCacheTest, TimesDoNotCountUnderTools) {
  EXPECT_TRUE(timings_count());
  for (const char* tool : {"NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "NV_SANITIZER_INJECTION_TRANSPORT_TYPE"}) {
    ::setenv(tool, "uds", 1);
    EXPECT_FALSE(timings_count()) << tool;
    ::unsetenv(tool);
  }
}

}  // namespace
}  // namespace bantam::run::algorithm_cache_test
