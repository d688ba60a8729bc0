// Profiles from the table of known GPUs, the rule for all others, and the reading of profile files.
#include "bantam/memory/device/device_profile.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include <fmt/core.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/config/config.h"
#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/device/known_gpus.h"
#include "bantam/memory/device/reference_gpu.h"

namespace bantam {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr double kMiBs = 1048576.0;

/// Measured on an H200 (132 multiprocessors) with driver 580 and CUDA 13.0, as the driver counts for the process.
/// Kernels: what resnet50, resnet18 and mobilenet_v1 used beyond context and handles, 9 MiB each, in pages of 2 MiB
/// (separable_cnn uses 5, and no cuDNN).
constexpr std::uint64_t kContextMiB = 518, kCublasLtMiB = 2, kCudnnMiB = 10, kKernelsMiB = 10;
constexpr int kMeasuredMultiprocessors = static_cast<int>(kReferenceMultiprocessors);

/// Shares of the data sheet that the H200 reached.
constexpr double kCopyShare = 4.0e12 / 4.8e12, kFloat16Share = 7.9e14 / 9.89e14, kFloat32Share = 5.0e13 / 6.7e13;

/// A context holds local memory and stacks for every thread that can be resident, so it grows with the multiprocessors.
std::vector<OverheadLine> overhead_of(int multiprocessors) {
  const auto context = static_cast<std::uint64_t>(kContextMiB * kMiBs * multiprocessors / kMeasuredMultiprocessors);
  return {{"CUDA context", (context + 2 * kMiB - 1) / (2 * kMiB) * 2 * kMiB},
          {"cuBLASLt", kCublasLtMiB * kMiB},
          {"cuDNN", kCudnnMiB * kMiB},
          {"kernels", kKernelsMiB * kMiB}};
}

/// Figures of a data sheet in gigabytes and teraflops a second.
struct Sheet {
  double gigabytes_per_s = 0, float16_teraflops = 0, float32_teraflops = 0;
};

DeviceProfile from_sheet(std::string name, int compute_capability, int multiprocessors, std::uint64_t total_bytes,
                         const Sheet& sheet) {
  return {.name = std::move(name),
          .compute_capability = compute_capability,
          .multiprocessors = multiprocessors,
          .total_bytes = total_bytes,
          .overhead = overhead_of(multiprocessors),
          .copy_bytes_per_s = sheet.gigabytes_per_s * 1e9 * kCopyShare,
          .float32_flops_per_s = sheet.float32_teraflops * 1e12 * kFloat32Share,
          .float16_flops_per_s = sheet.float16_teraflops * 1e12 * kFloat16Share};
}

DeviceProfile to_profile(const KnownGpu& gpu) {
  DeviceProfile profile =
      from_sheet(gpu.name, gpu.compute_capability, gpu.multiprocessors, total_mib_of(gpu) * kMiB,
                 {gpu.sheet_gigabytes_per_s, gpu.sheet_float16_teraflops, gpu.sheet_float32_teraflops});
  profile.measured = std::string_view(gpu.name) == "h200";
  return profile;
}

const KnownGpu& reference_gpu() { return known_gpus().front(); }

/// A processor of a few cores: one socket's memory, and what oneDNN and our matrix products reach on it.
DeviceProfile cpu_profile() {
  return {.name = "cpu", .copy_bytes_per_s = 4e10, .float32_flops_per_s = 3e11, .float16_flops_per_s = 3e11};
}

/// Whether `product` stands in `name` as a word of its own: an "L40S" is no "L4".
bool names_product(std::string_view name, std::string_view product) {
  const std::size_t at = name.find(product);
  if (at == std::string_view::npos) return false;
  const std::size_t end = at + product.size();
  const auto letter = [&](std::size_t i) { return std::isalnum(static_cast<unsigned char>(name[i])) != 0; };
  return (at == 0 || !letter(at - 1)) && (end == name.size() || !letter(end));
}

/// The table's card that the driver's name is of: of several memories of one name, the nearest.
const KnownGpu* gpu_of_driver(const cuda_backend::DeviceFacts& facts) {
  const KnownGpu* found = nullptr;
  const auto distance = [&](const KnownGpu& gpu) {
    const auto own = static_cast<double>(total_mib_of(gpu)), card = static_cast<double>(facts.total_bytes) / kMiBs;
    return std::abs(own - card);
  };
  for (const KnownGpu& gpu : known_gpus()) {
    if (!names_product(facts.name, gpu.product)) continue;
    const std::size_t words = std::string_view(gpu.product).size(),
                      most = found == nullptr ? 0 : std::string_view(found->product).size();
    if (words > most || (words == most && distance(gpu) < distance(*found))) found = &gpu;
  }
  return found;
}

}  // namespace

std::string DeviceProfile::title() const {
  return fmt::format("{} ({})", name, !stand_in.empty() ? "stand-in" : measured ? "measured" : "estimate");
}

