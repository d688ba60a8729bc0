// StepMode: how steps run. Results are the same bits in every mode.
#pragma once

#include <cstdint>
#include <string_view>

#include "bantam/memory/device/device.h"

namespace bantam {

enum class StepMode : std::uint8_t {
  eager,    ///< each allocation as it comes: for looking into a step, and for programs' own loops
  planned,  ///< at offsets of one arena, solved before the first step
  captured  ///< CUDA: planned updates recorded once, and run several a launch; elsewhere as `planned`
};

/// "eager", "planned", "captured".
std::string_view to_string(StepMode mode);
/// The inverse, and "auto", which is captured. On the CPU captured is planned (on a stand-in for CUDA it is not), so
/// that what is reported is what runs. Throws ConfigError naming the text.
StepMode parse_step_mode(std::string_view text, Device device);

}  // namespace bantam
