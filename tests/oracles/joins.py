#!/usr/bin/env python3
"""Squeeze-and-excitation, and a concat of an average and two products, with their gradients, by PyTorch (CPU, any 2.x), as a C++ header:
joins.py > tests/engine/ops/join_oracle.h

Operands are formulas that the test repeats: sin(0.7·i + k) for operand k. Images are (2, 3, 5, 7): an odd height, width and number of channels;
three units. The seed of the gradients is operand 9."""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
IMAGE = (2, 3, 5, 7)


def operand(k, *shape):
    i = torch.arange(torch.Size(shape).numel())
    return torch.sin(0.7 * i + k).reshape(shape).requires_grad_()


def show(name, values):
    numbers = ", ".join(f"{v:.9g}" for v in values.detach().flatten().tolist())
    print(f"inline const std::vector<float> {name} = {{{numbers}}};")


def gradients(prefix, y, operands):
    (y * operand(9, *y.shape).detach()).sum().backward()
    show(prefix + "Output", y)
    for name, value in operands.items():
        show(prefix + name, value.grad)


def squeeze_excite(prefix, activation, gate):
    x, reduce, reduce_bias = operand(0, *IMAGE), operand(1, 3, 7), operand(2, 3)
    expand, expand_bias = operand(3, 7, 3), operand(4, 7)
    hidden = activation(F.linear(x.mean((1, 2)), reduce, reduce_bias))
    factor = gate(F.linear(hidden, expand, expand_bias))
    gradients(prefix, x * factor[:, None, None, :],
              {"Dx": x, "Dreduce": reduce, "DreduceBias": reduce_bias, "Dexpand": expand, "DexpandBias": expand_bias})


def joined():
    a, b, s = operand(0, *IMAGE), operand(1, *IMAGE), operand(2, 2, 7)
    y = torch.cat([torch.stack([a, b, a]).mean(0), a * b, a * s[:, None, None, :]], dim=-1)
    gradients("kJoined", y, {"Da": a, "Db": b, "Ds": s})


print(f"// Squeeze-and-excitation and joins by PyTorch {torch.__version__.split('+')[0]}; written by tests/oracles/joins.py.")
print("#pragma once\n\n#include <vector>\n\nnamespace bantam::testing {\n\n// clang-format off")
squeeze_excite("kSigmoid", F.silu, torch.sigmoid)
squeeze_excite("kHard", F.relu, F.hardsigmoid)
joined()
print("// clang-format on\n\n}  // namespace bantam::testing")
