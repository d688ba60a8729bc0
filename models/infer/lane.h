// Lane: what one call of a Predictor at a time works in: a stream, an arena, staging memory, and captured passes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "bantam/engine/model/model.h"
#include "bantam/memory/allocator/allocator.h"
#include "bantam/memory/allocator/placement.h"
#include "bantam/memory/device/captured_work.h"
#include "bantam/memory/device/device.h"

namespace bantam {

/// Where the allocations of a pass lie, by its number of samples.
struct PassPlans {
  std::map<std::int64_t, std::shared_ptr<const PlacementPlan>> by_size;  ///< null: the pass allocates nothing

  std::uint64_t arena_bytes() const;
  /// Traced on the meta stand-in of `device`, in a runtime of its own, for each size. Throws Error where something that
  /// a pass allocates outlives it.
  static PassPlans of(const Graph& graph, const ModelOptions& options, Device device,
                      std::span<const std::int64_t> sizes);
};

/// Used by one thread at a time. The model, its runtime and the plans must outlive it.
class Lane {
 public:
  /// On a GPU every size runs once and is then captured. Throws OutOfMemory.
  Lane(Model& model, const PassPlans& plans);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// A pass of `size` samples, a size of the plans, of which the first `samples` are the caller's: on a GPU the others
  /// have any values, elsewhere there are none. Returns once `outputs` are there.
  void run(std::int64_t size, std::int64_t samples, const float* inputs, float* outputs);
  /// The captured pass alone, on the inputs that lie on the device; waits for its outputs. Nothing on other devices
  /// than GPUs.
  void run_resident(std::int64_t size);

  /// Device memory of the lane: its arena and, on a GPU, the staged inputs.
  std::uint64_t bytes() const { return block_bytes_ + (staging_.defined() ? staging_.bytes() : 0); }

 private:
  /// Waits for the stream when it is destroyed, before the memory that its work uses is released.
  struct Drained {
    Stream stream;
    explicit Drained(Stream waited) : stream(waited) {}
    ~Drained();
    Drained(const Drained&) = delete;
    Drained& operator=(const Drained&) = delete;
  };
  void reserve_arena();
  void pass(std::int64_t size, const float* from, float* to);
  void make_staging(std::int64_t most);
  void capture(std::int64_t size);
  void upload(const float* inputs, std::size_t bytes);

  Model& model_;
  const PassPlans& plans_;
  OwnedStream stream_;
  Context context_;
  std::uint64_t block_bytes_ = 0;
  std::unique_ptr<BfcAllocator> memory_;  // of the arena alone
  Tensor staging_;                        // GPU: inputs on the device, float32
  Tensor host_inputs_, host_outputs_;     // GPU: page-locked
  std::map<std::int64_t, CapturedWork> captured_;
  Drained drained_{stream_.get()};  // the first to be destroyed, also where the constructor throws
};

}  // namespace bantam
