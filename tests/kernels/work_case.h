// Cases of a kernel's work: the bytes and operations that its twin in kernels::work notes, computed by hand.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/base/dtype.h"
#include "bantam/kernels/common/exec.h"
#include "bantam/kernels/common/kernel_log.h"

namespace bantam::testing {

inline constexpr DType kHalf = DType::float16, kFloat = DType::float32;

/// Somewhere: functions of kernels::work read no more of a pointer than whether it is null.
inline float work_storage[1];
inline float* const kFloats = work_storage;
inline void* const kSome = work_storage;

/// A call of kernels::work's twin of `kernel`, and what it is to note.
struct WorkCase {
  const char* kernel;
  std::function<void(const kernels::Exec&)> call;
  std::int64_t bytes, flops;
  kernels::KernelKind kind = kernels::KernelKind::pass;
  int passes = 1;
};

/// Each call notes one entry: the kernel, the layer and the work that the case says.
inline void expect_work(const std::vector<WorkCase>& cases) {
  for (const WorkCase& c : cases) {
    kernels::KernelLog log;
    c.call({.device = Device::meta_of(Device::cuda()), .log = &log, .owner = "layer"});
    ASSERT_EQ(log.entries().size(), 1u) << c.kernel;
    const kernels::KernelEntry& entry = log.entries().front();
    EXPECT_STREQ(entry.kernel, c.kernel);
    EXPECT_STREQ(entry.owner, "layer");
    EXPECT_EQ(entry.work.bytes, c.bytes) << c.kernel;
    EXPECT_EQ(entry.work.flops, c.flops) << c.kernel;
    EXPECT_EQ(entry.work.kind, c.kind) << c.kernel;
    EXPECT_EQ(entry.work.passes, c.passes) << c.kernel;
  }
}

}  // namespace bantam::testing
