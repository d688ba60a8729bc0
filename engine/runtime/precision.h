// Precision policies: which type activations and compute copies of weights have, and whether the loss is scaled.
#pragma once

#include <string_view>

#include "bantam/base/dtype.h"
#include "bantam/memory/device/device.h"

namespace bantam {

enum class PrecisionKind : std::uint8_t { float32, mixed_float16, mixed_bfloat16 };

/// float32: everything float32. mixed_*: activations and compute copies in 16 bits; master weights, gradients in the
/// arena, sums, batch-norm parameters and statistics and the loss in float32. Source of the scheme: Micikevicius et al.
/// 2018.
struct Precision {
  PrecisionKind kind = PrecisionKind::float32;
  DType compute() const;
  /// mixed_float16 only: dynamic loss scale, kept on the device.
  bool scales_loss() const { return kind == PrecisionKind::mixed_float16; }
  bool operator==(const Precision&) const = default;
};

/// "float32", "mixed_float16", "mixed_bfloat16".
std::string_view to_string(Precision precision);
/// The inverse, and "auto": mixed_float16 on CUDA, float32 on the CPU. Throws ConfigError naming the text.
Precision parse_precision(std::string_view text, Device device);

}  // namespace bantam
