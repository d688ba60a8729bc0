// Cutting a workspace into aligned arrays, the same way where its size is computed and where it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bantam/base/error.h"
#include "bantam/kernels/common/exec.h"

namespace bantam::kernels {

/// `bytes` rounded up to 256.
constexpr std::size_t aligned_bytes(std::int64_t bytes) { return (static_cast<std::size_t>(bytes) + 255) / 256 * 256; }

/// Throws Error where a caller gave a kernel less scratch memory than the kernel's rule asks for.
inline void require_workspace(Workspace workspace, std::size_t needed, const char* kernel) {
  if (workspace.bytes >= needed) return;
  throw Error(std::string(kernel) + ": the workspace has " + std::to_string(workspace.bytes) + " bytes; " +
              std::to_string(needed) + " are needed");
}

/// Cuts a workspace from its start, into arrays aligned to 256 bytes. Sizes were checked by `require_workspace`.
class WorkspaceCutter {
 public:
  explicit WorkspaceCutter(Workspace workspace) : next_(static_cast<char*>(workspace.data)) {}
  template <class T>
  T* cut(std::size_t bytes) {
    char* chunk = next_;
    if (bytes > 0) next_ += aligned_bytes(static_cast<std::int64_t>(bytes));
    return reinterpret_cast<T*>(chunk);
  }

 private:
  char* next_;
};

}  // namespace bantam::kernels
