// Versions of the libraries that kernels call, for `bantam devices`.
#pragma once

#include <string>
#include <vector>

namespace bantam::run {

struct LibraryVersion {
  std::string name;
  std::string version;  ///< or why there is none
};

/// CPU libraries, then CUDA's: driver, runtime, cuBLASLt, cuDNN, which are loaded for the question (some hundred
/// milliseconds).
std::vector<LibraryVersion> library_versions();

}  // namespace bantam::run
