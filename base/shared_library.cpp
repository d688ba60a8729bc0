// dlopen, with messages that say what to do.
#include "bantam/base/shared_library.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "bantam/base/error.h"

namespace bantam {

SharedLibrary::SharedLibrary(const char* product, const std::vector<std::string>& names) : product_(product) {
  std::string cause;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      opened_ = name;
      return;
    }
    const char* message = dlerror();
    if (cause.empty() && message != nullptr) cause = message;
  }
  throw DeviceError(fmt::format(
      "{} cannot be loaded (tried {}): {}. Install it, or add the folder that holds {} to LD_LIBRARY_PATH, for example "
      "LD_LIBRARY_PATH=/usr/local/cuda/lib64",
      product, fmt::join(names, ", "), cause, names.front()));
}

void* SharedLibrary::find(const char* symbol) const {
  void* address = dlsym(handle_, symbol);
  if (address != nullptr) return address;
  throw DeviceError(fmt::format("{}: {} has no function {}; install the version that this program was built for",
                                product_, opened_, symbol));
}

}  // namespace bantam
