// The gate's gradient keeps these arrays in its workspace between its kernels.
#pragma once

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/join/squeeze_excite.h"

namespace bantam::kernels {

/// Gradients of `expanded` (samples, channels) and of `reduced` (samples, units).
struct SqueezeExciteScratch {
  float *dexpanded = nullptr, *dreduced = nullptr;

  SqueezeExciteScratch(const SqueezeExciteShape& shape, Workspace workspace) {
    WorkspaceCutter cutter(workspace);
    dexpanded = cutter.cut<float>(static_cast<std::size_t>(shape.samples * shape.channels) * sizeof(float));
    dreduced = cutter.cut<float>(static_cast<std::size_t>(shape.samples * shape.units) * sizeof(float));
  }
};

}  // namespace bantam::kernels
