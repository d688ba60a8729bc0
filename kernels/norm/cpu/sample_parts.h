// How the CPU cuts the images that are normalised each by itself, and in which order it visits the parts.
#pragma once

#include "bantam/base/parallel.h"
#include "bantam/kernels/common/cpu/column_sums.h"
#include "bantam/kernels/norm/group_norm_parts.h"

namespace bantam::kernels::cpu {

/// How the samples of an image are cut: each into `parts` of its positions.
struct SampleParts {
  explicit SampleParts(const GroupNormShape& s) : shape(s), parts(position_parts(s, DeviceKind::cpu)) {}

  RowBlock positions(std::int64_t part) const {
    return {part_begin(shape.positions, parts, part), part_begin(shape.positions, parts, part + 1)};
  }
  /// The first element of a sample.
  std::int64_t offset(std::int64_t sample) const { return sample * shape.positions * shape.channels; }

  /// Runs first(sample, part) for all parts, middle(sample) after a sample's, last(sample, part) after that: for a
  /// sample of one part all on one thread, one after the other.
  template <class First, class Middle, class Last>
  void run(const Exec& exec, First&& first, Middle&& middle, Last&& last) const {
    if (parts == 1)
      return parallel_parts(shape.samples, exec.threads, [&](std::int64_t sample) {
        first(sample, 0);
        middle(sample);
        last(sample, 0);
      });
    const auto all = [&](auto&& stage) {
      parallel_parts(shape.samples * parts, exec.threads,
                     [&](std::int64_t item) { stage(item / parts, item % parts); });
    };
    all(first);
    parallel_parts(shape.samples, exec.threads, middle);
    all(last);
  }

  GroupNormShape shape;
  std::int64_t parts;
};

}  // namespace bantam::kernels::cpu
