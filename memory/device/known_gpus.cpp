// Figures of data sheets, and spellings.
#include "bantam/memory/device/known_gpus.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include <fmt/format.h>

namespace bantam {
namespace {

// clang-format off
// Name, the driver's name, compute capability, multiprocessors, GB as sold, MiB of the driver, GB/s, TFLOP/s of
// float16 matrix products with float32 sums, of float32. GeForce cards of Turing to Blackwell sum into float32 at half
// the rate of float16 sums. Laptops' rates are those of a middle power limit. The GTX 16 cards have no tensor cores.
constexpr KnownGpu kGpus[] = {
    {"h200", "H200", 90, 132, 141, 143156, 4800, 989, 67},
    {"h100", "H100", 90, 132, 80, 81079, 3350, 989, 67},
    {"h100-pcie", "H100 PCIe", 90, 114, 80, 81079, 2000, 756, 51},
    {"h100-nvl", "H100 NVL", 90, 132, 94, 95830, 3900, 835, 60},
    {"b200", "B200", 100, 148, 180, 182632, 8000, 2250, 75},
    {"a100-40gb", "A100", 80, 108, 40, 40441, 1555, 312, 19.5},
    {"a100", "A100", 80, 108, 80, 81153, 2039, 312, 19.5},
    {"a30", "A30", 80, 56, 24, 24060, 933, 165, 10.3},
    {"a2", "A2", 86, 10, 16, 14910, 200, 18, 4.5},
    {"a10", "A10", 86, 72, 24, 22563, 600, 125, 31.2},
    {"a10g", "A10G", 86, 80, 24, 22563, 600, 70, 31.5},
    {"a40", "A40", 86, 84, 48, 45457, 696, 149.7, 37.4},
    {"l40s", "L40S", 89, 142, 48, 45457, 864, 362, 91.6},
    {"l40", "L40", 89, 142, 48, 45457, 864, 181, 90.5},
    {"l4", "L4", 89, 58, 24, 22563, 300, 121, 30.3},
    {"t4", "T4", 75, 40, 16, 14910, 320, 65, 8.1},

    {"rtx5090", "RTX 5090", 120, 170, 32, 0, 1792, 209.5, 104.8},
    {"rtx5080", "RTX 5080", 120, 84, 16, 0, 960, 112.6, 56.3},
    {"rtx5070-ti", "RTX 5070 Ti", 120, 70, 16, 0, 896, 87.9, 43.9},
    {"rtx5070", "RTX 5070", 120, 48, 12, 0, 672, 61.7, 30.9},
    {"rtx5060-ti", "RTX 5060 Ti", 120, 36, 16, 0, 448, 47.4, 23.7},
    {"rtx5060-ti-8gb", "RTX 5060 Ti", 120, 36, 8, 0, 448, 47.4, 23.7},
    {"rtx5060", "RTX 5060", 120, 30, 8, 0, 448, 38.4, 19.2},
    {"rtx5050", "RTX 5050", 120, 20, 8, 0, 320, 26.3, 13.2},

    {"rtx4090", "RTX 4090", 89, 128, 24, 24082, 1008, 165, 82.6},
    {"rtx4090-d", "RTX 4090 D", 89, 114, 24, 24082, 1008, 147, 73.5},
    {"rtx4080-super", "RTX 4080 SUPER", 89, 80, 16, 0, 736, 104.4, 52.2},
    {"rtx4080", "RTX 4080", 89, 76, 16, 0, 717, 97.5, 48.7},
    {"rtx4070-ti-super", "RTX 4070 Ti SUPER", 89, 66, 16, 0, 672, 88.2, 44.1},
    {"rtx4070-ti", "RTX 4070 Ti", 89, 60, 12, 0, 504, 80.2, 40.1},
    {"rtx4070-super", "RTX 4070 SUPER", 89, 56, 12, 0, 504, 71, 35.5},
    {"rtx4070", "RTX 4070", 89, 46, 12, 0, 504, 58.3, 29.1},
    {"rtx4060-ti", "RTX 4060 Ti", 89, 34, 8, 0, 288, 44.1, 22.1},
    {"rtx4060-ti-16gb", "RTX 4060 Ti", 89, 34, 16, 0, 288, 44.1, 22.1},
    {"rtx4060", "RTX 4060", 89, 24, 8, 0, 272, 30.2, 15.1},

    {"rtx3090-ti", "RTX 3090 Ti", 86, 84, 24, 24126, 1008, 80, 40},
    {"rtx3090", "RTX 3090", 86, 82, 24, 24126, 936, 71, 35.6},
    {"rtx3080-ti", "RTX 3080 Ti", 86, 80, 12, 0, 912, 68.2, 34.1},
    {"rtx3080", "RTX 3080", 86, 68, 10, 0, 760, 59.5, 29.8},
    {"rtx3080-12gb", "RTX 3080", 86, 70, 12, 0, 912, 61.3, 30.6},
    {"rtx3070-ti", "RTX 3070 Ti", 86, 48, 8, 0, 608, 43.5, 21.7},
    {"rtx3070", "RTX 3070", 86, 46, 8, 0, 448, 40.6, 20.3},
    {"rtx3060-ti", "RTX 3060 Ti", 86, 38, 8, 0, 448, 32.4, 16.2},
    {"rtx3060", "RTX 3060", 86, 28, 12, 0, 360, 25.5, 12.7},
    {"rtx3060-8gb", "RTX 3060", 86, 28, 8, 0, 240, 25.5, 12.7},
    {"rtx3050", "RTX 3050", 86, 20, 8, 0, 224, 18.2, 9.1},
    {"rtx3050-6gb", "RTX 3050", 86, 18, 6, 0, 168, 13.5, 6.8},

    {"titan-rtx", "TITAN RTX", 75, 72, 24, 0, 672, 130.5, 16.3},
    {"rtx2080-ti", "RTX 2080 Ti", 75, 68, 11, 0, 616, 53.8, 13.4},
    {"rtx2080-super", "RTX 2080 SUPER", 75, 48, 8, 0, 496, 44.6, 11.2},
    {"rtx2080", "RTX 2080", 75, 46, 8, 0, 448, 40.3, 10.1},
    {"rtx2070-super", "RTX 2070 SUPER", 75, 40, 8, 0, 448, 36.3, 9.1},
    {"rtx2070", "RTX 2070", 75, 36, 8, 0, 448, 29.9, 7.5},
    {"rtx2060-super", "RTX 2060 SUPER", 75, 34, 8, 0, 448, 28.7, 7.2},
    {"rtx2060", "RTX 2060", 75, 30, 6, 0, 336, 25.8, 6.5},
    {"rtx2060-12gb", "RTX 2060", 75, 34, 12, 0, 336, 28.7, 7.2},
    {"gtx1660-ti", "GTX 1660 Ti", 75, 24, 6, 0, 288, 10.9, 5.4},
    {"gtx1660-super", "GTX 1660 SUPER", 75, 22, 6, 0, 336, 10.1, 5.0},
    {"gtx1660", "GTX 1660", 75, 22, 6, 0, 192, 10.1, 5.0},
    {"gtx1650-super", "GTX 1650 SUPER", 75, 20, 4, 0, 192, 8.8, 4.4},
    {"gtx1650", "GTX 1650", 75, 14, 4, 0, 128, 6.0, 3.0},

    {"rtx5090-laptop", "RTX 5090 Laptop GPU", 120, 82, 24, 0, 896, 84, 42},
    {"rtx5080-laptop", "RTX 5080 Laptop GPU", 120, 60, 16, 0, 896, 66, 33},
    {"rtx5070-ti-laptop", "RTX 5070 Ti Laptop GPU", 120, 46, 12, 0, 672, 48, 24},
    {"rtx5070-laptop", "RTX 5070 Laptop GPU", 120, 36, 8, 0, 384, 40, 20},
    {"rtx5060-laptop", "RTX 5060 Laptop GPU", 120, 26, 8, 0, 384, 28, 14},
    {"rtx5050-laptop", "RTX 5050 Laptop GPU", 120, 20, 8, 0, 384, 24, 12},
    {"rtx4090-laptop", "RTX 4090 Laptop GPU", 89, 76, 16, 0, 576, 66, 33},
    {"rtx4080-laptop", "RTX 4080 Laptop GPU", 89, 58, 12, 0, 432, 49.5, 24.7},
    {"rtx4070-laptop", "RTX 4070 Laptop GPU", 89, 36, 8, 0, 256, 31.2, 15.6},
    {"rtx4060-laptop", "RTX 4060 Laptop GPU", 89, 24, 8, 0, 256, 23.2, 11.6},
    {"rtx4050-laptop", "RTX 4050 Laptop GPU", 89, 20, 6, 0, 192, 18, 9},
    {"rtx3080-ti-laptop", "RTX 3080 Ti Laptop GPU", 86, 58, 16, 0, 512, 37.8, 18.9},
    {"rtx3080-laptop", "RTX 3080 Laptop GPU", 86, 48, 8, 0, 448, 38, 19},
    {"rtx3080-laptop-16gb", "RTX 3080 Laptop GPU", 86, 48, 16, 0, 448, 38, 19},
    {"rtx3070-ti-laptop", "RTX 3070 Ti Laptop GPU", 86, 46, 8, 0, 448, 33.2, 16.6},
    {"rtx3070-laptop", "RTX 3070 Laptop GPU", 86, 40, 8, 0, 448, 31.9, 16},
    {"rtx3060-laptop", "RTX 3060 Laptop GPU", 86, 30, 6, 0, 336, 21.9, 10.9},
    {"rtx3050-ti-laptop", "RTX 3050 Ti Laptop GPU", 86, 20, 4, 0, 192, 10.6, 5.3},
    {"rtx3050-laptop", "RTX 3050 Laptop GPU", 86, 16, 4, 0, 192, 10, 5},
    {"rtx3050-laptop-6gb", "RTX 3050 6GB Laptop GPU", 86, 20, 6, 0, 168, 12, 6},
    {"rtx2080-super-laptop", "RTX 2080 Super with Max-Q Design", 75, 48, 8, 0, 448, 33, 8.3},
    {"rtx2080-laptop", "RTX 2080 with Max-Q Design", 75, 46, 8, 0, 384, 28, 7},
    {"rtx2070-super-laptop", "RTX 2070 Super with Max-Q Design", 75, 40, 8, 0, 448, 26, 6.5},
    {"rtx2070-laptop", "RTX 2070 with Max-Q Design", 75, 36, 8, 0, 384, 22, 5.5},
    {"rtx2060-laptop", "RTX 2060 with Max-Q Design", 75, 30, 6, 0, 336, 18, 4.6},
    {"gtx1660-ti-laptop", "GTX 1660 Ti with Max-Q Design", 75, 24, 6, 0, 288, 9.8, 4.9},
    {"gtx1650-laptop", "GTX 1650 with Max-Q Design", 75, 16, 4, 0, 128, 5.6, 2.8},

    {"rtx6000-ada", "RTX 6000 Ada Generation", 89, 142, 48, 0, 960, 364, 91.1},
    {"rtx4000-ada", "RTX 4000 Ada Generation", 89, 48, 20, 0, 360, 106, 26.7},
    {"rtx-a6000", "RTX A6000", 86, 84, 48, 0, 768, 154.8, 38.7},
    {"rtx-a5000", "RTX A5000", 86, 64, 24, 0, 768, 111, 27.8},
    {"rtx-a4000", "RTX A4000", 86, 48, 16, 0, 448, 76.7, 19.2},
    {"rtx-a2000", "RTX A2000 12GB", 86, 26, 12, 0, 288, 31.9, 8},
    {"rtx-a2000-6gb", "RTX A2000", 86, 26, 6, 0, 288, 31.9, 8},
    {"quadro-rtx8000", "Quadro RTX 8000", 75, 72, 48, 0, 672, 130.5, 16.3},
    {"quadro-rtx6000", "Quadro RTX 6000", 75, 72, 24, 0, 672, 130.5, 16.3},
    {"quadro-rtx5000", "Quadro RTX 5000", 75, 48, 16, 0, 448, 89.2, 11.2},
};

/// Cards before sm_75 by their key, where * stands for any end, and their compute capability.
struct Older { const char* key; const char* architecture; const char* capability; };
constexpr Older kOlder[] = {
    {"v100", "Volta", "7.0"}, {"titanv*", "Volta", "7.0"}, {"gv100", "Volta", "7.0"}, {"quadrogv*", "Volta", "7.0"},
    {"p100", "Pascal", "6.0"}, {"gp100", "Pascal", "6.0"}, {"p40", "Pascal", "6.1"}, {"p4", "Pascal", "6.1"},
    {"p6", "Pascal", "6.1"}, {"quadrop*", "Pascal", "6.1"}, {"titanx*", "Pascal or Maxwell", "6.1 or 5.2"},
    {"gtx10*", "Pascal", "6.1"}, {"gt10*", "Pascal", "6.1"}, {"mx1*", "Pascal", "6.1"}, {"mx2*", "Pascal", "6.1"},
    {"mx3*", "Pascal", "6.1"}, {"m60", "Maxwell", "5.2"}, {"m40", "Maxwell", "5.2"}, {"m4", "Maxwell", "5.2"},
    {"m10", "Maxwell", "5.0"}, {"quadrom*", "Maxwell", "5.2"}, {"gtx9*", "Maxwell", "5.2"},
    {"gtx75*", "Maxwell", "5.0"}, {"k80", "Kepler", "3.7"}, {"k40", "Kepler", "3.5"}, {"k20", "Kepler", "3.5"},
    {"k10", "Kepler", "3.0"}, {"quadrok*", "Kepler", "3.0"}, {"gtx7*", "Kepler", "3.5"}, {"gtx6*", "Kepler", "3.0"},
    {"jetsonnano", "Maxwell", "5.3"}, {"jetsontx2", "Pascal", "6.2"}, {"jetsonxavier*", "Volta", "7.2"},
};

/// Other makers' accelerators.
constexpr const char* kOtherMakers[] = {"amd*", "radeon*", "rx4*", "rx5*", "rx6*", "rx7*", "rx9*", "mi50", "mi60",
                                        "mi100", "mi2*", "mi3*", "intel*", "arc*", "apple*", "m1*", "m2*", "m3*",
                                        "mps", "tpu*", "gaudi*", "rocm*", "xpu", "npu"};
// clang-format on

constexpr const char* kNoise[] = {"nvidia", "geforce", "tesla", "generation", "withmaxqdesign",
                                  "hbm3e",  "hbm3",    "hbm2e", "hbm2"};

void erase_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}

void replace_end(std::string& text, std::string_view end, std::string_view with) {
  if (text.ends_with(end)) text.replace(text.size() - end.size(), end.size(), with);
}

/// A key that also says the memory: "rtx306012gb".
std::string key_with_memory(const std::string& key, int gb) {
  const std::string memory = fmt::format("{}gb", gb);
  return key.ends_with(memory) ? key : key + memory;
}

/// "rtx30608gb" of the name "rtx3060-8gb" says its memory; others may.
const KnownGpu* find_key(std::string_view key) {
  for (const KnownGpu& gpu : kGpus)
    if (gpu_key(gpu.name) == key) return &gpu;
  for (const KnownGpu& gpu : kGpus)
    if (key_with_memory(gpu_key(gpu.name), gpu.nominal_gb) == key) return &gpu;
  return nullptr;
}

}  // namespace

