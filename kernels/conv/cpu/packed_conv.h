// A convolution over packed weights, on all threads: pixels' patches, read where they lie, times panels of filters.
#pragma once

#include "bantam/kernels/conv/packed_plan.h"
#include "bantam/kernels/elementwise/epilogue.h"

namespace bantam::kernels::cpu {

/// Float images, and weights as `pack_panels` orders them.
struct PackedConv {
  const float* x = nullptr;
  const float* w = nullptr;
  Epilogue epilogue;
  float* y = nullptr;
};

/// Workspace of plan_packed(conv). Nothing aliases. Bits depend on shapes only.
void packed_conv(const WindowConv& conv, const PackedConv& operands, int threads, Workspace workspace);

}  // namespace bantam::kernels::cpu
