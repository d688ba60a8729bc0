// The scratch memory of a norm before squeeze-and-excitation.
#pragma once

#include "bantam/kernels/common/workspace_layout.h"
#include "bantam/kernels/join/norm_gate.h"
#include "bantam/kernels/join/position_parts.h"

namespace bantam::kernels {

/// Vectors (channels): the norm's totals Σ dz and Σ dz·x̂; the CPU's factor and shift of the norm.
inline constexpr std::int64_t kNormGateVectors = 4;

/// Channels of a thread on CUDA: backward keeps five sums of each.
inline constexpr std::int64_t kNormGatePack = 4;

/// Parts of each sample's positions. On CUDA for two rounds of three blocks on every multiprocessor of the reference
/// GPU: the passes are bound by instructions as much as by bytes.
inline std::int64_t norm_gate_parts(const ChannelScaleShape& s, DeviceKind target) {
  if (target != DeviceKind::cuda || s.elements() <= 0) return position_parts(s, target);
  const std::int64_t columns = (s.channels + 32 * kNormGatePack - 1) / (32 * kNormGatePack);
  return std::clamp<std::int64_t>(6 * kReferenceMultiprocessors / (s.samples * columns), 1, (s.positions + 127) / 128);
}

struct NormGateScratch {
  float *totals = nullptr, *norm = nullptr;  ///< (2, channels) each
  float* partials = nullptr;                 ///< (sums, samples, parts, channels); null where there is one part

  NormGateScratch(const ChannelScaleShape& s, DeviceKind target, Workspace workspace, const char* kernel) {
    require_workspace(workspace, norm_gate_workspace_bytes(s, target), kernel);
    WorkspaceCutter cutter(workspace);
    totals = cutter.cut<float>(static_cast<std::size_t>(kNormGateVectors * s.channels) * sizeof(float));
    norm = totals + 2 * s.channels;
    if (norm_gate_parts(s, target) > 1) partials = cutter.cut<float>(0);
  }
};

}  // namespace bantam::kernels
