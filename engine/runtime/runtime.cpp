// Lazily made devices, each with an allocator, a compute stream and library handles.
#include "bantam/engine/runtime/runtime.h"

#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "bantam/base/byte_size.h"
#include "bantam/base/error.h"
#include "bantam/kernels/common/dispatch.h"
#include "bantam/memory/limits/process_limit.h"
#include "bantam/memory/pages/paged_source.h"

namespace bantam {
namespace {

/// Everything that belongs to one device. Order matters: the stream outlives the allocator, whose frees it orders.
struct DeviceState {
  std::unique_ptr<OwnedStream> stream;
  std::unique_ptr<BfcAllocator> allocator;
  std::unique_ptr<kernels::DeviceLibraries> libraries;
  kernels::KernelLog* kernel_log = nullptr;
};

using DeviceKey = std::tuple<DeviceKind, int, bool, int>;

DeviceKey key_of(Device device) { return {device.kind, device.index, device.meta, device.share}; }

/// One physical device: what the process uses on it, and the limit on that. Its shares share it.
struct CardState {
  std::optional<ProcessMeter> meter;  // not for meta devices
  std::unique_ptr<ProcessLimit> limit;
};

}  // namespace

struct Runtime::Impl {
  RuntimeOptions options;
  int threads = 1;
  std::mutex guard;
  std::map<DeviceKey, CardState> cards;
  std::map<DeviceKey, DeviceState> devices;
  std::unique_ptr<BfcAllocator> pinned;
  std::set<std::string, std::less<>> names;
  std::atomic<std::uint64_t> next_value_id{1};

  template <class Map>
  typename Map::mapped_type named(const Map& map, Device device) const {
    const auto found = map.find(to_string(device));
    return found == map.end() ? typename Map::mapped_type{} : found->second;
  }

  /// The card of a device; on a GPU the first call makes the context, which is the first line of the overhead.
  CardState& card(Device device) {
    const Device whole = device.whole();
    CardState& card = cards[key_of(whole)];
    if (card.limit) return card;
    if (!whole.meta) card.meter.emplace(whole);  // throws where it does not exist; before the context is there
    ProcessLimitOptions limits{
        .name = to_string(whole), .limit_bytes = named(options.limits, whole), .shares = named(options.logical, whole)};
    limits.budgets[Device::kWhole] = named(options.budgets, whole);
    for (int share = 0; share < static_cast<int>(limits.shares.size()); ++share)
      limits.budgets[share] = named(options.budgets, whole.logical(share));
    if (whole.is_cuda()) {
      limits.reserve_bytes = kKernelReserve;
      limits.late_reserve_bytes = kLateReserve;
      limits.process_bytes = [meter = *card.meter](std::uint64_t pool_bytes) { return meter.read(pool_bytes).bytes; };
    }
    if (!limits.shares.empty() && !whole.meta) limits.card_bytes = device_info(whole).total_bytes;
    auto limit = std::make_unique<ProcessLimit>(std::move(limits));
    if (whole.is_cuda()) {
      make_device_ready(whole);
      limit->note_overhead("CUDA context");
      if (bounded(whole)) log_weak_count(whole, *card.meter);
    }
    card.limit = std::move(limit);
    return card;
  }

  void log_weak_count(Device device, const ProcessMeter& meter) const {
    if (!options.log || meter.read().method != ProcessMemoryMethod::card) return;
    options.log(
        fmt::format("the limit of {} counts the card's use: the driver does not tell ours apart", to_string(device)));
  }

  bool bounded(Device device) const {
    return options.limits.contains(to_string(device.whole())) || options.logical.contains(to_string(device.whole()));
  }

  DeviceState& state(Device device) {
    const std::lock_guard lock(guard);
    DeviceState& state = devices[key_of(device)];
    if (state.allocator) return state;
    ProcessLimit& limit = *card(device).limit;
    state.stream = std::make_unique<OwnedStream>(device);
    state.libraries = kernels::make_device_libraries(device);
    // Under a limit the libraries' own memory is paid before the pool's, so that it cannot push the pool out later.
    if (state.libraries && bounded(device))
      state.libraries->load([&](const char* library) { limit.note_overhead(library); });
    const std::uint64_t pool_limit = limit.pool_limit(device.share);
    const AllocatorOptions allocator{.name = to_string(device),
                                     .limit_bytes = pool_limit,
                                     .growth = options.growth || device.meta || pool_limit == 0};
    std::unique_ptr<MemorySource> source = options.source ? options.source(device) : make_device_source(device);
    state.allocator = std::make_unique<BfcAllocator>(std::move(source), device, allocator);
    limit.attach(*state.allocator, device.share);
    return state;
  }

