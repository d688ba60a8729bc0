// Only the shared library that the Python package loads has this file. It defines symbols that archives of the
// distribution, whose code is not made for shared libraries, ask of the C library by address; and the end of a capsule,
// which Python code cannot be: it is called while an exception may be pending.
#include "bantam/bantam_c.h"
#include "bantam/engine/interop/dlpack_abi.h"

extern "C" {
// Whether the process has one thread, so that reference counts need no atomic additions: it is never assumed.
extern __attribute__((visibility("hidden"))) char __libc_single_threaded;
char __libc_single_threaded = 0;
}

namespace {

int (*capsule_is_valid)(void* capsule, const char* name) = nullptr;
void* (*capsule_pointer)(void* capsule, const char* name) = nullptr;

template <class Managed>
bool deleted(void* capsule, const char* name) {
  if (capsule_is_valid(capsule, name) == 0) return false;
  auto* const managed = static_cast<Managed*>(capsule_pointer(capsule, name));
  if (managed->deleter != nullptr) managed->deleter(managed);
  return true;
}

}  // namespace

extern "C" {
/// PyCapsule_IsValid and PyCapsule_GetPointer of the Python that loaded this library, which is linked with none.
BANTAM_C_API void bantam_python_capsules(int (*is_valid)(void*, const char*), void* (*pointer)(void*, const char*)) {
  capsule_is_valid = is_valid;
  capsule_pointer = pointer;
}

/// A capsule's destructor: a tensor that nobody has taken is deleted.
BANTAM_C_API void bantam_python_delete_capsule(void* capsule) {
  if (!deleted<DLManagedTensorVersioned>(capsule, "dltensor_versioned")) deleted<DLManagedTensor>(capsule, "dltensor");
}
}
