// FailureWord: what kernels that wait for other ranks look at, so that they end when a rank has failed.
#pragma once

#include <cstdint>
#include <memory>

#include "bantam/engine/comm/communicator.h"

namespace bantam {

/// A word of host memory that devices read: 0, and 1 once the communicator knows of a failure. Shared with the
/// communicator, which may hear of one when nobody else needs it any more.
class FailureWord {
 public:
  static std::shared_ptr<FailureWord> of(Communicator& ranks);
  FailureWord();
  ~FailureWord();
  FailureWord(const FailureWord&) = delete;
  FailureWord& operator=(const FailureWord&) = delete;

  const std::uint32_t* address() const { return word_; }
  void set() noexcept;

 private:
  std::uint32_t* word_ = nullptr;
};

}  // namespace bantam
