// StepMode: how steps run. Results are the same bits in every mode.
#pragma once

#include <cstdint>
#include <string_view>

#include "bantam/memory/device.h"

namespace bantam {

enum class StepMode : std::uint8_t {
  eager,    ///< each allocation as it comes: for looking into a step, and for programs' own loops
  planned,  ///< at offsets of one arena, solved before the first step
  captured  ///< CUDA: planned updates recorded once, and run several a launch; elsewhere as planned
};

/// "eager", "planned", "captured".
std::string_view to_string(StepMode mode);
/// The inverse, and "auto": captured on CUDA (a stand-in for it too), planned on the CPU. Throws ConfigError naming the
/// text.
StepMode parse_step_mode(std::string_view text, Device device);

}  // namespace bantam
