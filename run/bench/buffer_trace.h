// BufferTrace: lifetimes of buffers from elsewhere, read from a CSV file, for planners and allocators.
#pragma once

#include <string>
#include <vector>

#include "bantam/packing/planner.h"

namespace bantam::run {

/// Lifetimes from a file, in its order; ids as they stand there.
struct BufferTrace {
  std::vector<std::string> ids;
  std::vector<PlannerBuffer> buffers;
};

/// Reads a CSV with a header that has id, lower, upper and size, in any order; other columns are passed over. Throws
/// DataError with file and line.
BufferTrace read_buffer_trace(const std::string& file);

}  // namespace bantam::run
