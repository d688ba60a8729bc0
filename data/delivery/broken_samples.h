// BrokenSamples: what `on_error: skip` has replaced so far.
#pragma once

#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace bantam {

/// Samples that cannot be read or decoded, each counted once. Thread-safe.
class BrokenSamples {
 public:
  struct Sample {
    std::string name;    ///< its file, or its number
    std::string reason;  ///< the error's message
  };

  /// `split` tells readers apart whose samples have the same numbers.
  void add(const void* split, std::int64_t index, Sample sample);
  std::int64_t count() const;
  /// The first few that were found, in that order.
  std::vector<Sample> first() const;

 private:
  mutable std::mutex guard_;
  std::set<std::pair<const void*, std::int64_t>> found_;
  std::vector<Sample> first_;
};

}  // namespace bantam
