// PendingGradients: gradients of weights that kernels left in parts, for the update to add up as it reads them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "bantam/engine/tensor.h"
#include "bantam/kernels/pending_sums.h"

namespace bantam {

struct Context;
class Parameter;

/// Belongs to a parameter arena. An op may leave sums here where its context names it (Context::pending): a training
/// step's does, a program's own walk finds its gradients in the arena. Whoever reads gradients through the arena or a
/// parameter gets them added up first; the update's kernels get the parts. Gradients are the same bits either way; the
/// norm that a clip uses is added up in another order where somebody read them first, so it may differ in its last bit.
class PendingGradients {
 public:
  /// Memory that may wait: little, since it is alive beside what the rest of the walk takes.
  static constexpr std::size_t kMostBytes = std::size_t{4} << 20;

  /// Whether `arrays` more may wait, in `bytes` of parts: there is room, and kernels of the context's device leave
  /// parts.
  bool takes(const Context& context, std::size_t bytes, std::size_t arrays) const;
  /// Where a kernel notes its sums. To be followed by `keep`.
  kernels::PendingSums& sums() { return sums_; }
  const kernels::PendingSums& sums() const { return sums_; }
  /// The sums just noted are the gradients of `parameters`, and their parts lie in `parts`.
  void keep(const Context& context, std::initializer_list<const Parameter*> parameters, Tensor parts);
  /// Whether the parameter's gradient waits here.
  bool hold(const Parameter& parameter) const;
  /// Adds up what waits, in order of the stream.
  void add_up();
  /// Forgets what waits, which somebody has read or nobody wants. Parts are freed in order of the stream.
  void drop();

 private:
  kernels::PendingSums sums_;  // none on meta devices, where no kernel notes any
  kernels::Exec exec_;
  std::vector<const Parameter*> parameters_;
  std::vector<Tensor> parts_;
  std::size_t bytes_ = 0;
};

}  // namespace bantam
