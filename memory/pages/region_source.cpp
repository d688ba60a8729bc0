// Where regions come from: anonymous mappings, cudaMalloc, page-locked memory, or made-up addresses.
#include "bantam/memory/pages/region_source.h"

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include <sys/mman.h>

#include "bantam/memory/device/cuda_backend.h"
#include "bantam/memory/device/fake_addresses.h"

namespace bantam {
namespace {

class HostSource final : public RegionSource {
 public:
  explicit HostSource(const char* name) : name_(name) {}

  void* acquire(std::size_t bytes) override {
    if (bytes == 0) return nullptr;
    void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    if (bytes >= kHugePage) (void)madvise(address, bytes, MADV_HUGEPAGE);  // fewer faults; a wish only
    return address;
  }
  void release(void* address, std::size_t bytes) noexcept override { (void)munmap(address, bytes); }
  const char* name() const override { return name_; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const char* name_;
};

class CudaSource final : public RegionSource {
 public:
  explicit CudaSource(Device device) : device_(device), name_("cudaMalloc " + to_string(device)) {}

  void* acquire(std::size_t bytes) override {
    return bytes == 0 ? nullptr : cuda_backend::device_malloc(device_.index, bytes);
  }
  void release(void* address, std::size_t) noexcept override { cuda_backend::device_free(device_.index, address); }
  const char* name() const override { return name_.c_str(); }

 private:
  Device device_;
  std::string name_;
};

class PinnedSource final : public RegionSource {
 public:
  void* acquire(std::size_t bytes) override { return bytes == 0 ? nullptr : cuda_backend::pinned_malloc(bytes); }
  void release(void* address, std::size_t) noexcept override { cuda_backend::pinned_free(address); }
  const char* name() const override { return "pinned host"; }
};

// First fit over a made-up address space, so that the same requests always get the same addresses.
class FakeSource final : public RegionSource {
 public:
  explicit FakeSource(std::size_t capacity) : capacity_(capacity) {}

  void* acquire(std::size_t bytes) override {
    if (bytes == 0 || bytes > std::numeric_limits<std::size_t>::max() - (kPage - 1)) return nullptr;
    if (capacity_ != 0 && bytes > capacity_ - reserved_) return nullptr;
    const std::uintptr_t pages = (bytes + kPage - 1) / kPage * kPage;
    std::uintptr_t at = kFakeAddresses;
    for (const auto& [address, size] : ranges_) {
      if (address - at >= pages) break;
      at = address + size;
    }
    if (pages > std::numeric_limits<std::uintptr_t>::max() - at) return nullptr;
    ranges_.emplace(at, pages);
    reserved_ += bytes;
    return reinterpret_cast<void*>(at);
  }
  void release(void* address, std::size_t bytes) noexcept override {
    if (ranges_.erase(reinterpret_cast<std::uintptr_t>(address)) != 0) reserved_ -= bytes;
  }
  const char* name() const override { return "fake"; }

 private:
  static constexpr std::uintptr_t kPage = 4096;

  std::size_t capacity_;
  std::size_t reserved_ = 0;
  std::map<std::uintptr_t, std::uintptr_t> ranges_;  // address to size, both in whole pages
};

}  // namespace

std::unique_ptr<RegionSource> make_host_source() { return std::make_unique<HostSource>("host"); }

std::unique_ptr<RegionSource> make_cuda_source(Device device) {
  cuda_backend::require(device);
  return std::make_unique<CudaSource>(device);
}

std::unique_ptr<RegionSource> make_pinned_source() {
  if (cuda_device_count() == 0) return std::make_unique<HostSource>("pageable host (no CUDA device)");
  return std::make_unique<PinnedSource>();
}

std::unique_ptr<RegionSource> make_fake_source(std::size_t capacity) { return std::make_unique<FakeSource>(capacity); }

}  // namespace bantam
