// Versions of libraries, and a profile where there is no GPU to measure.
#include "bantam/run/devices.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/run/train/library_versions.h"

namespace bantam::run::devices_test {
namespace {

TEST(LibraryVersions, EachHasOneOrAReason) {
  const std::vector<LibraryVersion> libraries = library_versions();
  EXPECT_TRUE(std::ranges::any_of(libraries, [](const LibraryVersion& library) { return library.name == "oneDNN"; }));
  for (const LibraryVersion& library : libraries) EXPECT_NE(library.version, "") << library.name;
}

TEST(MeasureProfile, IsOfWholeGpus) {
  EXPECT_THROW((void)measure_profile(Device::cpu()), DeviceError);
  EXPECT_THROW((void)measure_profile(Device::cuda(0).logical(0)), DeviceError);
}

}  // namespace
}  // namespace bantam::run::devices_test
