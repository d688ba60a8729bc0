// Traces from elsewhere for the planner: a CSV of lifetimes in, offsets out.
#pragma once

#include <cstdint>
#include <string>

namespace bantam::cli {

/// The options of `bantam plan --trace`.
struct TraceOptions {
  std::string file, offsets_file;
  std::uint64_t capacity = 0;
  double seconds = 1.0;
  bool json = false;
};

/// Reads the file (header with id, lower, upper and size, in any order; other columns are left alone), solves it and
/// prints the result. Returns the exit code: 4 where a capacity was set and is exceeded. Throws DataError with file and
/// line.
int plan_trace(const TraceOptions& options);

}  // namespace bantam::cli
