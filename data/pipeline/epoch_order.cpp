// Full and windowed shuffles from Philox words.
#include "bantam/data/pipeline/epoch_order.h"

#include <algorithm>
#include <numeric>

#include "bantam/base/philox.h"

namespace bantam {
namespace {

/// Fisher and Yates' shuffle (Durstenfeld's form): each place gets one of those not yet placed.
void shuffle_all(std::vector<std::int32_t>& order, PhiloxSequence& random) {
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
}

/// The next sample in order replaces the one drawn from the window; at the end the window drains.
std::vector<std::int32_t> shuffle_window(std::int64_t samples, std::size_t buffer, PhiloxSequence& random) {
  std::vector<std::int32_t> window(buffer);
  std::iota(window.begin(), window.end(), 0);
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(samples));
  for (std::int64_t incoming = static_cast<std::int64_t>(buffer); !window.empty(); ++incoming) {
    std::int32_t& drawn = window[random.below(window.size())];
    order.push_back(drawn);
    if (incoming < samples) {
      drawn = static_cast<std::int32_t>(incoming);
    } else {
      drawn = window.back();
      window.pop_back();
    }
  }
  return order;
}

}  // namespace

std::vector<std::int32_t> shuffled_order(std::int64_t samples, std::int64_t buffer, std::uint64_t seed,
                                         std::int64_t epoch) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::shuffle, static_cast<std::uint64_t>(epoch)));
  if (buffer > 0 && buffer < samples) return shuffle_window(samples, static_cast<std::size_t>(buffer), random);
  std::vector<std::int32_t> order(static_cast<std::size_t>(samples));
  std::iota(order.begin(), order.end(), 0);
  shuffle_all(order, random);
  return order;
}

}  // namespace bantam
