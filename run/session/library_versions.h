// Versions of this program and of the libraries of its kernels.
#pragma once

#include <string>
#include <vector>

namespace bantam::run {

struct LibraryVersion {
  std::string name;
  std::string version;  ///< or why there is none
};

/// Bantam's own, "0.9.0".
const char* program_version();

/// CPU libraries, then, with `cuda`, CUDA's: driver, runtime, cuBLASLt, cuDNN, which are loaded for the question (some
/// hundred milliseconds).
std::vector<LibraryVersion> library_versions(bool cuda = true);

}  // namespace bantam::run
