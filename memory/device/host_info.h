// Internal: what the host is, and what this process may use and uses of it.
#pragma once

#include <cstdint>
#include <string>

namespace bantam {

struct HostInfo {
  std::string processor;          ///< "AMD EPYC …", "CPU" where the system does not say
  int processors = 1;             ///< threads that can run at once: `allowed_processors`, at most the quota, rounded up
  int allowed_processors = 1;     ///< logical processors this process may run on (sched_getaffinity)
  double processor_quota = 0;     ///< processors whose time the control groups allow; 0: no such limit
  std::string quota_file;         ///< the file that says so
  std::uint64_t total_bytes = 0;  ///< the machine's memory, or the control group's limit where that is smaller
  std::uint64_t free_bytes = 0;   ///< what both still allow, reclaimable page cache included; see `bound`
  std::uint64_t swap_bytes = 0;   ///< swap space still available besides
  std::string bound;              ///< the file whose number bounds free_bytes; empty where the system does not say
};

/// Reads /proc and /sys below `root` (tests pass a folder of their own). Never throws for absent files.
HostInfo read_host_info(const std::string& root = "");

/// The host memory that this process uses. Sizes in bytes; 0 where the system does not say.
struct HostProcess {
  std::uint64_t resident_bytes = 0;       ///< pages in memory, code and libraries included
  std::uint64_t peak_resident_bytes = 0;  ///< most of them since the process began
  std::uint64_t group_bytes = 0;          ///< of its control group, other processes and page cache included
};

/// Reads /proc and /sys below `root`. Never throws for absent files.
HostProcess read_host_process(const std::string& root = "");

}  // namespace bantam
