// A map under a mutex: places of handles, and whether the program owns them.
#include "bantam/capi/live.h"

#include <map>
#include <mutex>

namespace bantam::capi {
namespace {

struct Places {
  std::mutex mutex;
  std::map<const Live*, bool> owned;
};

/// It is never destroyed: handles may be, after the program's main.
Places& places() {
  static auto* const all = new Places();
  return *all;
}

}  // namespace

Live::Live() {
  const std::lock_guard lock(places().mutex);
  places().owned.emplace(this, true);
}

Live::~Live() {
  const std::lock_guard lock(places().mutex);
  places().owned.erase(this);
}

void Live::lend() {
  const std::lock_guard lock(places().mutex);
  places().owned[this] = false;
}

bool Live::is_alive(const Live* place) noexcept {
  const std::lock_guard lock(places().mutex);
  return places().owned.contains(place);
}

bool Live::release(const Live* place) noexcept {
  const std::lock_guard lock(places().mutex);
  const auto at = places().owned.find(place);
  if (at == places().owned.end() || !at->second) return false;
  places().owned.erase(at);
  return true;
}

}  // namespace bantam::capi
