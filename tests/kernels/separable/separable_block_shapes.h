// Test support: shapes of separable blocks, with every kind of edge.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "bantam/kernels/separable/separable_block.h"

namespace bantam::testing {

inline std::string name_of(const kernels::SeparableBlockShape& s) {
  return (::testing::Message() << "n" << s.batch << " " << s.in_h << "x" << s.in_w << "x" << s.in_channels << " to "
                               << s.out_channels << " pad " << s.pad_top << s.pad_bottom << s.pad_left << s.pad_right
                               << " pool " << s.pool << (s.bias ? " bias" : "") << (s.relu ? " relu" : ""))
      .GetString();
}

/// Every number of input channels that kernels tell apart, with and without pooling, bias, ReLU and padding; widths and
/// heights that do not divide evenly; and the two blocks of the CIFAR-10 model.
inline std::vector<kernels::SeparableBlockShape> separable_block_shapes() {
  std::vector<kernels::SeparableBlockShape> all;
  const std::int64_t outs[] = {8, 24, 32, 40, 64, 128};
  std::int64_t i = 0;
  for (const std::int64_t channels : {1, 2, 3, 4, 8, 16, 24, 32, 40, 64}) {
    for (const std::int64_t pool : {1, 2}) {
      const std::int64_t same = i % 2;
      all.push_back({.batch = 1 + i % 3,
                     .in_h = 9 + i % 4,
                     .in_w = 11 - i % 5,
                     .in_channels = channels,
                     .out_channels = outs[i % 6],
                     .pad_top = same,
                     .pad_bottom = same,
                     .pad_left = same,
                     .pad_right = same,
                     .pool = pool,
                     .bias = i % 3 != 0,
                     .relu = i % 4 != 3});
      ++i;
    }
  }
  all.push_back({.batch = 2, .in_h = 32, .in_w = 32, .in_channels = 3, .out_channels = 32, .pool = 2});
  all.push_back({.batch = 3, .in_h = 15, .in_w = 15, .in_channels = 32, .out_channels = 64});
  all.push_back({.batch = 1,
                 .in_h = 5,
                 .in_w = 23,
                 .in_channels = 3,
                 .out_channels = 16,
                 .pad_top = 2,
                 .pad_left = 1,
                 .pad_right = 2,
                 .pool = 2});
  all.push_back({.batch = 130, .in_h = 6, .in_w = 5, .in_channels = 8, .out_channels = 8, .pad_bottom = 1, .pool = 2});
  all.push_back({.batch = 700, .in_h = 4, .in_w = 4, .in_channels = 3, .out_channels = 8});
  all.push_back({.batch = 2,
                 .in_h = 33,
                 .in_w = 32,
                 .in_channels = 64,
                 .out_channels = 96,
                 .pad_top = 1,
                 .pad_bottom = 1,
                 .pad_left = 1,
                 .pad_right = 1,
                 .pool = 2});
  all.push_back({.batch = 2, .in_h = 3, .in_w = 3, .in_channels = 16, .out_channels = 8});
  return all;
}

}  // namespace bantam::testing
