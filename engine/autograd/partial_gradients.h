// PartialGradients: gradients of weights that kernels wrote as split-K partial sums, or in a half type, for the update
// to add up or widen.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "bantam/engine/autograd/tensor.h"
#include "bantam/kernels/update/narrow_gradients.h"
#include "bantam/kernels/update/partial_sums.h"

namespace bantam {

struct Context;
class Parameter;

/// Belongs to a parameter arena. Split-K partial sums: an op may store them here, unreduced, where its context names
/// this object (StepState::gradients). A training step's context does; a program's own backward finds its gradients in
/// the arena. Reading gradients through the arena or a parameter adds the partial sums up first; the update's kernels
/// read the partial sums themselves. Gradients are the same bits either way; the norm that a clip uses is added up in
/// another order where somebody read them first, so it may differ in its last bit.
class PartialGradients {
 public:
  /// Most memory of partial sums that are kept for the update: little, since it is alive during the rest of backward.
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;

  /// Whether partial sums are kept at all; they are unless it was forbidden.
  void allow(bool partial_sums) { allowed_ = partial_sums; }
  /// Whether `arrays` more may be kept, in `bytes` of partial sums: there is room, and kernels of the context's device
  /// write partial sums.
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

  /// Narrow gradients lie in the first half of their place in the arena, in the type of the compute copy. They need no
  /// memory of their own, so they stay until something else is written there, also after the update. Reading gradients
  /// through the arena or a parameter widens them first, which changes no bit of what follows.
  ///
  /// Whether the gradient of `weight` may stay narrow: a parameter's that fills its weight blocks, in a half type; and
  /// there is room.
  bool accepts_narrow(const Context& context, const Tensor& weight) const;
  /// A kernel has written the parameter's gradient narrow.
  void keep_narrow(const Context& context, const Parameter& parameter);
  bool holds_narrow(const Parameter& parameter) const;
  /// The parameter's place is written anew, in float32.
  void forget_narrow(const Parameter& parameter);
  /// Makes all that are narrow wide, in order of the stream. `slot`: the arena's gradients; `dtype`: their type.
  void widen(const Tensor& slot, DType dtype);
  /// The gradients that are narrow in the arena now; replaying recorded work narrows the same ones as when it was
  /// recorded.
  const kernels::NarrowGradients& narrow() const { return narrow_; }
  void set_narrow(const kernels::NarrowGradients& narrow) { narrow_ = narrow; }

 private:
  kernels::PartialSums sums_;  // none on meta devices, where no kernel notes any
  kernels::Exec exec_;
  std::vector<const Parameter*> parameters_;
  std::vector<Tensor> parts_;
  std::size_t bytes_ = 0;
  bool allowed_ = true;
  kernels::NarrowGradients narrow_;  // none on meta devices
};

}  // namespace bantam
