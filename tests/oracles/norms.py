#!/usr/bin/env python3
"""Layer, group and instance norms and their gradients by PyTorch (CPU, any 2.x), as a C++ header: norms.py > tests/kernels/norm/group_norm_oracle.h

Operands are formulas that the tests repeat: `eighths` below, x (37, 23), dy (29, 19), scale (5, 11) + 1.5, shift (3, 7). Images are NHWC."""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def eighths(count, step, modulus):
    return torch.tensor([((i * step) % modulus - modulus // 2) / 8 for i in range(count)])


def case(name, samples, positions, channels, groups, activation, affine, function):
    count = samples * positions * channels
    x = eighths(count, 37, 23).reshape(samples, positions, channels).requires_grad_()
    dy = eighths(count, 29, 19).reshape(samples, positions, channels)
    scale = (eighths(channels, 5, 11) + 1.5).requires_grad_() if affine else None
    shift = eighths(channels, 3, 7).requires_grad_() if affine else None
    y = function(x, scale, shift)
    y.backward(dy)
    gradients = (scale.grad, shift.grad) if affine else (torch.zeros(0), torch.zeros(0))
    arrays = ["{" + ", ".join(f"{v:.9g}" for v in t.flatten().tolist()) + "}" for t in (y, x.grad, *gradients)]
    print(f'    {{"{name}", {{{samples}, {positions}, {channels}, {groups}}}, Activation::{activation}, {str(affine).lower()}, ' + ", ".join(arrays) + "},")


def channels_first(x, norm):
    return norm(x.permute(0, 2, 1)).permute(0, 2, 1)


print("""// PyTorch's norms and their gradients: written by tests/oracles/norms.py.
#pragma once

#include <string>
#include <vector>

#include "bantam/kernels/norm/group_norm.h"

namespace bantam::testing {

struct NormOracle {
  std::string name;
  kernels::GroupNormShape shape;
  Activation activation;
  bool affine;
  std::vector<double> y, dx, dscale, dshift;
};

/// Epsilon of all cases.
inline constexpr float kOracleEpsilon = 1e-5f;

inline const NormOracle kNormOracles[] = {""")
EPSILON = torch.tensor(1e-5, dtype=torch.float32).item()
case("layer norm", 3, 1, 7, 1, "none", True, lambda x, s, b: F.layer_norm(x, (7,), s, b, EPSILON))
case("layer norm without vectors", 2, 1, 13, 1, "none", False, lambda x, s, b: F.layer_norm(x, (13,), s, b, EPSILON))
case("group norm and silu", 2, 3, 6, 3, "silu", True,
     lambda x, s, b: F.silu(channels_first(x, lambda t: F.group_norm(t, 3, s, b, EPSILON))))
case("group norm and relu", 1, 5, 10, 2, "relu", True,
     lambda x, s, b: F.relu(channels_first(x, lambda t: F.group_norm(t, 2, s, b, EPSILON))))
case("instance norm", 2, 5, 3, 3, "none", False, lambda x, s, b: channels_first(x, lambda t: F.instance_norm(t, eps=EPSILON)))
print("""};

}  // namespace bantam::testing""")
