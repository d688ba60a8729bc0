// The time that tracing adds to a step, and its removal from a recording.
#pragma once

#include <vector>

#include "bantam/run/explain/step_recording.h"

namespace bantam::run {

/// Shortens `updates` so that their mean lasts `plain_seconds`, as updates do that nobody traces: an equal share of the
/// difference comes off each slice, first off the gap before it, then off its own time, of which at least half stays;
/// what is too much for a slice comes off the next ones. The driver writes down each kernel's times, and no kernel
/// starts early meanwhile: both cost about the same for every kernel. Updates keep following one another without a
/// break. Returns the seconds that came off an update; 0 where tracing cost nothing.
double take_off_trace_cost(std::vector<RecordedUpdate>& updates, double plain_seconds);

}  // namespace bantam::run
