// SharedSource: batches in memory, of which a rank gets its share.
#pragma once

#include <cstdint>

#include "tests/engine/engine_fixture.h"

namespace bantam::testing {

/// Passes over other ranks' batches.
class SharedSource : public MemorySource {
 public:
  using MemorySource::MemorySource;
  void set_share(std::int64_t first, std::int64_t count, std::int64_t of) override {
    first_ = first, count_ = count, of_ = of;
  }
  bool next(const Context& context, Batch& batch) override {
    while (MemorySource::next(context, batch))
      if (batch.index % of_ >= first_ && batch.index % of_ < first_ + count_) return true;
    return false;
  }

 private:
  std::int64_t first_ = 0, count_ = 1, of_ = 1;
};

}  // namespace bantam::testing
