// Scratch memory of a thread, for kernels that pack what they read.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace bantam::kernels::cpu {

/// kFloats floats of the calling thread, aligned to 64 bytes, with values of whatever `Tag` used them for last; they
/// stay until the thread ends, so that no step allocates. Not on the stack, of which a thread may have little (ulimit
/// -s, an embedder's own threads, musl's 128 KiB). A part that holds them must not call what asks for the same Tag.
/// Throws std::bad_alloc.
template <class Tag, std::size_t kFloats>
float* thread_scratch() {
  constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(float* floats) const { ::operator delete(floats, kLine); }
  };
  static thread_local std::unique_ptr<float, Free> memory;
  if (memory == nullptr) memory.reset(static_cast<float*>(::operator new(kFloats * sizeof(float), kLine)));
  return memory.get();
}

}  // namespace bantam::kernels::cpu
