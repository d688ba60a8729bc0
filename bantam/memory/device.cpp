// Names of devices, and what is known of each.
#include "bantam/memory/device.h"

#include <charconv>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/cuda_backend.h"
#include "bantam/memory/host_info.h"

namespace bantam {

std::string to_string(Device device) {
  const std::string name = device.kind == DeviceKind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
  return device.meta ? "meta(" + name + ")" : name;
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return Device::cpu();
  if (text == "cuda") return Device::cuda(0);
  constexpr std::string_view kPrefix = "cuda:";
  if (text.starts_with(kPrefix) && text.size() > kPrefix.size() && text[kPrefix.size()] != '-') {
    int index = 0;
    const char* end = text.data() + text.size();
    const auto result = std::from_chars(text.data() + kPrefix.size(), end, index);
    if (result.ec == std::errc() && result.ptr == end) return Device::cuda(index);
  }
  throw DeviceError(fmt::format("unknown device '{}'; expected cpu, cuda or cuda:N (N = 0, 1, …)", text));
}

bool built_with_cuda() {
#ifdef BANTAM_WITH_CUDA
  return true;
#else
  return false;
#endif
}

void cuda_backend::require(Device device) {
  if (!device.is_cuda()) throw DeviceError("a CUDA device is needed, got " + to_string(device));
  const int count = availability().devices;
  if (count == 0) throw DeviceError(to_string(device) + " cannot be used: " + availability().reason);
  if (device.index < 0 || device.index >= count)
    throw DeviceError(fmt::format("{} does not exist: this machine has {} CUDA device{}", to_string(device), count,
                                  count == 1 ? "" : "s"));
}

int cuda_device_count() { return cuda_backend::availability().devices; }

std::string cuda_unavailable_reason() { return cuda_backend::availability().reason; }

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices = {device_info(Device::cpu())};
  for (int i = 0; i < cuda_device_count(); ++i) devices.push_back(device_info(Device::cuda(i)));
  return devices;
}

DeviceInfo device_info(Device device) {
  if (device.meta) throw DeviceError(to_string(device) + " stands in for a device and has no facts of its own");
  if (device.is_cpu()) {
    if (device.index != 0) throw DeviceError(fmt::format("there is one CPU device; got index {}", device.index));
    const HostInfo host = read_host_info();
    return {device, host.processor, host.total_bytes, host.free_bytes, 0, host.processors};
  }
  cuda_backend::require(device);
  const cuda_backend::DeviceFacts facts = cuda_backend::device_facts(device.index);
  return {device, facts.name, facts.total_bytes, facts.free_bytes, facts.compute_capability, facts.multiprocessors};
}

}  // namespace bantam
