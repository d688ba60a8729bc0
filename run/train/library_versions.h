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

/// Which of CUDA's libraries are asked: those that the process uses already, or all, which loads them (some hundred
/// milliseconds).
enum class CudaLibraries { loaded, all };

/// CPU libraries, then CUDA's: driver, runtime, cuBLASLt, cuDNN.
std::vector<LibraryVersion> library_versions(CudaLibraries cuda = CudaLibraries::all);

}  // namespace bantam::run
