// The files of a memory profile, each made from the same trace and reconciling with it to the byte.
#pragma once

#include <string>

#include "bantam/base/json.h"
#include "bantam/cli/options/run_names.h"
#include "bantam/run/profile/memory_profile.h"

namespace bantam::cli {

/// model, batch, precision, recompute, device, accumulate; target, where the device is a stand-in.
nlohmann::ordered_json about_json(const MemoryProfile& profile);

/// One row an event; the first line names the columns.
std::string events_csv(const MemoryProfile& profile);

/// For Perfetto and chrome://tracing (the JSON trace event format): a counter a category, slices for steps, phases and
/// layers, an instant an allocation and a free. A layer's slice begins with its first allocation.
std::string trace_json(const MemoryProfile& profile);

/// For PyTorch's memory_viz: what torch.cuda.memory._snapshot() returns, pickled (protocol 4). Sizes of events are
/// rounded ones, so that the timeline's peak is MemoryStats::peak_bytes.
std::string snapshot_pickle(const MemoryProfile& profile);

/// One self-contained HTML page.
std::string report_html(const MemoryProfile& profile);

}  // namespace bantam::cli
