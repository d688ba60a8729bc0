// Our own convolutions without groups, on all threads: matrix products that read patches where they lie.
#pragma once

#include "bantam/kernels/conv/conv2d.h"

namespace bantam::kernels::cpu {

/// As the contract's calls of the same names, for shapes that `has_own_conv2d`; neither x nor y is empty. Workspace of
/// plan_own_conv2d.
Conv2dForward own_conv2d_forward;
Conv2dGradInput own_conv2d_grad_input;
Conv2dGradWeight own_conv2d_grad_weight;

}  // namespace bantam::kernels::cpu
