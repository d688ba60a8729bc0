// BfcAllocator's public face: takes the lock and calls what stands behind.
#include "bantam/memory/allocator.h"

#include <mutex>
#include <utility>

#include "bantam/memory/allocation_trace.h"
#include "bantam/memory/allocator_impl.h"

namespace bantam {

BfcAllocator::BfcAllocator(std::unique_ptr<MemorySource> source, Device device, AllocatorOptions options)
    : BfcAllocator(std::move(source), device, std::move(options), make_device_oracle()) {}

BfcAllocator::BfcAllocator(std::unique_ptr<MemorySource> source, Device device, AllocatorOptions options,
                           std::unique_ptr<StreamOracle> oracle)
    : impl_(std::make_unique<Impl>(std::move(source), device, std::move(options), std::move(oracle))) {}

BfcAllocator::~BfcAllocator() = default;

void* BfcAllocator::allocate(std::size_t bytes, Stream stream, AllocationTag tag) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(impl_->mutex);
  return impl_->allocate(bytes, stream, tag);
}

void BfcAllocator::free(void* address, Stream stream) {
  if (address == nullptr) return;
  const std::lock_guard lock(impl_->mutex);
  impl_->free(address, stream);
}

std::uint64_t BfcAllocator::trim() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->trim();
}

MemoryStats BfcAllocator::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats();
}

void BfcAllocator::reset_peak() {
  const std::lock_guard lock(impl_->mutex);
  MemoryStats& counters = impl_->counters;
  counters.peak_bytes = counters.in_use_bytes;
  counters.by_category_at_peak = counters.by_category;
  counters.peak_pool_bytes = counters.pool_bytes;
  counters.peak_claimed_bytes = counters.in_use_bytes + counters.arena_idle_bytes();
}

std::vector<Holder> BfcAllocator::holders() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->holders();
}

std::uint64_t BfcAllocator::trimmable_bytes() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->trimmable_bytes();
}

AllocatorSnapshot BfcAllocator::snapshot() const {
  const std::lock_guard lock(impl_->mutex);
  return {impl_->stats(), impl_->holders(), impl_->held_regions(), impl_->trimmable_bytes()};
}

Device BfcAllocator::device() const { return impl_->device; }

const std::string& BfcAllocator::name() const { return impl_->options.name; }

void BfcAllocator::set_limit(std::uint64_t limit_bytes) {
  const std::lock_guard lock(impl_->mutex);
  impl_->set_limit(limit_bytes);
}

void BfcAllocator::set_trace(AllocationTrace* trace) {
  const std::lock_guard lock(impl_->mutex);
  impl_->trace = trace;
}

AllocationTrace* BfcAllocator::trace() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->trace;
}

void BfcAllocator::note_phase(const char* phase) {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->trace != nullptr) impl_->trace->note_phase(phase);
}

std::size_t BfcAllocator::allocated_bytes(const void* address) const {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->arena.contains(address)) return impl_->live_place(address, "allocated_bytes").size;
  return impl_->structure.chunk(impl_->live_chunk(address, "allocated_bytes")).size;
}

std::string BfcAllocator::check_invariants() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->check();
}

}  // namespace bantam
