// The C functions over SharedPool, and the one table of the process: which pool PyTorch's functions use on each device.
#include "bantam/engine/interop/pool_functions.h"

#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <utility>

#include "bantam/base/error.h"
#include "bantam/engine/interop/external_memory.h"
#include "bantam/engine/interop/shared_pool.h"

struct bantam_pool {
  bantam::SharedPool pool;
};

namespace bantam {
namespace {

/// The pools that PyTorch's functions use, by CUDA's number of the device; -1: the CPU's. Global, because those
/// functions get no more than that number; empty unless a program calls bantam_pool_serve.
struct ServedPools {
  std::shared_mutex guard;
  std::map<int, SharedPool*> pools;
};

// Never destroyed: libraries free memory while the process ends.
ServedPools& served() {
  static ServedPools* const pools = new ServedPools;
  return *pools;
}

int number_of(Device device) { return device.is_cuda() ? device.index : -1; }

thread_local std::string last_error;

int fail(int status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return status;
}

/// Runs `call`, whose exceptions become a status and a message.
template <class Call>
int guarded(const Call& call) noexcept {
  try {
    return call();
  } catch (const OutOfMemory& error) {
    return fail(BANTAM_POOL_OUT_OF_MEMORY, error.what());
  } catch (const std::bad_alloc&) {
    return fail(BANTAM_POOL_OUT_OF_MEMORY, "the host has no more memory");
  } catch (const std::exception& error) {
    return fail(BANTAM_POOL_ERROR, error.what());
  }
}

template <class T>
T& required(T* argument, const char* name) {
  if (argument == nullptr) throw ConfigError(std::string(name) + " is null");
  return *argument;
}

int open_pool(const char* device_name, uint64_t limit_bytes, const char* name, bantam_pool** pool) {
  required(pool, "pool") = nullptr;
  const Device device = parse_device(&required(device_name, "device"));
  auto runtime = std::make_shared<Runtime>(RuntimeOptions{.threads = 1});
  (void)runtime->allocator(device);  // before the limit is set, so that no library of ours is loaded for it
  if (limit_bytes != 0) runtime->set_limit(device, limit_bytes);
  *pool = share_pool(std::move(runtime), device, &required(name, "name"));
  return BANTAM_POOL_OK;
}

int close_pool(bantam_pool* pool) {
  if (pool == nullptr) return BANTAM_POOL_OK;
  ServedPools& all = served();
  const std::unique_lock lock(all.guard);
  if (const std::size_t live = pool->pool.live(); live > 0)
    return fail(BANTAM_POOL_IN_USE, (std::to_string(live) + " allocations of the pool are still in use").c_str());
  std::erase_if(all.pools, [&](const auto& entry) { return entry.second == &pool->pool; });
  try {
    synchronize_device(pool->pool.device());  // what was freed may still be read by work that is queued
  } catch (const Error&) {                    // a broken device has nothing under way
  }
  delete pool;
  return BANTAM_POOL_OK;
}

int serve_pool(bantam_pool& handle) {
  SharedPool& pool = handle.pool;
  ServedPools& all = served();
  const std::unique_lock lock(all.guard);
  SharedPool*& now = all.pools[number_of(pool.device())];
  if (now != nullptr && now != &pool && now->live() > 0)
    return fail(BANTAM_POOL_IN_USE, ("another pool serves " + to_string(pool.device()) + ", and is in use").c_str());
  now = &pool;
  return BANTAM_POOL_OK;
}

char* copied(const std::string& text) {
  auto* const copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace

bantam_pool* share_pool(std::shared_ptr<Runtime> runtime, Device device, std::string_view name) {
  if (runtime == nullptr) throw ConfigError("share_pool: no runtime");
  if (name.empty()) throw ConfigError("share_pool: reports need a name for the pool's memory");
  return new bantam_pool{{std::move(runtime), device, name}};
}

}  // namespace bantam

using namespace bantam;

extern "C" {

const char* bantam_pool_last_error(void) { return last_error.c_str(); }

int bantam_pool_open(const char* device, uint64_t limit_bytes, const char* name, bantam_pool** pool) {
  return guarded([&] { return open_pool(device, limit_bytes, name, pool); });
}

int bantam_pool_close(bantam_pool* pool) {
  return guarded([&] { return close_pool(pool); });
}

void* bantam_pool_allocate(bantam_pool* pool, size_t bytes, void* stream) {
  void* address = nullptr;
  (void)guarded([&] {
    address = required(pool, "pool").pool.allocate(bytes, stream);
    return BANTAM_POOL_OK;
  });
  return address;
}

int bantam_pool_free(bantam_pool* pool, void* address) {
  return guarded([&] {
    required(pool, "pool").pool.free(address);
    return BANTAM_POOL_OK;
  });
}

int bantam_pool_use(bantam_pool* pool, void* address, void* stream) {
  return guarded([&] {
    required(pool, "pool").pool.use(address, stream);
    return BANTAM_POOL_OK;
  });
}

int bantam_pool_set_limit(bantam_pool* pool, uint64_t limit_bytes) {
  return guarded([&] {
    const SharedPool& shared = required(pool, "pool").pool;
    shared.runtime().set_limit(shared.device(), limit_bytes);
    return BANTAM_POOL_OK;
  });
}

int bantam_pool_reserve_for(bantam_pool* pool, const char* name, uint64_t bytes) {
  return guarded([&] {
    const SharedPool& shared = required(pool, "pool").pool;
    shared.runtime().set_reservation(shared.device(), &required(name, "name"), bytes);
    return BANTAM_POOL_OK;
  });
}

uint64_t bantam_pool_trim(bantam_pool* pool) {
  uint64_t bytes = 0;
  (void)guarded([&] {
    const SharedPool& shared = required(pool, "pool").pool;
    bytes = shared.runtime().allocator(shared.device()).trim();
    return BANTAM_POOL_OK;
  });
  return bytes;
}

char* bantam_pool_report(bantam_pool* pool, int json) {
  char* text = nullptr;
  (void)guarded([&] {
    const SharedPool& shared = required(pool, "pool").pool;
    const MemoryReport report = shared.runtime().memory_report(shared.device());
    text = copied(json != 0 ? to_json(report) : to_text(report));
    return BANTAM_POOL_OK;
  });
  return text;
}

void bantam_pool_free_text(char* text) { delete[] text; }

int bantam_pool_serve(bantam_pool* pool) {
  return guarded([&] { return serve_pool(required(pool, "pool")); });
}

void* bantam_torch_alloc(size_t bytes, int device, void* stream) {
  ServedPools& all = served();
  const std::shared_lock lock(all.guard);
  const auto found = all.pools.find(device);
  if (found == all.pools.end())
    throw DeviceError("no Bantam pool serves cuda:" + std::to_string(device) + ": bantam_pool_serve names one");
  return found->second->allocate(bytes, stream);
}

void bantam_torch_free(void* address, size_t, int device, void*) {
  ServedPools& all = served();
  const std::shared_lock lock(all.guard);
  const auto found = all.pools.find(device);
  if (found == all.pools.end()) return;  // a closed pool has no memory in use
  (void)guarded([&] {
    found->second->free(address);
    return BANTAM_POOL_OK;
  });
}

void bantam_torch_record_stream(void* address, void* stream) {
  ServedPools& all = served();
  const std::shared_lock lock(all.guard);
  for (const auto& entry : all.pools) {
    SharedPool& pool = *entry.second;
    if (!pool.owns(address)) continue;
    (void)guarded([&] {
      pool.use(address, stream);
      return BANTAM_POOL_OK;
    });
  }
}

void bantam_torch_refuse_graph(void) {
  throw Error("memory of a Bantam pool cannot be recorded in a CUDA graph of PyTorch: a graph uses what was freed");
}

}  // extern "C"
