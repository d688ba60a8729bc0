// Links in words; of this machine's GPUs, where there are some.
#include "bantam/memory/device/links.h"

#include <set>

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/device/device.h"

namespace bantam::links_test {
namespace {

TEST(GpuLinks, InWords) {
  EXPECT_EQ(to_string(GpuLink{.nvlinks = 18, .path = "between NUMA nodes", .peer_access = true}),
            "18 NVLinks, peer access");
  EXPECT_EQ(to_string(GpuLink{.nvlinks = 1}), "1 NVLink, no peer access");
  EXPECT_EQ(to_string(GpuLink{.path = "PCIe switch", .peer_access = true}), "PCIe switch, peer access");
  EXPECT_EQ(to_string(GpuLink{}), "path not known, no peer access");
}

TEST(GpuLinks, AreOnePerPair) {
  const int count = cuda_device_count();
  const std::vector<GpuLink> links = gpu_links();
  EXPECT_EQ(links.size(), static_cast<std::size_t>(count * (count - 1) / 2));
  for (const GpuLink& link : links) {
    EXPECT_LT(link.from, link.to);
    EXPECT_LT(link.to, count);
  }
}

TEST(GpuLinks, IdentitiesDiffer) {
  std::set<std::string> identities;
  const int count = cuda_device_count();
  for (int device = 0; device < count; ++device) identities.insert(gpu_identity(device));
  EXPECT_EQ(identities.size(), static_cast<std::size_t>(count));
  EXPECT_THROW((void)gpu_identity(count), DeviceError);
}

}  // namespace
}  // namespace bantam::links_test
