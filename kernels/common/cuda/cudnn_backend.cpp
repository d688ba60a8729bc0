// cuDNN's backend descriptors: set, finalize, read.
#include "bantam/kernels/common/cuda/cudnn_backend.h"

#include <algorithm>

#include "bantam/base/error.h"

namespace bantam::kernels::cuda {

CudnnBackendApi::CudnnBackendApi(const SharedLibrary& library) {
  library.bind(version, "cudnnGetVersion");
  library.bind(create, "cudnnBackendCreateDescriptor");
  library.bind(destroy, "cudnnBackendDestroyDescriptor");
  library.bind(set, "cudnnBackendSetAttribute");
  library.bind(get, "cudnnBackendGetAttribute");
  library.bind(finalize, "cudnnBackendFinalize");
  library.bind(execute, "cudnnBackendExecute");
}

BackendDescriptor::BackendDescriptor(const CudnnBackendApi& api, cudnnBackendDescriptorType_t type) : api_(&api) {
  if (api.create(type, &raw_) != CUDNN_STATUS_SUCCESS) throw CudaError("cudnnBackendCreateDescriptor failed");
}

BackendDescriptor::~BackendDescriptor() {
  if (raw_ != nullptr) api_->destroy(raw_);
}

BackendDescriptor::BackendDescriptor(BackendDescriptor&& other) noexcept
    : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)), good_(other.good_) {}

BackendDescriptor& BackendDescriptor::operator=(BackendDescriptor&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(raw_, other.raw_);
  std::swap(good_, other.good_);
  return *this;
}

BackendDescriptor& BackendDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                          std::int64_t count, const void* values) {
  good_ = good_ && api_->set(raw_, name, type, count, values) == CUDNN_STATUS_SUCCESS;
  return *this;
}

BackendDescriptor& BackendDescriptor::set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
  return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}

BackendDescriptor& BackendDescriptor::set(cudnnBackendAttributeName_t name, std::int64_t value) {
  return set(name, CUDNN_TYPE_INT64, 1, &value);
}

BackendDescriptor& BackendDescriptor::set(cudnnBackendAttributeName_t name, const BackendDescriptor& value) {
  good_ = good_ && value.good_;
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.raw_);
}

BackendDescriptor& BackendDescriptor::set(cudnnBackendAttributeName_t name,
                                          std::initializer_list<const BackendDescriptor*> values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const BackendDescriptor* value : values) {
    good_ = good_ && value->good_;
    raw.push_back(value->raw_);
  }
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw.size()), raw.data());
}

BackendDescriptor& BackendDescriptor::set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
  return set(name, CUDNN_TYPE_HANDLE, 1, &value);
}

bool BackendDescriptor::finalize() {
  good_ = good_ && api_->finalize(raw_) == CUDNN_STATUS_SUCCESS;
  return good_;
}

std::int64_t BackendDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                    std::int64_t room, void* values) const {
  std::int64_t count = 0;
  if (api_->get(raw_, name, type, room, &count, values) != CUDNN_STATUS_SUCCESS) return 0;
  return count;
}

std::int64_t BackendDescriptor::integer(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0;
  (void)get(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

std::vector<BackendDescriptor> BackendDescriptor::descriptors(cudnnBackendAttributeName_t name,
                                                              cudnnBackendDescriptorType_t type,
                                                              std::int64_t room) const {
  std::vector<BackendDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < room; ++i) raw.push_back(found.emplace_back(*api_, type).raw());
  const std::int64_t count = get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, room, raw.data());
  while (static_cast<std::int64_t>(found.size()) > std::min(count, room)) found.pop_back();
  return found;
}

}  // namespace bantam::kernels::cuda
