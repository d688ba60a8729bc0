// Sums over the positions of each sample on the CPU: parts of a sample in parallel, added in part order.
#pragma once

#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/join/position_parts.h"

namespace bantam::kernels::cpu {

/// Parts of rows' sums (rows, parts, channels), added in part order, times `share`. They may lie in `to`.
template <class F>
void add_position_parts(const Exec& exec, const ChannelScaleShape& s, std::int64_t rows, const float* partials, F* to,
                        float share) {
  const std::int64_t parts = position_parts(s, DeviceKind::cpu);
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / s.channels);
  parallel_ranges(rows, grain, exec.threads, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t n = begin; n < end; ++n)
      for (std::int64_t c = 0; c < s.channels; c += kLanes) {
        const std::int64_t lanes = std::min(kLanes, s.channels - c);
        Float8 sum{};
        for (std::int64_t part = 0; part < parts; ++part)
          sum += load_lanes(partials + (n * parts + part) * s.channels + c, lanes);
        store_lanes(to + n * s.channels + c, lanes, sum * share);
      }
  });
}

/// K sums a sample and channel, times `share`, to (K, samples, channels); `partials`: null where there is one part.
/// add(offset, channel, lanes, sum) as sum_columns calls it, the offset into the whole array.
template <int K, class Add>
void sum_positions(const Exec& exec, const ChannelScaleShape& s, float* partials, float* to, float share, Add&& add) {
  const std::int64_t parts = position_parts(s, DeviceKind::cpu);
  if (partials == nullptr) partials = to;
  parallel_parts(s.samples * parts, exec.threads, [&](std::int64_t i) {
    const std::int64_t part = i % parts, sample = i / parts * s.positions * s.channels;
    const auto terms = add;  // a copy that no other thread sees: what it holds may stay in registers
    float* sums[K];
    for (int k = 0; k < K; ++k) {
      sums[k] = partials + (k * s.samples * parts + i) * s.channels;
      std::fill(sums[k], sums[k] + s.channels, 0.0f);
    }
    sum_columns<K>(
        {part_begin(s.positions, parts, part), part_begin(s.positions, parts, part + 1)}, s.channels, sums,
        [&](std::int64_t at, std::int64_t c, std::int64_t lanes, Float8* sum) { terms(sample + at, c, lanes, sum); });
  });
  add_position_parts(exec, s, K * s.samples, partials, to, share);
}

}  // namespace bantam::kernels::cpu
