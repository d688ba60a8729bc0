// Runs a workload on each allocator: once from a fresh start for what it holds, then in windows for the time.
#include "bantam/run/bench/allocator_subjects.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>

#include <malloc.h>
#include <sys/mman.h>

#include "bantam/base/clock.h"
#include "bantam/base/error.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/pages/paged_source.h"

namespace bantam::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kTimedSeconds = 0.02;

// A subject has allocate (null where there is no more), free, finish (waits for work under way) and reserved (bytes,
// now or at most until now).

class Ours {
 public:
  explicit Ours(Device device) : stream_(device), allocator_(make_device_source(device), device, {}) {}
  void* allocate(std::uint64_t bytes) {
    return allocator_.allocate(bytes, stream_.get(), {Category::activation, "bench"});
  }
  void free(void* address, std::uint64_t) { allocator_.free(address, stream_.get()); }
  void finish() { synchronize(stream_.get()); }
  std::uint64_t reserved() const { return allocator_.stats().peak_pool_bytes; }

 private:
  OwnedStream stream_;  // outlives the allocator, whose frees it orders
  BfcAllocator allocator_;
};

class Malloc {
 public:
  Malloc() {
    malloc_trim(0);
    const auto before = mallinfo2();
    others_ = before.uordblks + before.hblkhd;
  }
  void* allocate(std::uint64_t bytes) { return std::malloc(bytes); }
  void free(void* address, std::uint64_t) { std::free(address); }
  void finish() {}
  std::uint64_t reserved() const {
    const auto now = mallinfo2();
    const std::uint64_t all = now.arena + now.hblkhd;
    return all > others_ ? all - others_ : 0;
  }

 private:
  std::uint64_t others_ = 0;  // what the program itself had in use before
};

class Mmap {
 public:
  void* allocate(std::uint64_t bytes) {
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    reserved_ += pages(bytes);
    return address;
  }
  void free(void* address, std::uint64_t bytes) {
    (void)munmap(address, bytes);
    reserved_ -= pages(bytes);
  }
  void finish() {}
  std::uint64_t reserved() const { return reserved_; }

 private:
  static std::uint64_t pages(std::uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
  std::uint64_t reserved_ = 0;
};

class CudaMalloc {
 public:
  explicit CudaMalloc(Device device) : device_(device.index), free_before_(cuda_backend::free_device_bytes(device_)) {}
  void* allocate(std::uint64_t bytes) { return cuda_backend::device_malloc(device_, bytes); }
  void free(void* address, std::uint64_t) { cuda_backend::device_free(device_, address); }
  void finish() {}
  std::uint64_t reserved() const {
    const std::uint64_t free_now = cuda_backend::free_device_bytes(device_);
    return free_before_ > free_now ? free_before_ - free_now : 0;
  }

 private:
  int device_;
  std::uint64_t free_before_;
};

class CudaMallocAsync {
 public:
  explicit CudaMallocAsync(Device device) : stream_(device), pool_(cuda_backend::pool_create(device.index)) {
    if (pool_ == nullptr) throw DeviceError("the device has no stream-ordered pools");
  }
  ~CudaMallocAsync() {
    try {
      finish();
    } catch (const Error&) {  // a broken device has nothing under way
    }
    cuda_backend::pool_destroy(pool_);
  }
  CudaMallocAsync(const CudaMallocAsync&) = delete;
  CudaMallocAsync& operator=(const CudaMallocAsync&) = delete;
  void* allocate(std::uint64_t bytes) { return cuda_backend::pool_malloc(pool_, bytes, stream_.get().handle); }
  void free(void* address, std::uint64_t) { cuda_backend::pool_free(address, stream_.get().handle); }
  void finish() { synchronize(stream_.get()); }
  std::uint64_t reserved() const { return cuda_backend::pool_peak_bytes(pool_); }

 private:
  OwnedStream stream_;
  void* pool_;
};

struct Slot {
  void* address = nullptr;
  std::uint64_t bytes = 0;
};

/// One pass over the calls. Where a request is refused all is freed, and Error is thrown.
template <class Subject, class AfterAllocation>
void pass(Subject& subject, const AllocatorWorkload& workload, std::vector<Slot>& slots, AfterAllocation&& after) {
  try {
    for (const AllocatorCall& call : workload.calls) {
      Slot& slot = slots[call.slot];
      if (call.bytes == 0) {
        subject.free(slot.address, slot.bytes);
        slot = {};
        continue;
      }
      void* address = subject.allocate(call.bytes);
      if (address == nullptr) throw Error("does not fit");
      slot = {address, call.bytes};
      after();
    }
  } catch (...) {
    for (const Slot& slot : slots)
      if (slot.address != nullptr) subject.free(slot.address, slot.bytes);
    throw;
  }
}

template <class Subject>
void measure_time(Subject& subject, const AllocatorWorkload& workload, double seconds, AllocatorRow& row) {
  std::vector<Slot> slots(workload.slots);
  const auto window = [&](std::int64_t passes) {
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < passes; ++i) pass(subject, workload, slots, [] {});
    subject.finish();
    return seconds_since(start);
  };
  std::int64_t passes = 1;
  while (window(passes) < kTimedSeconds) passes *= 2;
  std::vector<double> windows;
  const Clock::time_point start = Clock::now();
  while (windows.size() < 3 || seconds_since(start) < seconds) windows.push_back(window(passes));
  const auto middle = windows.begin() + static_cast<std::ptrdiff_t>(windows.size() / 2);
  std::ranges::nth_element(windows, middle);
  row.ns_per_pair = *middle * 1e9 / static_cast<double>(passes) / static_cast<double>(workload.allocations);
  row.windows = static_cast<std::int64_t>(windows.size());
}

/// `make` returns a fresh subject, or throws where there can be none.
template <class Make>
AllocatorRow measure(const std::string& name, Device device, const AllocatorWorkload& workload, double seconds,
                     Make&& make) {
  AllocatorRow row{.allocator = name, .device = device};
  try {
    const auto subject = make();
    std::vector<Slot> slots(workload.slots);
    pass(*subject, workload, slots,
         [&] { row.peak_reserved_bytes = std::max(row.peak_reserved_bytes, subject->reserved()); });
    measure_time(*subject, workload, seconds, row);
  } catch (const OutOfMemory&) {
    row = {.allocator = name, .device = device, .error = "does not fit"};
  } catch (const Error& error) {
    row = {.allocator = name, .device = device, .error = error.what()};
  }
  return row;
}

}  // namespace

std::vector<AllocatorRow> measure_host(const AllocatorWorkload& workload, double seconds) {
  const Device cpu = Device::cpu();
  return {measure("bantam", cpu, workload, seconds, [&] { return std::make_unique<Ours>(cpu); }),
          measure("malloc", cpu, workload, seconds, [] { return std::make_unique<Malloc>(); }),
          measure("mmap", cpu, workload, seconds, [] { return std::make_unique<Mmap>(); })};
}

std::vector<AllocatorRow> measure_cuda(const AllocatorWorkload& workload, Device device, double seconds) {
  // A missing device is known before anything is tried: all three rows name the same reason.
  const auto on_device = [&](auto make) {
    return [device, make] {
      cuda_backend::require(device);
      return make();
    };
  };
  return {
      measure("bantam", device, workload, seconds, on_device([&] { return std::make_unique<Ours>(device); })),
      measure("cudaMalloc", device, workload, seconds, on_device([&] { return std::make_unique<CudaMalloc>(device); })),
      measure("cudaMallocAsync", device, workload, seconds,
              on_device([&] { return std::make_unique<CudaMallocAsync>(device); }))};
}

}  // namespace bantam::run
