// Where the backward of an op with a norm in it writes the gradients of the norm's scale and shift.
#pragma once

#include <string_view>

#include <fmt/format.h>

#include "bantam/base/error.h"
#include "bantam/engine/autograd/gradient_target.h"
#include "bantam/engine/autograd/norm.h"
#include "bantam/kernels/norm/batch_norm.h"

namespace bantam::ops {

/// Kernels write both or add to both: a shift that is used without its scale is an error that names `op`. Either may be
/// undefined, or frozen; its `data` is null then.
struct NormTargets {
  FloatGradient scale, shift;

  NormTargets(const Context& context, std::string_view op, Tensor scale_of, Tensor shift_of, GradientStore& store)
      : scale(context, scale_of, store),
        shift(context, shift_of, store),
        scale_of_(std::move(scale_of)),
        shift_of_(std::move(shift_of)) {
    if (scale.data != nullptr && shift.data != nullptr && scale.accumulate != shift.accumulate)
      throw Error(fmt::format("{}: scale and shift must be used together", op));
  }
  NormTargets(const Context& context, std::string_view op, const Norm& norm, GradientStore& store)
      : NormTargets(context, op, norm.scale, norm.shift, store) {}

  bool accumulate() const { return scale.accumulate || shift.accumulate; }
  /// With the gradient of x, which may be undefined where nobody wants it.
  kernels::NormGradients with(const Tensor& dx) const {
    return {dx.defined() ? dx.data() : nullptr, scale.data, shift.data, accumulate()};
  }
  void add_to(const Context& context, GradientStore& store) {
    scale.add_to(context, scale_of_, store);
    shift.add_to(context, shift_of_, store);
  }

 private:
  Tensor scale_of_, shift_of_;
};

}  // namespace bantam::ops
