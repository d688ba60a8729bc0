// The training side of the limits stress: an undisturbed run, and runs whose limit moves all the time.
#pragma once

#include "bantam/memory/device/device.h"
#include "tests/stress/limits_shared.h"

namespace bantam::stress {

/// Trains once without a limit; notes losses, weights and what memory it takes.
void run_undisturbed(SharedFacts& shared, Device device);

/// Trains the same again and again until `shared.stop`, while a thread moves the process' limit at random (also to
/// limits that must be refused) and another samples the pool.
void run_disturbed(SharedFacts& shared, int trainer, Device device, std::uint64_t seed);

}  // namespace bantam::stress
