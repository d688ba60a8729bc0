// PartRecorder: which thread of the process' pool worked when, for profiles.
#pragma once

#include <cstdint>
#include <vector>

namespace bantam {

/// One activity of a thread in a call of `run_parts` (parallel.h): running parts, or (the caller) waiting for others.
struct PartSpan {
  int thread = 0;  ///< 0: a caller; the pool's workers count from 1
  bool waits = false;
  std::int64_t begin_ns = 0, end_ns = 0;  ///< of the steady clock
};

/// Records the spans of all calls from its construction until `stop`. One at a time. Calls that run on their caller
/// alone (one part, one thread) are not in it. Without a recorder a call costs what it did.
class PartRecorder {
 public:
  PartRecorder();
  ~PartRecorder();
  PartRecorder(const PartRecorder&) = delete;
  PartRecorder& operator=(const PartRecorder&) = delete;

  /// The spans so far, by their beginning; none is recorded from here on.
  std::vector<PartSpan> stop();
};

}  // namespace bantam
