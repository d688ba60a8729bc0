// Asks NVML by process, else the card as a whole; for the CPU, /proc.
#include "bantam/memory/device/device.h"

#include <algorithm>
#include <map>
#include <mutex>

#include <unistd.h>

#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/device/host_info.h"

namespace bantam {

std::uint64_t total_bytes(std::span<const OverheadLine> lines) {
  std::uint64_t sum = 0;
  for (const OverheadLine& line : lines) sum += line.bytes;
  return sum;
}

std::string_view to_string(ProcessMemoryMethod method) {
  switch (method) {
    case ProcessMemoryMethod::driver:
      return "driver";
    case ProcessMemoryMethod::card:
      return "card";
    case ProcessMemoryMethod::resident_set:
      break;
  }
  return "resident set";
}

namespace {

struct BeforeContext {
  std::uint64_t others_bytes = 0;           ///< what others used of the card
  std::optional<std::uint64_t> own_figure;  ///< what NVML said of our number then: another process has it
};

/// Noted by the process' first meter of a card: a context, as CUDA makes it, is one for the process, and a later meter
/// could not tell its memory from others'. With a context already there at the first, the card's use is not others'
/// alone: all of it is then counted as ours.
BeforeContext before_context(int index) {
  static std::mutex mutex;
  static std::map<int, BeforeContext> noted;
  const std::lock_guard lock(mutex);
  const auto [place, fresh] = noted.try_emplace(index);
  if (fresh && !cuda_backend::has_context(index))
    place->second = {cuda_backend::card_used_bytes(index).value_or(0), cuda_backend::process_bytes(index, getpid())};
  return place->second;
}

}  // namespace

ProcessMeter::ProcessMeter(Device device) : device_(device.whole()) {
  if (!device_.is_cuda()) {
    (void)device_info(device_);  // throws where it does not exist
    return;
  }
  cuda_backend::require(device_);
  const BeforeContext before = before_context(device_.index);
  others_bytes_ = before.others_bytes;
  figure_before_context_ = before.own_figure;
}

bool is_own_figure(std::uint64_t figure_bytes, std::optional<std::uint64_t> before_context, std::uint64_t pool_bytes) {
  return !before_context && figure_bytes >= pool_bytes;
}

ProcessMemory ProcessMeter::read(std::uint64_t pool_bytes) const {
  if (device_.is_cpu()) {
    const HostProcess host = read_host_process();
    return {host.resident_bytes, ProcessMemoryMethod::resident_set, host.peak_resident_bytes, host.group_bytes};
  }
  const std::optional<std::uint64_t> bytes = cuda_backend::process_bytes(device_.index, getpid());
  if (bytes && is_own_figure(*bytes, figure_before_context_, pool_bytes))
    return {.bytes = *bytes, .method = ProcessMemoryMethod::driver};
  std::uint64_t used = 0;
  if (const auto card = cuda_backend::card_used_bytes(device_.index)) {
    used = *card;
  } else {
    const cuda_backend::DeviceFacts facts = cuda_backend::device_facts(device_.index);
    used = facts.total_bytes - facts.free_bytes;
  }
  return {.bytes = used - std::min(used, others_bytes_), .method = ProcessMemoryMethod::card};
}

std::optional<std::uint64_t> driver_process_bytes(Device device, int pid) {
  cuda_backend::require(device);
  return cuda_backend::process_bytes(device.index, pid);
}

std::optional<std::uint64_t> card_used_bytes(Device device) {
  cuda_backend::require(device);
  return cuda_backend::card_used_bytes(device.index);
}

}  // namespace bantam
