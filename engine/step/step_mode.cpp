// Names of the step's modes.
#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/step/training_step.h"

namespace bantam {

std::string_view to_string(StepMode mode) {
  switch (mode) {
    case StepMode::eager:
      return "eager";
    case StepMode::planned:
      return "planned";
    case StepMode::captured:
      break;
  }
  return "captured";
}

StepMode parse_step_mode(std::string_view text, Device device) {
  if (text == "auto" || text == to_string(StepMode::captured))
    return device.kind == DeviceKind::cuda ? StepMode::captured : StepMode::planned;
  for (const StepMode mode : {StepMode::eager, StepMode::planned})
    if (text == to_string(mode)) return mode;
  throw ConfigError(fmt::format("expected a mode: auto, eager, planned or captured, got '{}'", text));
}

}  // namespace bantam
