// Internal: calls of the driver, got from it at run time, so that the program starts without a driver.
#pragma once

#include <cuda_runtime_api.h>

namespace bantam::cuda_backend {

/// Points `function` at the driver's call `name`, as CUDA `version` (12000: 12.0) declared it: the version that its
/// type (PFN_…_v12000 of cudaTypedefs.h) names. False, with nothing changed, where the driver has no such call, or none
/// is installed. Makes no context.
template <typename Function>
bool find_driver_entry(const char* name, unsigned version, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found);
#else
  (void)version;  // the toolkit's own, which the calls used here have had since they exist
  const cudaError_t status = cudaGetDriverEntryPoint(name, &address, cudaEnableDefault, &found);
#endif
  (void)cudaGetLastError();  // an absent call is an answer, no error
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess || address == nullptr) return false;
  function = reinterpret_cast<Function>(address);
  return true;
}

}  // namespace bantam::cuda_backend
