// On the CPU and on meta devices: work is done when a call returns, events are always done, meta copies touch nothing.
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/memory/device/device.h"

namespace bantam::stream_test {
namespace {

TEST(Stream, live_streams_have_distinct_ids) {
  const OwnedStream a(Device::cpu()), b(Device::cpu()), c(Device::meta_of(Device::cuda(3)));
  EXPECT_NE(a.get().id, b.get().id);
  EXPECT_NE(b.get().id, c.get().id);
  EXPECT_NE(a.get().id, Stream{}.id);
  EXPECT_EQ(a.get().handle, nullptr);
  EXPECT_EQ(c.get().device, Device::meta_of(Device::cuda(3)));
}

TEST(Stream, moving_keeps_the_stream) {
  OwnedStream a(Device::cpu());
  const std::uint32_t id = a.get().id;
  const OwnedStream b(std::move(a));
  EXPECT_EQ(b.get().id, id);
}

TEST(Stream, cpu_copies_and_zeroes_are_done_at_once_and_may_overlap) {
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 1);
  copy_bytes(values.data() + 10, values.data(), 50 * sizeof(int), Stream{});
  EXPECT_EQ(values[10], 1);
  EXPECT_EQ(values[59], 50);
  EXPECT_EQ(values[60], 61);
  zero_bytes(values.data() + 1, 2 * sizeof(int), Stream{});
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], 0);
  EXPECT_EQ(values[2], 0);
  EXPECT_EQ(values[3], 4);
  synchronize(Stream{});
}

TEST(Stream, meta_work_touches_no_memory) {
  const OwnedStream meta(Device::meta_of(Device::cuda(0)));
  void* nowhere = reinterpret_cast<void*>(std::uintptr_t{1} << 44);
  copy_bytes(nowhere, nowhere, 1 << 20, meta.get());
  zero_bytes(nowhere, 1 << 20, meta.get());
  copy_bytes(nullptr, nullptr, 0, Stream{});
  zero_bytes(nullptr, 0, Stream{});
  synchronize(meta.get());
  const DeviceScope scope(meta.get().device);
}

TEST(Stream, cpu_events_are_always_done) {
  Event event(Device::cpu());
  EXPECT_TRUE(event.done());
  event.record(Stream{});
  EXPECT_TRUE(event.done());
  event.make_wait(Stream{});
  event.synchronize();
  const Event moved(std::move(event));
  EXPECT_TRUE(moved.done());
}

}  // namespace
}  // namespace bantam::stream_test
