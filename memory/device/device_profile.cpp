// The table of targets, the rule for all others, and the reading of measured profiles.
#include "bantam/memory/device/device_profile.h"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/core.h>

#include "bantam/base/config/config.h"
#include "bantam/memory/device/cuda_backend.h"
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

/// Data sheets' figures: memory's bandwidth, dense matrix products of float16 with float32 sums, float32.
struct Target {
  const char* name;
  const char* product;  ///< part of the driver's name for it, by which a device is known
  int compute_capability, multiprocessors;
  std::uint64_t total_mib;
  double sheet_bytes_per_s, sheet_float16, sheet_float32;
};

// "A100-SXM4-40GB" stands before "A100", which is part of it.
constexpr std::array<Target, 10> kTargets = {
    {{"h200", "H200", 90, 132, 143156, 4.8e12, 9.89e14, 6.7e13},
     {"h100", "H100", 90, 132, 81079, 3.35e12, 9.89e14, 6.7e13},
     {"b200", "B200", 100, 148, 182632, 8.0e12, 2.25e15, 7.5e13},
     {"a100-40gb", "A100-SXM4-40GB", 80, 108, 40441, 1.555e12, 3.12e14, 1.95e13},
     {"a100", "A100", 80, 108, 81153, 2.039e12, 3.12e14, 1.95e13},
     {"l40s", "L40S", 89, 142, 45457, 8.64e11, 3.62e14, 9.16e13},
     {"l4", "L4", 89, 58, 22563, 3.0e11, 1.21e14, 3.03e13},
     {"rtx4090", "RTX 4090", 89, 128, 24082, 1.008e12, 1.65e14, 8.26e13},
     {"rtx3090", "RTX 3090", 86, 82, 24126, 9.36e11, 7.1e13, 3.56e13},
     {"t4", "T4", 75, 40, 14910, 3.2e11, 6.5e13, 8.1e12}}};

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

DeviceProfile to_profile(const Target& target) {
  return {.name = target.name,
          .compute_capability = target.compute_capability,
          .multiprocessors = target.multiprocessors,
          .total_bytes = target.total_mib * kMiB,
          .overhead = overhead_of(target.multiprocessors),
          .copy_bytes_per_s = target.sheet_bytes_per_s * kCopyShare,
          .float32_flops_per_s = target.sheet_float32 * kFloat32Share,
          .float16_flops_per_s = target.sheet_float16 * kFloat16Share,
          .measured = std::string_view(target.name) == "h200"};
}

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

}  // namespace

std::string DeviceProfile::title() const { return fmt::format("{} ({})", name, measured ? "measured" : "estimate"); }

std::optional<DeviceProfile> find_device_profile(std::string_view name) {
  for (const Target& target : kTargets)
    if (name == target.name) return to_profile(target);
  return std::nullopt;
}

std::vector<std::string> device_profile_names() {
  std::vector<std::string> names;
  for (const Target& target : kTargets) names.emplace_back(target.name);
  return names;
}

DeviceProfile estimate_profile(std::string name, int compute_capability, int multiprocessors,
                               std::uint64_t total_bytes) {
  DeviceProfile profile = to_profile(kTargets.front());
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

DeviceProfile profile_of(Device device) {
  if (device.kind == DeviceKind::cpu) return cpu_profile();
  if (device.index < 0 || device.index >= cuda_device_count()) return to_profile(kTargets.front());
  const cuda_backend::DeviceFacts facts = cuda_backend::device_identity(device.index);
  for (const Target& target : kTargets)
    if (names_product(facts.name, target.product)) {
      DeviceProfile profile = to_profile(target);
      profile.total_bytes = facts.total_bytes;  // this card's own
      return profile;
    }
  return estimate_profile(facts.name, facts.compute_capability, facts.multiprocessors, facts.total_bytes);
}

DeviceProfile load_device_profile(const std::filesystem::path& path) {
  const ConfigDocument document = ConfigDocument::load(path);
  ConfigMap map = document.map();
  const NumberRange positive{.min = 0, .min_open = true};
  DeviceProfile profile;
  profile.name = map.text("name");
  profile.compute_capability = static_cast<int>(map.integer("compute_capability", {.min = 50, .max = 999}));
  profile.multiprocessors = static_cast<int>(map.integer("multiprocessors", {.min = 1, .max = 4096}));
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
