// The examination of this machine: what it is, as far as training on it goes, and what would make training faster.
#pragma once

#include <string>
#include <vector>

namespace bantam::run {

/// One thing that was looked at.
struct Finding {
  std::string what;      ///< "memory", in a word or two
  std::string text;      ///< how it is
  bool wrong = false;    ///< so that training does not work, or not as it should
  std::string advice{};  ///< what would make it better; empty: nothing needs to be
};

/// Devices, driver, libraries, memory, processors and the current folder's disk. Reads a few files of the system and
/// asks the driver; allocates nothing on a GPU.
std::vector<Finding> examine_machine();

}  // namespace bantam::run
