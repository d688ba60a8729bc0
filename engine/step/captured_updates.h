// CapturedUpdates: whole updates of a TrainingStep, recorded once and replayed without the host.
#pragma once

#include <cstdint>

#include "bantam/kernels/update/narrow_gradients.h"
#include "bantam/memory/device/captured_work.h"

namespace bantam {

/// A recording by TrainingStep::capture: planned updates, with the arena's place and the batches' addresses they were
/// recorded with.
struct CapturedUpdates {
  CapturedWork work;
  int updates = 0;
  const void* arena = nullptr;
  std::uint64_t arena_bytes = 0;
  kernels::NarrowGradients narrow;  ///< gradients that are narrow after them
};

}  // namespace bantam