std::optional<DeviceProfile> find_device_profile(std::string_view name) {
  const KnownGpu* gpu = find_gpu(name);
  return gpu ? std::optional(to_profile(*gpu)) : std::nullopt;
}

std::vector<std::string> device_profile_names() {
  std::vector<std::string> names;
  for (const KnownGpu& gpu : known_gpus()) names.emplace_back(gpu.name);
  return names;
}

DeviceProfile estimate_profile(std::string name, int compute_capability, int multiprocessors,
                               std::uint64_t total_bytes) {
  DeviceProfile profile = to_profile(reference_gpu());
  const double share = static_cast<double>(multiprocessors) / kMeasuredMultiprocessors;
  profile.name = std::move(name);
  profile.compute_capability = compute_capability;
  profile.multiprocessors = multiprocessors;
  profile.total_bytes = total_bytes;
  profile.overhead = overhead_of(multiprocessors);
  profile.copy_bytes_per_s *= share;
  profile.float32_flops_per_s *= share;
  profile.float16_flops_per_s *= share;
  profile.measured = false;
  return profile;
}

DeviceProfile stand_in_profile(std::uint64_t total_bytes) {
  // The card of an ordinary computer that has this much, by which rates and overhead are estimated.
  const KnownGpu* nearest = nullptr;
  const auto distance = [&](const KnownGpu& gpu) {
    const double own = static_cast<double>(gpu.nominal_gb) * 1024 * kMiBs;
    return std::abs(std::log(own / static_cast<double>(std::max<std::uint64_t>(total_bytes, 1))));
  };
  for (const char* usual : {"gtx1650", "rtx2060", "rtx3060-ti", "rtx3060", "t4", "rtx3090", "l40s", "a100", "h200"}) {
    const KnownGpu* gpu = find_gpu(usual);
    if (nearest == nullptr || distance(*gpu) < distance(*nearest)) nearest = gpu;
  }
  DeviceProfile profile = to_profile(*nearest);
  profile.name = fmt::format("a GPU of {}", format_byte_size(total_bytes));
  profile.stand_in = nearest->name;
  profile.total_bytes = total_bytes;
  profile.measured = false;
  return profile;
}

DeviceProfile profile_of(Device device) {
  if (device.kind == DeviceKind::cpu) return cpu_profile();
  if (device.index < 0 || device.index >= cuda_device_count()) {
    DeviceProfile profile = to_profile(reference_gpu());
    profile.stand_in = profile.name;
    profile.measured = false;
    return profile;
  }
  const cuda_backend::DeviceFacts facts = cuda_backend::device_identity(device.index);
  if (const KnownGpu* gpu = gpu_of_driver(facts)) {
    DeviceProfile profile = to_profile(*gpu);
    profile.total_bytes = facts.total_bytes;  // this card's own
    return profile;
  }
  return estimate_profile(facts.name, facts.compute_capability, facts.multiprocessors, facts.total_bytes);
}

DeviceProfile load_device_profile(const std::filesystem::path& path) {
  const ConfigDocument document = ConfigDocument::load(path);
  ConfigMap map = document.map();
  const NumberRange positive{.min = 0, .min_open = true};
  const IntegerRange multiprocessors{.min = 1, .max = 4096}, capability{.min = 50, .max = 999};
  DeviceProfile profile;
  const bool by_hand = map.has("memory") || map.has("bandwidth_gb_per_s") || map.has("float16_tflops");
  if (by_hand) {  // from a data sheet
    const std::uint64_t memory = map.byte_size("memory");
    const Sheet sheet{.gigabytes_per_s = map.number("bandwidth_gb_per_s", positive),
                      .float16_teraflops = map.number("float16_tflops", positive),
                      .float32_teraflops = map.number("float32_tflops", positive)};
    profile = from_sheet(map.text("name", path.stem().string()),
                         static_cast<int>(map.integer("compute_capability", capability, 75)),
                         static_cast<int>(map.integer("multiprocessors", multiprocessors)), memory, sheet);
    map.finish();
    return profile;
  }
  profile.name = map.text("name");
  profile.compute_capability = static_cast<int>(map.integer("compute_capability", capability));
  profile.multiprocessors = static_cast<int>(map.integer("multiprocessors", multiprocessors));
  profile.total_bytes = map.byte_size("total_bytes");
  for (const auto& [name, bytes] : map.node("overhead").entries())
    profile.overhead.push_back({name, bytes.as_byte_size()});
  profile.copy_bytes_per_s = map.number("copy_bytes_per_s", positive);
  profile.float32_flops_per_s = map.number("float32_flops_per_s", positive);
  profile.float16_flops_per_s = map.number("float16_flops_per_s", positive);
  profile.measured = map.boolean("measured", true);
  map.finish();
  return profile;
}

}  // namespace bantam
