// BrokenSamples: samples that cannot be read, which `on_error: skip` has replaced so far, or which were left black.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace bantam {

/// Samples that cannot be read or decoded, each counted once. Thread-safe.
class BrokenSamples {
 public:
  /// The replacement for a broken sample in a batch.
  enum class Place : std::uint8_t {
    next,  ///< the next sample that can be read
    zeros  ///< zeros in all of its fields: whoever uses the batch does not count it
  };
  struct Sample {
    std::string name;    ///< its file, or its number
    std::string reason;  ///< the error's message
  };

  /// Called once for each broken sample, by the thread that reads it; calls do not overlap.
  using OnFound = std::function<void(std::int64_t index, const Sample& sample)>;

  explicit BrokenSamples(Place place = Place::next, OnFound on_found = {})
      : place_(place), on_found_(std::move(on_found)) {}

  Place place() const { return place_; }
  /// `split` tells readers apart whose samples have the same numbers.
  void add(const void* split, std::int64_t index, Sample sample);
  std::int64_t count() const;
  /// The first few that were found, in that order.
  std::vector<Sample> first() const;

 private:
  Place place_;
  OnFound on_found_;
  mutable std::mutex guard_;
  std::set<std::pair<const void*, std::int64_t>> found_;
  std::vector<Sample> first_;
};

}  // namespace bantam