std::span<const KnownGpu> known_gpus() { return kGpus; }

std::uint64_t total_mib_of(const KnownGpu& gpu) {
  if (gpu.total_mib > 0) return gpu.total_mib;
  const std::uint64_t sold = static_cast<std::uint64_t>(gpu.nominal_gb) * 1024;
  return sold - 130 - sold * 3 / 200;  // 24,082 of 24,576 MiB on an RTX 4090; within 60 MiB on cards of 6 to 12 GB
}

std::string gpu_key(std::string_view name) {
  std::string key;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool laptop = key.find("maxq") != std::string::npos || key.find("laptop") != std::string::npos ||
                      key.find("mobile") != std::string::npos || key.find("notebook") != std::string::npos;
  for (const char* noise : kNoise) erase_all(key, noise);
  for (const char* word : {"maxq", "laptop", "mobile", "notebook", "graphics", "card"}) erase_all(key, word);
  replace_end(key, "gpu", "");
  replace_end(key, "gib", "gb");
  // "rtx3050laptop6gb": the memory is the last.
  if (laptop) {
    std::size_t at = key.size();
    if (key.ends_with("gb")) {
      at = key.size() - 2;
      // Cards of consumers have four digits, and what follows those is the memory.
      const std::size_t digits = key.find_first_of("0123456789");
      while (at > digits + 4 && std::isdigit(static_cast<unsigned char>(key[at - 1])) != 0) --at;
    }
    key.insert(at, "laptop");
  }
  return key;
}

