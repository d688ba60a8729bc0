// Activities of kernels, copies and memsets by CUPTI, loaded at run time: the program needs it for `explain --measure`
// only.
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "bantam/base/error.h"
#include "bantam/memory/device/activity_trace.h"
#include "bantam/memory/device/cuda_backend.h"

#if defined(BANTAM_WITH_CUPTI)
#include <cupti.h>
#include <dlfcn.h>
#include <fmt/format.h>

namespace bantam::cuda_backend {
namespace {

constexpr std::size_t kBufferBytes = 8 << 20, kAlignment = 8;
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

/// The library's calls, bound once a process.
struct Cupti {
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush = nullptr;
  decltype(&cuptiActivityGetNextRecord) next = nullptr;
  std::string reason;  // why it cannot be used; "": it can

  Cupti() {
    // Layouts of records belong to a major version.
    const std::string name = fmt::format("libcupti.so.{}", CUDA_VERSION / 1000);
    void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      reason = name + " is not installed";
      return;
    }
    const bool bound = bind(library, "cuptiActivityRegisterCallbacks", register_callbacks) &&
                       bind(library, "cuptiActivityEnable", enable) && bind(library, "cuptiActivityDisable", disable) &&
                       bind(library, "cuptiActivityFlushAll", flush) &&
                       bind(library, "cuptiActivityGetNextRecord", next);
    if (!bound) reason = name + " lacks a call";
  }
  template <class Function>
  static bool bind(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
  static const Cupti& instance() {
    static const Cupti cupti;
    return cupti;
  }
};

/// The activities that came in, guarded: CUPTI calls back from threads of its own.
struct Received {
  std::mutex guard;
  std::vector<DeviceActivity> activities;
};
Received& received() {
  static Received instance;
  return instance;
}

void check(CUptiResult result, const char* call) {
  if (result != CUPTI_SUCCESS)
    throw CudaError(fmt::format("{} failed with CUPTI's error {}", call, static_cast<int>(result)));
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kAlignment, kBufferBytes));
  *bytes = *buffer != nullptr ? kBufferBytes : 0;
  *most_records = 0;
}

void take_record(const CUpti_Activity& record, std::vector<DeviceActivity>& into) {
  const auto add = [&into](const auto& activity, const char* name) {
    into.push_back({static_cast<std::int64_t>(activity.start), static_cast<std::int64_t>(activity.end), name});
  };
  if (record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || record.kind == CUPTI_ACTIVITY_KIND_KERNEL) {
    const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
    add(kernel, kernel.name != nullptr ? kernel.name : "");
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
    add(reinterpret_cast<const CUpti_ActivityMemcpy6&>(record), "copy");
  } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    add(reinterpret_cast<const CUpti_ActivityMemset4&>(record), "memset");
  }
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t, std::size_t valid_bytes) {
  Received& to = received();
  const std::lock_guard lock(to.guard);
  for (CUpti_Activity* record = nullptr;
       valid_bytes > 0 && Cupti::instance().next(buffer, valid_bytes, &record) == CUPTI_SUCCESS;)
    take_record(*record, to.activities);
  std::free(buffer);
}

}  // namespace

std::string trace_unavailable() {
  return availability().devices == 0 ? availability().reason : Cupti::instance().reason;
}

void trace_start() {
  const Cupti& cupti = Cupti::instance();
  check(cupti.register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  {
    const std::lock_guard lock(received().guard);
    received().activities.clear();
  }
  try {
    for (const CUpti_ActivityKind kind : kKinds) check(cupti.enable(kind), "cuptiActivityEnable");
  } catch (...) {  // no trace_stop follows
    for (const CUpti_ActivityKind kind : kKinds) (void)cupti.disable(kind);
    throw;
  }
}

std::vector<DeviceActivity> trace_stop() {
  const Cupti& cupti = Cupti::instance();
  check(cupti.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "cuptiActivityFlushAll");
  for (const CUpti_ActivityKind kind : kKinds) check(cupti.disable(kind), "cuptiActivityDisable");
  const std::lock_guard lock(received().guard);
  return std::move(received().activities);
}

}  // namespace bantam::cuda_backend

#else

namespace bantam::cuda_backend {

std::string trace_unavailable() { return "this program was built without CUPTI's headers"; }
void trace_start() { throw DeviceError(trace_unavailable()); }
std::vector<DeviceActivity> trace_stop() { throw DeviceError(trace_unavailable()); }

}  // namespace bantam::cuda_backend

#endif
