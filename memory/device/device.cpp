// Names of devices, and what is known of each.
#include "bantam/memory/device/device.h"

#include <charconv>
#include <optional>

#include <fmt/core.h>

#include "bantam/base/error.h"
#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/device/host_info.h"

namespace bantam {

namespace {

/// A whole number without sign or blanks; nothing for any other text.
std::optional<int> parse_index(std::string_view text) {
  int index = 0;
  if (text.empty() || text.front() == '-') return std::nullopt;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), index);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return index;
}

std::optional<Device> parse_whole(std::string_view text) {
  if (text == "cpu") return Device::cpu();
  if (text == "cuda") return Device::cuda(0);
  constexpr std::string_view kPrefix = "cuda:";
  if (!text.starts_with(kPrefix)) return std::nullopt;
  const std::optional<int> index = parse_index(text.substr(kPrefix.size()));
  return index ? std::optional(Device::cuda(*index)) : std::nullopt;
}

std::optional<Device> parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::optional<Device> device = parse_whole(text.substr(0, slash));
  if (!device || slash == std::string_view::npos) return device;
  const std::optional<int> share = parse_index(text.substr(slash + 1));
  return share ? std::optional(device->logical(*share)) : std::nullopt;
}

}  // namespace

std::string to_string(Device device) {
  std::string name = device.kind == DeviceKind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
  if (device.is_logical()) name += fmt::format("/{}", device.share);
  return device.meta ? "meta(" + name + ")" : name;
}

Device parse_device(std::string_view text) {
  if (const std::optional<Device> device = parse(text)) return *device;
  throw DeviceError(fmt::format(
      "unknown device '{}'; expected cpu, cuda or cuda:N (N = 0, 1, …), or a share of one, cuda:N/K", text));
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