const KnownGpu* find_gpu(std::string_view name) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const std::string key = gpu_key(name);
  std::vector<std::string> spellings = {key};
  std::string plain = key;
  for (const char* form : {"sxm2", "sxm4", "sxm5", "sxm", "pcie", "nvl"}) erase_all(plain, form);
  spellings.push_back(plain);
  if (key.size() > 2 && key.ends_with("s") && is_digit(key[key.size() - 2]))
    spellings.push_back(key.substr(0, key.size() - 1) + "super");  // "2070s"
  for (const std::string& spelling : spellings) {
    if (spelling.empty()) continue;
    if (const KnownGpu* gpu = find_key(spelling)) return gpu;
    const bool slip = spelling.starts_with("gtx");  // "GTX 3060"
    if (!slip && !is_digit(spelling.front())) continue;
    for (const char* series : {"rtx", "gtx"})
      if (const KnownGpu* gpu = find_key(series + spelling.substr(slip ? 3 : 0))) return gpu;
  }
  return nullptr;
}

std::string unsupported_gpu(std::string_view name) {
  std::string key = gpu_key(name);
  if (key.starts_with("10") && key.size() >= 4) key.insert(0, "gtx");
  const auto names_it = [&](std::string_view pattern) {
    if (pattern.ends_with("*")) return key.starts_with(pattern.substr(0, pattern.size() - 1));
    if (!key.starts_with(pattern)) return false;
    const std::string_view rest = std::string_view(key).substr(pattern.size());  // "pcie16gb", "32gb"; not "0" of "p40"
    return rest.empty() || rest.ends_with("gb") || std::isalpha(static_cast<unsigned char>(rest.front())) != 0;
  };
  for (const Older& older : kOlder)
    if (names_it(older.key))
      return fmt::format("is of {} (compute capability {}); Bantam needs 7.5 or later: a T4, GTX 16, RTX 20 or newer",
                         older.architecture, older.capability);
  if (std::ranges::any_of(kOtherMakers, names_it))
    return "is no NVIDIA GPU; Bantam trains on NVIDIA GPUs (CUDA) and on the CPU";
  return "";
}

}  // namespace bantam
