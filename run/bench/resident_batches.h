// ResidentBatches: finished batches that lie on the device, gone round for ever, for benches.
#pragma once

#include <limits>
#include <vector>

#include "bantam/engine/train/device_batches.h"

namespace bantam::run {

/// A recording contains the batches that followed when it was made: every launch must begin at the same batch, as it
/// does where each launch uses a multiple of the number of batches.
class ResidentBatches : public DeviceBatches {
 public:
  void add(Batch batch) { batches_.push_back(std::move(batch)); }
  void remove_last() { batches_.pop_back(); }
  const Batch& front() const { return batches_.front(); }
  std::int64_t size() const { return static_cast<std::int64_t>(batches_.size()); }

  std::int64_t left() const override { return std::numeric_limits<std::int64_t>::max(); }
  std::int64_t most_at_once() const override { return size(); }
  Batch make(const Context&, std::int64_t i, std::int64_t) override {
    return batches_[static_cast<std::size_t>((next_ + i) % size())];
  }
  void advance(std::int64_t count) override { next_ = (next_ + count) % size(); }

 private:
  std::vector<Batch> batches_;
  std::int64_t next_ = 0;
};

}  // namespace bantam::run
