// The table of GPUs that plans know by name, and how a name that a person types is compared with it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bantam {

/// Figures of a data sheet.
struct KnownGpu {
  const char* name;     ///< as `--device` prints it: "rtx3060", "rtx3060-8gb", "rtx4070-laptop"
  const char* product;  ///< part of the driver's name for it, by which a device is known
  int compute_capability, multiprocessors;
  int nominal_gb;                  ///< as sold: "12 GB"
  std::uint64_t total_mib;         ///< as the driver reports it; 0: not noted, follows from nominal_gb (total_mib_of)
  double sheet_gigabytes_per_s;    ///< memory's bandwidth
  double sheet_float16_teraflops;  ///< dense matrix products with float32 sums
  double sheet_float32_teraflops;
};

/// All of them; the H200, on which rates were measured, is the first.
std::span<const KnownGpu> known_gpus();

/// The driver's memory: a little less than sold, the rest is its own.
std::uint64_t total_mib_of(const KnownGpu& gpu);

/// A name without case, spaces, hyphens and the words that do not tell cards apart ("NVIDIA GeForce RTX 4070 Laptop
/// GPU" is "rtx4070laptop").
std::string gpu_key(std::string_view name);

/// The card of this name, in any spelling; with its memory, too ("A100 80GB"), and without "RTX" or "GTX" ("3060").
/// nullptr: not in the table.
const KnownGpu* find_gpu(std::string_view name);

/// Why Bantam cannot run on a card of this name: its architecture is older than sm_75 ("V100"), or it is no NVIDIA GPU
/// ("RX 7900"); "" for all others.
std::string unsupported_gpu(std::string_view name);

}  // namespace bantam
