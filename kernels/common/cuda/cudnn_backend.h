// Descriptors of cuDNN's backend (graph) API as values that own themselves.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include <cudnn.h>

#include "bantam/base/shared_library.h"

namespace bantam::kernels::cuda {

/// The functions used, by their names. All are in cuDNN 9.0.
struct CudnnBackendApi {
  explicit CudnnBackendApi(const SharedLibrary& library);
  decltype(&::cudnnGetVersion) version;
  decltype(&::cudnnBackendCreateDescriptor) create;
  decltype(&::cudnnBackendDestroyDescriptor) destroy;
  decltype(&::cudnnBackendSetAttribute) set;
  decltype(&::cudnnBackendGetAttribute) get;
  decltype(&::cudnnBackendFinalize) finalize;
  decltype(&::cudnnBackendExecute) execute;
};

/// One descriptor. Setting what the library refuses makes it bad, and a bad one stays so: callers check `finalize` (or
/// `good`) once, and treat it as "not supported".
class BackendDescriptor {
 public:
  /// Throws CudaError where the library cannot make one.
  BackendDescriptor(const CudnnBackendApi& api, cudnnBackendDescriptorType_t type);
  ~BackendDescriptor();
  BackendDescriptor(BackendDescriptor&& other) noexcept;
  BackendDescriptor& operator=(BackendDescriptor&& other) noexcept;

  BackendDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                         const void* values);
  BackendDescriptor& set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values);
  BackendDescriptor& set(cudnnBackendAttributeName_t name, std::int64_t value);
  BackendDescriptor& set(cudnnBackendAttributeName_t name, const BackendDescriptor& value);
  BackendDescriptor& set(cudnnBackendAttributeName_t name, std::initializer_list<const BackendDescriptor*> values);
  BackendDescriptor& set(cudnnBackendAttributeName_t name, cudnnHandle_t value);
  /// False where this, or something set before, is not supported.
  bool finalize();

  /// How many values there are, of which up to `room` were written to `values`; 0 where there are none.
  std::int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t room,
                   void* values) const;
  /// One integer; 0 where there is none.
  std::int64_t integer(cudnnBackendAttributeName_t name) const;
  /// Descriptors of `type` that an attribute holds, at most `room`.
  std::vector<BackendDescriptor> descriptors(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                             std::int64_t room) const;

  cudnnBackendDescriptor_t raw() const { return raw_; }
  bool good() const { return good_; }

 private:
  const CudnnBackendApi* api_;
  cudnnBackendDescriptor_t raw_ = nullptr;
  bool good_ = true;
};

}  // namespace bantam::kernels::cuda
