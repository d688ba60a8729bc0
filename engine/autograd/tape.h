// Tape: what backward needs, recorded op by op (a Wengert list), walked once in reverse, and Gradient: a value's
// gradient on its way backwards, as a tensor, or deferred: as operands that the op it reaches combines as it reads
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "bantam/base/activation.h"
#include "bantam/base/api.h"
#include "bantam/engine/autograd/context.h"
#include "bantam/engine/autograd/tensor.h"

BANTAM_API_BEGIN
namespace bantam {

/// A tensor, or a deferred gradient f'·(value + other), which the backward of a residual sum with an activation passes
/// to the ops before it. A handle: copies share the operands, and the first to compute the tensor computes it for all.
/// Not thread-safe; one step on one stream.
class Gradient {
 public:
  struct NormInput;  ///< internal
  struct Operands;   ///< internal

  Gradient() = default;
  Gradient(Tensor value);  // NOLINT: a tensor is a gradient
  /// value + other, of one shape and type.
  Gradient(Tensor value, Tensor other);
  /// The gradient of a norm's input x, from dz.
  Gradient(Tensor dz, NormInput norm);
  /// The gradient of a SumActivation (tensor_notes.h), multiplied by relu' already, and its sums; `observed`: without
  /// relu', undefined where nobody observes it.
  static Gradient of_sum(Tensor masked, Tensor sums, Tensor observed);

  bool defined() const { return operands_ != nullptr; }
  bool is_deferred() const;
  bool of_norm() const;
  /// Whether other handles share these operands.
  bool shared() const { return operands_.use_count() > 1; }
  /// For ops that compute with them; an op that computes the tensor stores it in `value` and clears the others.
  Operands& operands() { return *operands_; }
  const Tensor& value() const;

  /// This gradient times f', whose mask is `mask`. Replaces this one.
  Gradient masked(const Context& context, Tensor mask, ActivationFunction f) &&;
  /// The tensor, computed into the memory of an operand where nobody else owns that. Moved out of the last copy, so
  /// that the result is its only owner. Throws OutOfMemory.
  Tensor tensor(const Context& context) &&;

 private:
  std::shared_ptr<Operands> operands_;
};

/// Where a parameter's gradient goes: float32, in the arena. The first write of an effective batch overwrites, later
/// ones add.
struct ParameterGradient {
  float* data = nullptr;
  bool accumulate = false;
};

/// Gradients of values during one backward pass.
class GradientStore {
 public:
  /// Adds a gradient of a value (ignored where none is wanted). A second one for the same value is summed with the
  /// first, or kept as its `other` operand where the value's own op comes next; a parameter's goes to the arena, in
  /// float32.
  void add(const Context& context, const ValueRef& value, Gradient gradient);
  /// For an op that adds its gradient of a value as it writes, and then adds the sum to the store: removes what the
  /// store has and returns it; undefined where that is nothing. Never of a parameter's.
  Tensor pop_addend(const Context& context, const ValueRef& value);
  /// Returns what pop_addend does, also to an op within a recomputed segment where others contributed outside of it, so
  /// that the op adds with recompute what it adds without; undefined where nobody did.
  Tensor pop_rest(const Context& context, const ValueRef& value);
  /// Whether a gradient hook will be told of gradients.
  bool observed() const { return observed_; }
  /// Whether the op that made the value is the next that backward runs. Gradients are deferred no longer than that,
  /// because their operands stay alive.
  bool comes_next(const ValueRef& value) const { return value.id != 0 && value.id == next_; }
  /// Removes the gradient of a value from the store and returns it, after backward; undefined where nothing flowed. A
  /// deferred gradient is computed now, in the context of the backward pass.
  Tensor pop(std::uint64_t id);
  /// The same as it is; undefined where nothing flowed.
  Gradient pop_gradient(std::uint64_t id);
  /// This store belongs to the backward of a recomputed segment, in which `id` stands for a value of the outer one.
  /// Gradients are summed in the same order as without recompute: a second one of `id` is added to the sum of `outer`'s
  /// gradient of `value` and the first. This store then has the whole sum; a single gradient of `id` is still to be
  /// added to the outer one's.
  void continues(std::uint64_t id, GradientStore& outer, const ValueRef& value);
  /// The destination for a parameter's gradient, and tells the parameter that it is written now.
  ParameterGradient parameter(Parameter& parameter);
  /// Notes that the backward of a recomputed segment wrote a parameter's gradient.
  void note_written(Parameter& parameter) { written_.push_back(&parameter); }
  /// Parameters written since the last call.
  std::vector<Parameter*> pop_written();

 private:
  friend class Tape;  // sets which op comes next
  void add_to_parameter(const Context& context, Parameter& parameter, const Tensor& gradient);
  Tensor sum_so_far(const Context& context, std::uint64_t id, Gradient here);

  struct Outer {
    GradientStore* store = nullptr;
    std::uint64_t id = 0;
  };
  std::unordered_map<std::uint64_t, Outer> outer_;  // by own id, until the sum was taken over
  Context context_;                                 // of the backward pass
  std::vector<Parameter*> written_;
  std::unordered_map<std::uint64_t, Gradient> gradients_;
  std::uint64_t next_ = 0;
  bool observed_ = false;
};

/// A list of backward closures. Not thread-safe; one step on one stream.
class Tape {
 public:
  /// Computes inputs' gradients from the output's. May reuse `dy`'s memory where it is its sole owner. The context has
  /// the path under which the op was recorded, no tape, and the pass of `backward`.
  using Backward = std::function<void(const Context&, Tensor dy, GradientStore&)>;
  /// The same, of an op that accepts a deferred gradient.
  using DeferredBackward = std::function<void(const Context&, Gradient dy, GradientStore&)>;
  /// Told each time a parameter's gradient is written: in the backward order, once for each op that reads the
  /// parameter.
  using ParameterHook = std::function<void(Parameter&)>;
  /// Told of each op's output gradient, with the path it was recorded under, before the op's backward. The gradient is
  /// then computed as a tensor, also where it would have been deferred.
  using GradientHook = std::function<void(const char* path, const Tensor& dy)>;

  /// Assigns `output` an identity and stores the closure, which captures only what backward reads.
  void record(const Context& context, Tensor& output, Backward backward);
  void record_deferred(const Context& context, Tensor& output, DeferredBackward backward);

  /// Runs the list once in reverse from `loss`, whose gradient is `seed` (a tensor of loss's shape), freeing each
  /// entry as it goes. Gradients of leaf values (those with an identity that no op here made) stay in the returned
  /// store. Throws Error where loss was not recorded here.
  GradientStore backward(Context context, Tensor loss, Gradient seed);
  /// The same into a store that is there (GradientStore::continues).
  void backward(Context context, Tensor loss, Gradient seed, GradientStore& store);

  bool empty() const { return entries_.empty(); }
  void set_parameter_hook(ParameterHook hook) { hook_ = std::move(hook); }
  void set_gradient_hook(GradientHook hook) { gradient_hook_ = std::move(hook); }

 private:
  struct Entry {
    std::uint64_t output;
    Shape shape;  // of the output
    const char* path;
    DeferredBackward backward;
  };
  std::vector<Entry> entries_;
  ParameterHook hook_;
  GradientHook gradient_hook_;
};

/// Whether backward has to produce a gradient for this value: it was recorded, or is a parameter that is not frozen.
bool wants_gradient(const ValueRef& value);
/// Whether an op on these inputs has to be recorded: there is a tape and some input wants a gradient.
bool records(const Context& context, std::initializer_list<const Tensor*> inputs);

}  // namespace bantam
BANTAM_API_END