  /// The card, once made, is not changed, and stays.
  CardState& locked_card(Device device) {
    const std::lock_guard lock(guard);
    return card(device);
  }
  ProcessLimit& limit(Device device) { return *locked_card(device).limit; }
};

Runtime::Runtime(RuntimeOptions options) : impl_(std::make_unique<Impl>()) {
  if (options.threads < 0) throw ConfigError(fmt::format("threads must not be negative, got {}", options.threads));
  impl_->threads = options.threads > 0 ? options.threads : std::max(1, device_info(Device::cpu()).multiprocessors);
  impl_->options = std::move(options);
}

Runtime::~Runtime() {
  try {
    for (auto& [key, state] : impl_->devices)
      if (state.stream) synchronize(state.stream->get());  // work under way still uses the memory
  } catch (const Error&) {                                 // a broken device has nothing under way
  }
}

BfcAllocator& Runtime::allocator(Device device) { return *impl_->state(device).allocator; }

MemoryReport Runtime::memory_report(Device device) {
  return bantam::memory_report(allocator(device), memory_overhead(device));
}

BfcAllocator& Runtime::pinned_allocator() {
  const std::lock_guard lock(impl_->guard);
  if (!impl_->pinned)
    impl_->pinned = std::make_unique<BfcAllocator>(make_pinned_source(), Device::cpu(),
                                                   AllocatorOptions{.name = "pinned host memory"});
  return *impl_->pinned;
}

Stream Runtime::stream(Device device) { return impl_->state(device).stream->get(); }

kernels::Exec Runtime::exec(Device device) {
  DeviceState& state = impl_->state(device);
  return {device, state.stream->get(), impl_->threads, state.libraries.get(), state.kernel_log};
}

void Runtime::set_kernel_log(Device device, kernels::KernelLog* log) { impl_->state(device).kernel_log = log; }

std::uint64_t Runtime::limit(Device device) { return impl_->limit(device).limit(device.share); }

void Runtime::set_limit(Device device, std::uint64_t bytes) {
  CardState& card = impl_->locked_card(device);
  const bool first = card.limit->limit(device.share) == 0 && bytes != 0;
  card.limit->set_limit(device.share, bytes);
  if (first && card.meter) impl_->log_weak_count(device.whole(), *card.meter);
}

void Runtime::require_pool(Device device, std::uint64_t pool_bytes) {
  (void)impl_->state(device);  // its libraries count
  impl_->limit(device).require(device.share, pool_bytes);
}

void Runtime::settle_limit(Device device) { impl_->limit(device).settle(); }

void Runtime::refresh_limit(Device device) { impl_->limit(device).refresh(); }

void Runtime::note_overhead(Device device, const std::string& name) { impl_->limit(device).note_overhead(name); }

void Runtime::set_reservation(Device device, const std::string& name, std::uint64_t bytes) {
  impl_->limit(device).set_reservation(name, bytes);
}

void Runtime::reserve(Device device, std::uint64_t bytes) {
  BfcAllocator& memory = allocator(device);
  if (memory.reserve_pool(bytes)) return;
  const MemoryStats stats = memory.stats();
  throw OutOfMemory(
      fmt::format("{} does not allow a pool of {} ({} B) at once{}", to_string(device), format_byte_size(bytes), bytes,
                  stats.limit_bytes == 0 ? ""
                                         : fmt::format("; its limit allows {} ({} B)",
                                                       format_byte_size(stats.limit_bytes), stats.limit_bytes)),
      {.requested_bytes = bytes,
       .in_use_bytes = stats.in_use_bytes,
       .pool_bytes = stats.pool_bytes,
       .limit_bytes = stats.limit_bytes,
       .largest_free_bytes = stats.largest_free_bytes});
}

std::vector<OverheadLine> Runtime::memory_overhead(Device device) { return impl_->limit(device).overhead(); }

ProcessMemory Runtime::process_memory(Device device) {
  const std::lock_guard lock(impl_->guard);
  const CardState& card = impl_->card(device);
  return card.meter ? card.meter->read(card.limit->pool_bytes()) : ProcessMemory{};
}

int Runtime::threads() const { return impl_->threads; }

const char* Runtime::intern(std::string_view text) {
  const std::lock_guard lock(impl_->guard);
  auto found = impl_->names.find(text);
  if (found == impl_->names.end()) found = impl_->names.emplace(text).first;
  return found->c_str();
}

std::uint64_t Runtime::new_value_id() { return impl_->next_value_id.fetch_add(1, std::memory_order_relaxed); }

void Runtime::log(std::string_view message) const {
  if (impl_->options.log) impl_->options.log(message);
}

}  // namespace bantam
