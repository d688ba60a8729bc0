// A word of page-locked memory.
#include "bantam/engine/comm/device/failure_word.h"

#include <atomic>

#include "bantam/memory/pages/region_source.h"

namespace bantam {
namespace {

constexpr std::size_t kBytes = 4096;

}  // namespace

FailureWord::FailureWord() : word_(static_cast<std::uint32_t*>(make_pinned_source()->acquire(kBytes))) {
  if (word_ == nullptr) throw DeviceError("no page-locked memory for a word that GPUs read");
  std::atomic_ref(*word_).store(0);
}

FailureWord::~FailureWord() { make_pinned_source()->release(word_, kBytes); }

void FailureWord::set() noexcept { std::atomic_ref(*word_).store(1); }

std::shared_ptr<FailureWord> FailureWord::of(Communicator& ranks) {
  auto word = std::make_shared<FailureWord>();
  ranks.on_failure([word] { word->set(); });
  return word;
}

}  // namespace bantam
