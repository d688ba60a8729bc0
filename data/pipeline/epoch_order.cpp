// Full and windowed shuffles, and draws by weight, from Philox words.
#include "bantam/data/pipeline/epoch_order.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

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

SampleWeights balanced_weights(std::vector<std::int32_t> groups) {
  std::vector<std::int64_t> sizes;
  for (const std::int32_t group : groups) {
    if (group >= std::ssize(sizes)) sizes.resize(static_cast<std::size_t>(group) + 1);
    ++sizes[static_cast<std::size_t>(group)];
  }
  SampleWeights weights;
  for (const std::int32_t group : groups)
    weights.weights.push_back(1.0f / static_cast<float>(sizes[static_cast<std::size_t>(group)]));
  weights.groups = std::move(groups);
  return weights;
}

std::vector<std::int32_t> weighted_order(const SampleWeights& weights, std::int64_t count, std::uint64_t seed,
                                         std::int64_t epoch) {
  PhiloxSequence random(philox_key(seed, RandomPurpose::shuffle, static_cast<std::uint64_t>(epoch)));
  std::vector<std::int32_t> list(weights.weights.size());
  std::iota(list.begin(), list.end(), 0);
  shuffle_all(list, random);
  const auto weight_of = [&](std::int32_t sample) { return weights.weights[static_cast<std::size_t>(sample)]; };
  if (!weights.groups.empty())
    std::ranges::stable_sort(list, {}, [&](std::int32_t i) { return weights.groups[static_cast<std::size_t>(i)]; });
  double total = 0;
  for (const std::int32_t sample : list) total += weight_of(sample);
  const double step = total / static_cast<double>(count), start = step * uniform01(random.next());
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(count));
  double end = 0;  // of the sample's part of [0, total)
  std::int32_t last = 0;
  for (const std::int32_t sample : list) {
    if (weight_of(sample) == 0) continue;
    end += weight_of(last = sample);
    while (std::ssize(order) < count && start + step * static_cast<double>(order.size()) < end) order.push_back(sample);
  }
  order.resize(static_cast<std::size_t>(count), last);  // where sums of rounded parts end early
  shuffle_all(order, random);
  return order;
}

std::vector<std::int32_t> consecutive_order(std::int64_t samples, std::int64_t first, std::int64_t count,
                                            const ShuffleOptions* shuffle, std::uint64_t seed) {
  std::vector<std::int32_t> order;
  order.reserve(static_cast<std::size_t>(count));
  while (count > 0) {
    const std::int64_t skipped = first % samples, taken = std::min(count, samples - skipped);
    std::vector<std::int32_t> all(static_cast<std::size_t>(samples));
    if (shuffle != nullptr)
      all = shuffled_order(samples, shuffle->buffer, shuffle->seed.value_or(seed), first / samples);
    else
      std::iota(all.begin(), all.end(), 0);
    order.insert(order.end(), all.begin() + skipped, all.begin() + skipped + taken);
    first += taken;
    count -= taken;
  }
  return order;
}

std::vector<std::int32_t> passes_of(const std::vector<std::int32_t>& order, std::int64_t samples) {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(samples)), passes;
  passes.reserve(order.size());
  for (const std::int32_t sample : order) passes.push_back(counts[static_cast<std::size_t>(sample)]++);
  return passes;
}

}  // namespace bantam
