// Each exchange says when the next one comes.
#include "bantam/run/ranks/stop_agreement.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "bantam/engine/comm/collectives.h"

namespace bantam::run {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StopAgreement::StopAgreement(RunRanks ranks, double seconds, Clock clock)
    : ranks_(std::move(ranks)), seconds_(seconds), clock_(clock ? std::move(clock) : steady_seconds) {
  if (seconds_ > 0) last_ = clock_();
}

/// As many calls as take `seconds_`, by the last ones; at most about twice as many as before, since the first ones are
/// no measure of those that follow.
int StopAgreement::next_passed() const {
  if (seconds_ <= 0) return 0;
  const double each = (clock_() - last_) / (passed_ + 1);
  const double calls = each > 0 ? seconds_ / each : kMostPassed;
  return static_cast<int>(std::clamp<double>(calls - 1, 0, std::min(2 * passed_ + 1, kMostPassed)));
}

bool StopAgreement::operator()(bool stops) {
  if (stops_ || !ranks_.several()) return stops_ = stops_ || stops;
  if (left_ > 0) {
    --left_;
    return false;
  }
  const std::array<int, 2> mine = {stops ? 1 : 0, next_passed()};
  const std::vector<std::vector<std::byte>> all = all_gather(*ranks_.link, std::as_bytes(std::span(mine)));
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::array<int, 2> said{};
    std::memcpy(said.data(), all[rank].data(), sizeof(said));
    stops_ = stops_ || said[0] != 0;
    if (rank == 0) left_ = passed_ = said[1];
  }
  ++exchanges_;
  if (seconds_ > 0) last_ = clock_();
  return stops_;
}

}  // namespace bantam::run
