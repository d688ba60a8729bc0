// Which device a rank trains on: the GPUs of this host, assigned to its ranks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bantam/memory/device/device.h"
#include "bantam/run/ranks/run_ranks.h"

namespace bantam::run {

/// `--gpus`: "4" is the first four, "0,0,2" GPUs by their numbers, where two ranks may share one, and "0/0,0/1" shares
/// that memory.logical makes of one. Throws ConfigError.
std::vector<Device> parse_gpus(std::string_view text);

/// The inverse of parse_gpus, for commands that people type.
std::string gpus_text(const std::vector<Device>& devices);

/// Names the devices of a run for the user: "cuda:0", "4 ranks on GPUs", "4 ranks on cpu".
std::string devices_text(Device device, std::size_t ranks);

/// Throws ConfigError naming `--gpus` where one of them is not among `count` GPUs; `reason`: why there is none.
void require_gpus(const std::vector<Device>& devices, int count, const std::string& reason);

/// The device of this rank, where the configuration says `device`: on GPUs each rank has one of its own, by its number
/// on this host, or by the list RunRanks::devices. `gpus`: of this host, as this process sees them. Throws ConfigError
/// where they are too few.
Device device_of_rank(Device device, const RunRanks& ranks, int gpus);

/// Throws ConfigError on all ranks where two of them have one GPU (`identity` of each: gpu_identity, or empty) that did
/// not ask for it (RunRanks::devices). All ranks call it.
void require_own_gpus(const RunRanks& ranks, const std::string& identity);

}  // namespace bantam::run
