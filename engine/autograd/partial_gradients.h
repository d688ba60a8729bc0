// PartialGradients: gradients of weights that kernels left in parts, or in a half type, for the update to add up or
// widen as it reads them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/contracts/update/narrow_gradients.h"
#include "bantam/kernels/contracts/update/partial_sums.h"

namespace bantam {

struct Context;
class Parameter;

/// Belongs to a parameter arena. Sums in parts: an op may leave them here where its context names it
/// (StepContext::gradients): a training step's does, a program's own walk finds its gradients in the arena. Whoever
/// reads gradients through the arena or a parameter gets them added up first; the update's kernels get the parts.
/// Gradients are the same bits either way; the norm that a clip uses is added up in another order where somebody read
/// them first, so it may differ in its last bit.
class PartialGradients {
 public:
  /// Memory that may wait: little, since it is alive beside what the rest of the walk takes.
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;

  /// Whether `arrays` more may wait, in `bytes` of parts: there is room, and kernels of the context's device leave
  /// parts.
  bool accepts(const Context& context, std::size_t bytes, std::size_t arrays) const;
  /// Where a kernel notes its sums. To be followed by `keep`.
  kernels::PartialSums& sums() { return sums_; }
  const kernels::PartialSums& sums() const { return sums_; }
  /// The sums just noted are the gradients of `parameters`, and their parts lie in `parts`.
  void keep(const Context& context, std::initializer_list<const Parameter*> parameters, Tensor parts);
  /// Whether the parameter's gradient waits here.
  bool hold(const Parameter& parameter) const;
  /// Adds up what waits, in order of the stream.
  void add_up();
  /// Forgets the parts that wait, which somebody has read or nobody wants. They are freed in order of the stream.
  void drop();

  /// Narrow gradients lie in the first half of their place in the arena, in the type of the compute copy. They take no
  /// memory, so they stay until something else is written there, also behind the update. Whoever reads gradients
  /// through the arena or a parameter gets them made wide first, which changes no bit of what follows.
  ///
  /// Whether the gradient of `weight` may stay narrow: a parameter's that fills its granules, in a half type; and there
  /// is room.
  bool accepts_narrow(const Context& context, const Tensor& weight) const;
  /// A kernel left the parameter's gradient narrow.
  void keep_narrow(const Context& context, const Parameter& parameter);
  bool holds_narrow(const Parameter& parameter) const;
  /// The parameter's place is written anew, in float32.
  void forget_narrow(const Parameter& parameter);
  /// Makes all that are narrow wide, in order of the stream. `slot`: the arena's gradients; `dtype`: their type.
  void widen(const Tensor& slot, DType dtype);
  /// What lies in the arena narrow now; recorded work that runs again leaves what it left when it was recorded.
  const kernels::NarrowGradients& narrow() const { return narrow_; }
  void set_narrow(const kernels::NarrowGradients& narrow) { narrow_ = narrow; }

 private:
  kernels::PartialSums sums_;  // none on meta devices, where no kernel notes any
  kernels::Exec exec_;
  std::vector<const Parameter*> parameters_;
  std::vector<Tensor> parts_;
  std::size_t bytes_ = 0;
  kernels::NarrowGradients narrow_;  // none on meta devices
};

}  // namespace bantam
