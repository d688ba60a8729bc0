// One function a finding.
#include "bantam/run/doctor/machine.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/counted.h"
#include "bantam/memory/device/device.h"
#include "bantam/memory/device/host_info.h"
#include "bantam/run/train/library_versions.h"

namespace bantam::run {
namespace {

namespace fs = std::filesystem;

/// The first line of a small file of the system; empty where there is none.
std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string memory_text(const DeviceInfo& info) {
  return fmt::format("{} free of {}", format_byte_size(info.free_bytes), format_byte_size(info.total_bytes));
}

/// Training a small network needs about so much.
constexpr std::uint64_t kLittleMemory = std::uint64_t{512} << 20;

Finding of_device(const DeviceInfo& info) {
  Finding finding{.what = to_string(info.device)};
  if (info.device.is_cpu())
    finding.text = fmt::format("{}, {}, {}", info.name, counted(info.multiprocessors, "processor"), memory_text(info));
  else
    finding.text = fmt::format("{}, compute capability {}.{}, {}", info.name, info.compute_capability / 10,
                               info.compute_capability % 10, memory_text(info));
  if (info.free_bytes < kLittleMemory) {
    finding.wrong = true;
    finding.advice = fmt::format("{}: {} of memory are free: end other programs", to_string(info.device),
                                 format_byte_size(info.free_bytes));
  }
  return finding;
}

Finding of_gpus() {
  Finding finding{.what = "gpu", .text = cuda_unavailable_reason()};
  std::error_code error;
  const bool has_driver = fs::exists("/proc/driver/nvidia/version", error);
  if (!built_with_cuda() && has_driver)
    finding.advice =
        "an NVIDIA driver is here, and this program was built without CUDA: built with it, it trains on the GPU";
  else if (built_with_cuda() && has_driver)
    finding.wrong = true;
  return finding;
}

/// CPU kernels choose among these at run time.
Finding of_instructions() {
  Finding finding{.what = "instructions"};
#if defined(__x86_64__)
  const bool avx512 = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
  finding.text = avx512 ? "AVX-512, which matrix products and convolutions use" : "AVX2";
#else
  finding.text = "those that the program was compiled for";
#endif
  return finding;
}

Finding of_processors() {
  const HostInfo host = read_host_info();
  const int usable = host.allowed_processors;
  const long installed = ::sysconf(_SC_NPROCESSORS_ONLN);
  Finding finding{.what = "processors", .text = fmt::format("{} of {} usable", usable, installed)};
  if (host.processors < usable)
    finding.text += fmt::format(", time of {:.3g} allowed by {}: {} thread{} by default", host.processor_quota,
                                host.quota_file, host.processors, host.processors == 1 ? "" : "s");
  double load = 0;
  if (::getloadavg(&load, 1) == 1) finding.text += fmt::format(", load of the last minute {:.1f}", load);
  if (load > 1.5 * usable)
    finding.advice = fmt::format(
        "other programs keep the processors busy (load {:.1f} on {}): train when they are done", load, usable);
  else if (usable < installed)
    finding.advice =
        fmt::format("this process may use {} of {} processors: taskset or the container limits it", usable, installed);
  return finding;
}

std::optional<Finding> of_clock() {
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (governor.empty()) return std::nullopt;
  Finding finding{.what = "clock", .text = "governor " + governor};
  if (governor == "powersave" && first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver") != "intel_pstate")
    finding.advice = "the processors run at their lowest clock: `cpupower frequency-set -g performance` raises it";
  return finding;
}

/// Run folders lie below the current one by default.
Finding of_disk() {
  constexpr std::uint64_t kLittleDisk = std::uint64_t{1} << 30;
  Finding finding{.what = "disk"};
  std::error_code error;
  const fs::space_info space = fs::space(".", error);
  const bool writable = ::access(".", W_OK) == 0;
  finding.text = error ? "unknown" : fmt::format("{} free in this folder", format_byte_size(space.available));
  if (!writable) finding.text += ", which cannot be written to";
  if (!writable) finding.advice = "run folders need a place: --run-dir names one that can be written to";
  if (writable && !error && space.available < kLittleDisk)
    finding.advice = "little room for checkpoints: --run-dir on another disk, or checkpoint.keep_last=1";
  finding.wrong = !finding.advice.empty();
  return finding;
}

std::vector<Finding> of_libraries() {
  std::vector<Finding> findings;
  for (const LibraryVersion& library : library_versions()) {
    const bool is_missing = library.version == "not installed" || library.version == "does not answer";
    Finding finding{.what = library.name, .text = library.version};
    if (is_missing && cuda_device_count() > 0) {
      finding.wrong = true;
      finding.advice = fmt::format("{}: {}", library.name, library.version);
    }
    findings.push_back(finding);
  }
  return findings;
}

}  // namespace

std::vector<Finding> examine_machine() {
  std::vector<Finding> findings;
  for (const DeviceInfo& info : list_devices()) findings.push_back(of_device(info));
  if (cuda_device_count() == 0) findings.push_back(of_gpus());
  findings.push_back(of_processors());
  findings.push_back(of_instructions());
  if (const auto clock = of_clock()) findings.push_back(*clock);
  findings.push_back(of_disk());
  for (const Finding& library : of_libraries()) findings.push_back(library);
  return findings;
}

}  // namespace bantam::run
