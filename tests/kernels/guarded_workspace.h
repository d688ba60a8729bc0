// Test support: a workspace of exactly the bytes of its rule, followed by bytes that no kernel may touch.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/kernels/device_buffer.h"

namespace bantam::testing {

/// Begins as NaN bits, so that a kernel that reads before it writes shows.
class GuardedWorkspace {
 public:
  GuardedWorkspace(KernelDevice& device, std::size_t bytes) : device_(device), bytes_(bytes) {
    data_ =
        static_cast<char*>(device.allocator().allocate(bytes + kGuard, device.stream(), {Category::workspace, "test"}));
    std::vector<std::uint8_t> fill(bytes + kGuard, 0xff);
    std::fill(fill.end() - kGuard, fill.end(), kMark);
    copy_bytes(data_, fill.data(), fill.size(), device.stream());
    device.synchronize();
  }
  ~GuardedWorkspace() { device_.allocator().free(data_, device_.stream()); }
  GuardedWorkspace(const GuardedWorkspace&) = delete;
  GuardedWorkspace& operator=(const GuardedWorkspace&) = delete;

  kernels::Workspace get() const { return {data_, bytes_}; }
  void expect_guard_intact() const {
    std::vector<std::uint8_t> guard(kGuard);
    copy_bytes(guard.data(), data_ + bytes_, kGuard, device_.stream());
    device_.synchronize();
    EXPECT_EQ(guard, std::vector<std::uint8_t>(kGuard, kMark))
        << "a kernel wrote past its workspace of " << bytes_ << " bytes";
  }

 private:
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::uint8_t kMark = 0xa5;
  KernelDevice& device_;
  std::size_t bytes_;
  char* data_ = nullptr;
};

}  // namespace bantam::testing
