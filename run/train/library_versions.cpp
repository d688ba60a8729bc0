// Asks each library itself; CUDA's are found by name at run time, since nothing links them.
#include "bantam/run/train/library_versions.h"

#include <initializer_list>

#include <dlfcn.h>
#include <fmt/format.h>

#include "bantam/kernels/common/cpu/conv_library.h"

namespace bantam::run {
namespace {

/// The first of `files` that can be loaded, and a symbol of it; unloaded at the end of the scope.
class Library {
 public:
  Library(CudaLibraries asked, std::initializer_list<const char*> files) {
    const int mode = RTLD_LAZY | RTLD_LOCAL | (asked == CudaLibraries::loaded ? RTLD_NOLOAD : 0);
    for (const char* file : files)
      if (handle_ == nullptr) handle_ = dlopen(file, mode);
  }
  ~Library() {
    if (handle_ != nullptr) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  template <class Function>
  Function* find(const char* symbol) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_, symbol));
  }

 private:
  void* handle_ = nullptr;
};

constexpr const char* kAbsent = "not installed";

/// CUDA writes 13.0 as 13000.
std::string cuda_style(std::size_t version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

/// cuBLASLt writes 13.1.2 as 130102, and cuDNN 9.14.0 as 91400.
std::string three_part(std::size_t version) {
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string driver_version(CudaLibraries asked) {
  const Library library(asked, {"libcuda.so.1"});
  int version = 0;
  const auto ask = library.find<int(int*)>("cuDriverGetVersion");
  if (ask == nullptr) return kAbsent;
  return ask(&version) == 0 ? "supports CUDA " + cuda_style(static_cast<std::size_t>(version)) : "does not answer";
}

std::string version_from(const Library& library, const char* symbol) {
  const auto ask = library.find<std::size_t()>(symbol);
  return ask == nullptr ? kAbsent : three_part(ask());
}

}  // namespace

const char* program_version() { return BANTAM_VERSION; }

std::vector<LibraryVersion> library_versions(CudaLibraries cuda) {
  const std::string onednn = kernels::cpu::onednn_version();
  std::vector<LibraryVersion> versions = {{"oneDNN", onednn.empty() ? "this program was built without it" : onednn}};
  const std::string toolkit = BANTAM_CUDA_TOOLKIT;  // what this program was built with; empty: nothing
  if (toolkit.empty()) {
    if (cuda == CudaLibraries::loaded) return versions;
    versions.push_back({"CUDA", "this program was built without it"});
    return versions;
  }
  const std::string driver = driver_version(cuda);
  if (cuda == CudaLibraries::loaded && driver == kAbsent) return versions;
  versions.push_back({"CUDA driver", driver});
  versions.push_back({"CUDA runtime", toolkit + " (part of this program)"});
  versions.push_back(
      {"cuBLASLt", version_from(Library(cuda, {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                               "/usr/local/cuda/lib64/libcublasLt.so"}),
                                "cublasLtGetVersion")});
  versions.push_back({"cuDNN", version_from(Library(cuda, {"libcudnn.so.9", "libcudnn.so"}), "cudnnGetVersion")});
  if (cuda == CudaLibraries::loaded)
    std::erase_if(versions, [](const LibraryVersion& library) { return library.version == kAbsent; });
  return versions;
}

}  // namespace bantam::run
