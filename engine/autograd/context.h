// Context: what every op is given besides its operands: device and stream, tape, precision, pass, layer path, random
// state.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/runtime/precision.h"
#include "bantam/engine/runtime/runtime.h"

namespace bantam {

class PendingGradients;
class Tape;
namespace ops {
struct NormStage;
}

enum class Pass : std::uint8_t {
  train,      ///< forward of a step: dropout on, batch statistics, running statistics move
  recompute,  ///< the same values again during backward: running statistics stay
  evaluate    ///< dropout off, running statistics used
};

/// Which tensors are made again in backward from what is kept anyway (saved_tensor.h).
enum class Derive : std::uint8_t {
  none,
  inner,  ///< what one tensor gives: normalised, activated, dropped-out
  cheap   ///< sums too
};

/// Where the random numbers of a step come from: keys by seed, counters by (update, place in the effective batch,
/// element).
struct RandomState {
  std::uint64_t seed = 0;
  const std::int64_t* update = nullptr;  ///< device memory: updates done
  std::int64_t first_sample = 0;         ///< this micro-batch's place in the effective batch
};

/// Small results of a stretch's first pass (a batch's statistics) that it needs when it runs again, in the order of its
/// ops.
class Keepsakes {
 public:
  void leave(Tensor tensor) { tensors_.push_back(std::move(tensor)); }
  /// From here on tensors are taken, from the first.
  void replay() { replaying_ = true; }
  bool replaying() const { return replaying_; }
  /// Throws Error where more is taken than was left.
  Tensor take();

 private:
  std::vector<Tensor> tensors_;
  std::size_t next_ = 0;
  bool replaying_ = false;
};

/// Scratch memory from the device's allocator for one kernel call, given back in stream order at the end of the scope.
class Scratch {
 public:
  Scratch(BfcAllocator& allocator, std::size_t bytes, Stream stream, const char* owner);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  kernels::Workspace get() const { return {data_, bytes_}; }

 private:
  BfcAllocator& allocator_;
  Stream stream_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A value: copy it to change a field for a scope. Holds no memory.
struct Context {
  Runtime* runtime = nullptr;
  Device device;
  Stream stream;
  kernels::Exec exec;
  Precision precision;
  Pass pass = Pass::train;
  Tape* tape = nullptr;   ///< null: nothing is recorded
  const char* path = "";  ///< layer path, interned: tags allocations
  RandomState random;
  Derive derive = Derive::none;  ///< which ops give their outputs recipes (saved_tensor.h)
  /// Whether the op may leave a norm's last pass to its reader (pending_norm.h): of nodes that `lower` found one for.
  bool defer = false;
  Keepsakes* keepsakes = nullptr;  ///< of the recomputed stretch that runs, or null
  /// Whether the op ends that stretch: see `unread`. Set for layers that heed it only (Layer::heeds_ends_stretch).
  bool ends_stretch = false;
  /// Where gradients of weights may wait in parts (pending_gradients.h); null: they are in the arena after each op.
  PendingGradients* pending = nullptr;
  /// The batch norm that alone reads the op's output, where the op may give the statistics of what it writes
  /// (batch_statistics.h); or null.
  const ops::NormStage* norm_behind = nullptr;

  /// Whether nobody reads the op's output: it ends a stretch that runs again, which only its backward waits for. What
  /// is given back then has the output's shape and type, and may have any values.
  bool unread() const { return ends_stretch && keepsakes != nullptr && keepsakes->replaying(); }

  /// A context on the device's compute stream.
  static Context make(Runtime& runtime, Device device, Precision precision = {});

  /// An uninitialised tensor.
  Tensor allocate(const Shape& shape, DType dtype, Category category = Category::activation) const;
  /// `count` bytes of scratch memory (none for 0).
  Scratch scratch(std::size_t bytes) const;
  /// A tensor with the host's values (copied before this returns; any pageable memory will do). T's dtype is the
  /// tensor's.
  template <class T>
  Tensor upload(const Shape& shape, const T* values, Category category = Category::input) const {
    return upload_bytes(shape, dtype_of<T>, values, category);
  }
  Tensor upload_bytes(const Shape& shape, DType dtype, const void* values, Category category) const;
  /// Throws DeviceError, prefixed by `op`, where a (defined) operand is on another device.
  void check_device(const char* op, std::initializer_list<const Tensor*> operands) const;
  /// This context under another layer path.
  Context at(const char* layer_path) const;
};

}  // namespace bantam
