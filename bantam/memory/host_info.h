// Internal: what the host is: its processor's name, the processors and the memory that this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace bantam {

struct HostInfo {
  std::string processor;          ///< "AMD EPYC …", "CPU" where the system does not say
  int processors = 1;             ///< logical processors this process may run on
  std::uint64_t total_bytes = 0;  ///< the machine's memory, or the control group's limit where that is smaller
  std::uint64_t free_bytes = 0;   ///< what can still be taken under both; 0 where the system does not say
};

/// Reads /proc and /sys below `root` (tests give a folder of their own). Never throws for absent files.
HostInfo read_host_info(const std::string& root = "");

}  // namespace bantam
