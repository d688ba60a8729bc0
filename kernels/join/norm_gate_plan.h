// The scratch memory of a norm before squeeze-and-excitation.
#pragma once

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/join/norm_gate.h"
#include "bantam/kernels/join/position_parts.h"

namespace bantam::kernels {

/// Vectors (channels): the norm's totals Σ dz and Σ dz·x̂; the CPU's factor and shift of the norm.
inline constexpr std::int64_t kNormGateVectors = 4;

struct NormGateScratch {
  float *totals = nullptr, *norm = nullptr;  ///< (2, channels) each
  float* partials = nullptr;                 ///< (sums, samples, parts, channels); null where there is one part

  NormGateScratch(const ChannelScaleShape& s, DeviceKind target, Workspace workspace, const char* kernel) {
    require_workspace(workspace, norm_gate_workspace_bytes(s, target), kernel);
    WorkspaceCutter cutter(workspace);
    totals = cutter.cut<float>(static_cast<std::size_t>(kNormGateVectors * s.channels) * sizeof(float));
    norm = totals + 2 * s.channels;
    if (position_parts(s, target) > 1) partials = cutter.cut<float>(0);
  }
};

}  // namespace bantam::kernels
