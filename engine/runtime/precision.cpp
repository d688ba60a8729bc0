// Names and types of the precision policies.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam {

DType Precision::compute() const {
  switch (kind) {
    case PrecisionKind::mixed_float16:
    case PrecisionKind::float16:
      return DType::float16;
    case PrecisionKind::mixed_bfloat16:
      return DType::bfloat16;
    case PrecisionKind::float32:
      break;
  }
  return DType::float32;
}

std::string_view to_string(Precision precision) {
  switch (precision.kind) {
    case PrecisionKind::mixed_float16:
      return "mixed_float16";
    case PrecisionKind::mixed_bfloat16:
      return "mixed_bfloat16";
    case PrecisionKind::float16:
      return "float16";
    case PrecisionKind::float32:
      break;
  }
  return "float32";
}

Precision parse_precision(std::string_view text, Device device) {
  if (text == "auto") return {device.kind == DeviceKind::cuda ? PrecisionKind::mixed_float16 : PrecisionKind::float32};
  for (const PrecisionKind kind :
       {PrecisionKind::float32, PrecisionKind::mixed_float16, PrecisionKind::mixed_bfloat16, PrecisionKind::float16})
    if (text == to_string(Precision{kind})) return {kind};
  throw ConfigError(
      fmt::format("unknown precision '{}'; expected auto, float32, mixed_float16, mixed_bfloat16 or float16", text));
}

}  // namespace bantam
