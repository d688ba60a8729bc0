// operator new and delete of a test program that count what is live, and fail on demand: the n-th allocation from a
// moment on throws std::bad_alloc, once. Include in one source of the program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

#include <malloc.h>

namespace bantam::testing {

struct NewCounters {
  std::atomic<std::int64_t> live{0};  ///< allocations that were not freed yet
  std::atomic<std::int64_t> calls{0};
  /// The call, by `calls`, that throws; others succeed.
  std::atomic<std::int64_t> fails_at{std::numeric_limits<std::int64_t>::max()};
};

inline NewCounters& new_counters() {
  static NewCounters counters;
  return counters;
}

inline void* counted_new(std::size_t bytes, std::size_t alignment) {
  NewCounters& counters = new_counters();
  if (++counters.calls == counters.fails_at) throw std::bad_alloc();
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* const memory = alignment > alignof(std::max_align_t) ? std::aligned_alloc(alignment, rounded)
                                                             : std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  ++counters.live;
  return memory;
}

inline void* counted_nothrow(std::size_t bytes) noexcept {
  try {
    return counted_new(bytes, 1);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

inline void counted_delete(void* memory) noexcept {
  if (memory == nullptr) return;
  --new_counters().live;
  std::free(memory);
}

}  // namespace bantam::testing

void* operator new(std::size_t bytes) { return bantam::testing::counted_new(bytes, 1); }
void* operator new[](std::size_t bytes) { return bantam::testing::counted_new(bytes, 1); }
// The library's own would call the one above; a sanitizer's do not, and its memory then ends in the delete below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return bantam::testing::counted_nothrow(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return bantam::testing::counted_nothrow(bytes);
}
void* operator new(std::size_t bytes, std::align_val_t a) {
  return bantam::testing::counted_new(bytes, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t bytes, std::align_val_t a) {
  return bantam::testing::counted_new(bytes, static_cast<std::size_t>(a));
}
void operator delete(void* memory) noexcept { bantam::testing::counted_delete(memory); }
void operator delete[](void* memory) noexcept { bantam::testing::counted_delete(memory); }
void operator delete(void* memory, std::size_t) noexcept { bantam::testing::counted_delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { bantam::testing::counted_delete(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { bantam::testing::counted_delete(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { bantam::testing::counted_delete(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { bantam::testing::counted_delete(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  bantam::testing::counted_delete(memory);
}
