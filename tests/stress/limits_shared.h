// What the processes of the limits stress tell each other: one block of shared memory, handed on as a file descriptor.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <new>
#include <stdexcept>

#include <sys/mman.h>
#include <unistd.h>

namespace bantam::stress {

/// Updates of one training run: step by step from the program's own batches, then an epoch of a Trainer, whose updates
/// are captured on a GPU.
inline constexpr int kSteps = 24, kEpoch = 40, kUpdates = kSteps + kEpoch;
inline constexpr int kTrainers = 2;

/// One training process, as the monitor sees it. Sizes in bytes.
struct TrainerFacts {
  /// Not less than the limit at any time: raised before the limit is, lowered after it was.
  std::atomic<std::uint64_t> bound{0};
  std::atomic<std::uint64_t> runs{0}, mismatches{0}, changes{0}, refusals{0};
  std::atomic<std::uint64_t> log_lines{0};  ///< of the runtime: recordings given up, updates that ran planned instead
  std::atomic<std::uint64_t> pool_samples{0}, pool_violations{0};  ///< counted by the process itself
  std::atomic<bool> failed{false};
  std::array<char, 1024> error{};
};

struct SharedFacts {
  std::atomic<bool> stop{false};
  std::array<float, kUpdates> losses{};        ///< of the undisturbed run
  std::atomic<std::uint64_t> weights_hash{0};  ///< after it
  std::atomic<std::uint64_t> overhead{0};      ///< of a process, reserve included
  std::atomic<std::uint64_t> pool{0};          ///< that a run gets by with
  std::array<TrainerFacts, kTrainers> trainers;
};

/// The block behind `descriptor`, mapped until the process ends; made where `fresh`.
inline SharedFacts& map_shared(int descriptor, bool fresh) {
  if (fresh && ftruncate(descriptor, sizeof(SharedFacts)) != 0) throw std::runtime_error("ftruncate failed");
  void* memory = mmap(nullptr, sizeof(SharedFacts), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("mmap failed");
  return fresh ? *new (memory) SharedFacts : *static_cast<SharedFacts*>(memory);
}

}  // namespace bantam::stress
