// Context: what every op receives besides its operands: device and stream, tape, precision, pass, layer path, random
// state; and the cast that puts a program's tensors into the precision's type.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "bantam/base/api.h"
#include "bantam/engine/autograd/tensor.h"
#include "bantam/engine/runtime/runtime.h"

BANTAM_API_BEGIN
namespace bantam {

class BANTAM_INTERNAL PartialGradients;
class BANTAM_INTERNAL NormSync;
struct BANTAM_INTERNAL NodePlan;
class Tape;

enum class Pass : std::uint8_t {
  train,      ///< forward of a step: dropout on, batch statistics, running statistics move
  recompute,  ///< the same values, recomputed during backward: running statistics stay
  evaluate    ///< dropout off, running statistics used
};

/// Where the random numbers of a step come from: keys by seed, counters by (update, place in the effective batch,
/// element).
struct RandomState {
  std::uint64_t seed = 0;
  const std::int64_t* update = nullptr;  ///< device memory: updates done
  std::int64_t first_sample = 0;         ///< this micro-batch's place in the effective batch
};

/// Small results of a checkpoint segment's first pass (batch statistics, masks) that its recompute reads, in the order
/// of its ops.
class SavedStatistics {
 public:
  void save(Tensor tensor) { tensors_.push_back(std::move(tensor)); }
  /// From here on tensors are read back, from the first.
  void replay() { replaying_ = true; }
  bool replaying() const { return replaying_; }
  /// Throws Error where more is read than was saved.
  Tensor next();

 private:
  std::vector<Tensor> tensors_;
  std::size_t next_ = 0;
  bool replaying_ = false;
};

/// Scratch memory from the device's allocator for one kernel call, released in stream order when the scope ends.
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

/// The objects of a training step that its ops use. A loop written without TrainingStep may leave all of them null.
struct StepState {
  SavedStatistics* saved = nullptr;  ///< of the checkpoint segment that runs
  /// Where gradients of weights may stay split or narrow until the update (partial_gradients.h); null: they are in the
  /// arena after each op.
  PartialGradients* gradients = nullptr;
  NormSync* norms = nullptr;  ///< of batch norms whose statistics are those of all ranks; null: of this rank's batch
  /// The micro-batch's samples, of those of a full batch: running statistics move by as much less.
  float batch_share = 1.0f;
};

/// A value: copy it to change a field for a scope. Holds no memory.
struct Context {
  Runtime* runtime = nullptr;
  Device device;
  Stream stream;
  kernels::Exec exec;
  /// Where tensors and scratch memory come from; null: the runtime's allocator of the device.
  BfcAllocator* memory = nullptr;
  Precision precision;
  Pass pass = Pass::train;
  Tape* tape = nullptr;   ///< null: nothing is recorded
  const char* path = "";  ///< layer path, interned: tags allocations
  RandomState random;
  const NodePlan* node = nullptr;  ///< what was decided about the operation that runs (node_plan.h); null: nothing
  StepState step;

  /// The operation's plan; one without any decision where there is none.
  const NodePlan& plan() const;
  /// The context of an op that does not write the node's output: it runs under no plan.
  Context inner() const;
  /// Whether a checkpoint segment is being recomputed, with the statistics of its first pass.
  bool replays() const { return step.saved != nullptr && step.saved->replaying(); }
  /// Whether nobody reads the op's output: it ends a segment that is being recomputed, and only its backward is wanted.
  /// The op may then skip its work and return a tensor of the output's shape and type with any values.
  bool output_unused() const;

  /// A context on the device's compute stream.
  static Context make(Runtime& runtime, Device device, Precision precision = {});

  BfcAllocator& allocator() const { return memory != nullptr ? *memory : runtime->allocator(device); }
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

namespace bantam::ops {

/// x as `dtype` (float32, float16, bfloat16); x itself where it has it already. The gradient is cast back.
Tensor cast(const Context& context, const Tensor& x, DType dtype);

}  // namespace bantam::ops
BANTAM_API_END
