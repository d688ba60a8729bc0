// Tape: what backward needs, recorded op by op (a Wengert list), walked once in reverse.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "bantam/engine/context.h"
#include "bantam/engine/tensor.h"

namespace bantam {

/// Where a parameter's gradient goes: float32, in the arena. The first write of an effective batch overwrites, later
/// ones add.
struct ParameterGradient {
  float* data = nullptr;
  bool accumulate = false;
};

/// Gradients of values during one backward walk.
class GradientStore {
 public:
  /// Hands in a gradient of a value (ignored where none is wanted). A second one for the same value is added to the
  /// first; a parameter's goes to the arena, in float32.
  void add(const Context& context, const ValueRef& value, Tensor gradient);
  /// Takes the gradient of a value out; undefined where nothing flowed.
  Tensor take(std::uint64_t id);
  /// The destination for a parameter's gradient, and tells the parameter that it is written now.
  ParameterGradient parameter(Parameter& parameter);
  /// Says that a parameter's gradient was written by an inner walk (recompute).
  void note_written(Parameter& parameter) { written_.push_back(&parameter); }
  /// Parameters written since the last call.
  std::vector<Parameter*> take_written();

 private:
  void add_to_parameter(const Context& context, Parameter& parameter, const Tensor& gradient);

  std::vector<Parameter*> written_;
  std::unordered_map<std::uint64_t, Tensor> gradients_;
};

/// A list of backward closures. Not thread-safe; one step on one stream.
class Tape {
 public:
  /// Computes inputs' gradients from the output's. May reuse `dy`'s memory where it is its sole owner. The context has
  /// the path under which the op was recorded, no tape, and the pass of the walk.
  using Backward = std::function<void(const Context&, Tensor dy, GradientStore&)>;
  /// Told each time a parameter's gradient is written: in the backward order, once for each op that reads the
  /// parameter.
  using ParameterHook = std::function<void(Parameter&)>;

  /// Gives `output` an identity and stores the closure, which holds only what backward reads.
  void record(const Context& context, Tensor& output, Backward backward);

  /// Walks the list once in reverse from `loss`, whose gradient is `seed` (a tensor of loss's shape), freeing each
  /// entry as it goes. Gradients of leaves (values with an identity that no op here made) are left in the returned
  /// store. Throws Error where loss was not recorded here.
  GradientStore backward(Context context, Tensor loss, Tensor seed);

  bool empty() const { return entries_.empty(); }
  void set_parameter_hook(ParameterHook hook) { hook_ = std::move(hook); }

 private:
  struct Entry {
    std::uint64_t output;
    const char* path;
    Backward backward;
  };
  std::vector<Entry> entries_;
  ParameterHook hook_;
};

/// Whether backward has to produce a gradient for this value: it was recorded, or is a parameter that is not frozen.
bool wants_gradient(const ValueRef& value);
/// Whether an op on these inputs has to be recorded: there is a tape and some input wants a gradient.
bool records(const Context& context, std::initializer_list<const Tensor*> inputs);

}  // namespace bantam
