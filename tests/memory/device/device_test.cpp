// Names of devices, and what a machine without a GPU must answer.
#include "bantam/memory/device/device.h"

#include <gtest/gtest.h>

#include "bantam/base/error.h"
#include "bantam/memory/pages/region_source.h"

namespace bantam::device_test {
namespace {

TEST(Device, names_are_read_back) {
  for (const Device device :
       {Device::cpu(), Device::cuda(0), Device::cuda(7), Device::cpu().logical(0), Device::cuda(3).logical(12)})
    EXPECT_EQ(parse_device(to_string(device)), device) << to_string(device);
  EXPECT_EQ(parse_device("cuda"), Device::cuda(0));
  EXPECT_EQ(to_string(Device::meta_of(Device::cuda(2))), "meta(cuda:2)");
  EXPECT_EQ(to_string(Device::meta_of(Device::cpu())), "meta(cpu)");
  EXPECT_EQ(to_string(Device::cuda(1).logical(2)), "cuda:1/2");
  EXPECT_EQ(parse_device("cuda/1"), Device::cuda(0).logical(1));
  EXPECT_EQ(Device::cuda(1).logical(2).whole(), Device::cuda(1));
  EXPECT_NE(Device::cuda(1).logical(2), Device::cuda(1));
  EXPECT_EQ(Device::meta_of(Device::cuda(1).logical(2)), Device::meta_of(Device::cuda(1)));
}

TEST(Device, other_texts_are_refused_by_name) {
  for (const char* text : {"", "gpu", "CPU", "cpu:0", "cuda:", "cuda:-1", "cuda:1x", "cuda:+1", "cuda: 1",
                           "cuda:99999999999", "cuda:0/", "cuda:0/-1", "cuda:0/x", "cpu/0/0", "/0", "cpu/ 1"}) {
    try {
      parse_device(text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const DeviceError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find("'" + std::string(text) + "'"), std::string::npos) << message;
      EXPECT_NE(message.find("cuda:N"), std::string::npos) << message;
    }
  }
}

TEST(Device, the_cpu_is_always_listed_first) {
  const auto devices = list_devices();
  ASSERT_EQ(devices.size(), static_cast<std::size_t>(1 + cuda_device_count()));
  const DeviceInfo& cpu = devices.front();
  EXPECT_TRUE(cpu.device.is_cpu());
  EXPECT_FALSE(cpu.name.empty());
  EXPECT_GE(cpu.multiprocessors, 1);
  EXPECT_GT(cpu.total_bytes, std::uint64_t{16} << 20);
  EXPECT_GT(cpu.free_bytes, 0u);
  EXPECT_LE(cpu.free_bytes, cpu.total_bytes);
  EXPECT_EQ(cpu.compute_capability, 0);
}

TEST(Device, a_reason_is_given_exactly_where_there_is_no_gpu) {
  EXPECT_EQ(cuda_unavailable_reason().empty(), cuda_device_count() > 0);
  EXPECT_EQ(cuda_unavailable_reason().find("without CUDA") == std::string::npos, built_with_cuda());
}

TEST(Device, devices_that_do_not_exist_are_refused_with_the_reason) {
  const Device absent = Device::cuda(cuda_device_count());
  for (const auto& use : {+[](Device d) { (void)device_info(d); }, +[](Device d) { (void)make_cuda_source(d); },
                          +[](Device d) { OwnedStream stream(d); }, +[](Device d) { Event event(d); },
                          +[](Device d) { DeviceScope scope(d); }}) {
    try {
      use(absent);
      ADD_FAILURE() << "accepted " << to_string(absent);
    } catch (const DeviceError& error) {
      const std::string message = error.what();
      EXPECT_NE(message.find(to_string(absent)), std::string::npos) << message;
      EXPECT_NE(message.find(cuda_unavailable_reason()), std::string::npos) << message;
    }
  }
  EXPECT_THROW(device_info(Device::meta_of(Device::cpu())), DeviceError);
  EXPECT_THROW(make_cuda_source(Device::cpu()), DeviceError);
}

}  // namespace
}  // namespace bantam::device_test
