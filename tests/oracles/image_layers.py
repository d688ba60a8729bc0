#!/usr/bin/env python3
"""Layers that change height and width by PyTorch (CPU, any 2.x), as a C++ header: image_layers.py > tests/kernels/image/image_oracle.h

Operands are formulas that the tests repeat, over indices in the engine's order (batch, height, width, channels; weights (C_in, kH, kW, C_out/groups)):
x = sin(0.7·i + 0.3), w = sin(1.1·i + 0.2), dy = cos(0.9·i + 0.1). Computed in double."""
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def wave(function, step, start, shape):
    count = torch.tensor(shape).prod().item()
    return function(step * torch.arange(count) + start).float().double().reshape(shape)


def nchw(t):
    return t.permute(0, 3, 1, 2)


def nhwc(t):
    return t.permute(0, 2, 3, 1)


def transposed(shape, weight, **options):
    x = wave(torch.sin, 0.7, 0.3, shape).requires_grad_()
    w = wave(torch.sin, 1.1, 0.2, weight).requires_grad_()
    y = nhwc(F.conv_transpose2d(nchw(x), nchw(w), **options))
    (y * wave(torch.cos, 0.9, 0.1, y.shape)).sum().backward()
    return y, x.grad, w.grad


def layer(shape, function):
    x = wave(torch.sin, 0.7, 0.3, shape).requires_grad_()
    y = nhwc(function(nchw(x)))
    (y * wave(torch.cos, 0.9, 0.1, y.shape)).sum().backward()
    return y, x.grad


def resized(shape, size, mode, **options):
    return layer(shape, lambda x: F.interpolate(x, size=size, mode=mode, **options))


def padded(shape, amounts, mode):
    """amounts (top, bottom, left, right)."""
    top, bottom, left, right = amounts
    return layer(shape, lambda x: F.pad(x, (left, right, top, bottom), mode="constant" if mode == "zeros" else mode))


def average(shape, kernel, **options):
    return layer(shape, lambda x: F.avg_pool2d(x, kernel, **options))


def maximum(shape, kernel, **options):
    return layer(shape, lambda x: F.max_pool2d(x, kernel, **options))


def literal(values):
    return "{" + ", ".join(f"{v:.9g}" for v in values.detach().reshape(-1).tolist()) + "}"


def case(name, y, *gradients):
    extents = ", ".join(map(str, y.shape))
    print(f"inline const ImageCase {name} = {{{{{extents}}}, {', '.join(literal(t) for t in (y, *gradients))}}};")


print("""// Written by tests/oracles/image_layers.py, which says what the operands are. Do not edit.
#pragma once

#include <cstdint>
#include <vector>

namespace bantam::testing::oracle {

struct ImageCase {
  std::vector<std::int64_t> shape;  // of y
  std::vector<double> y, dx, dw;    // dw is empty where there is no weight
};
""")
case("kTransposedUnet", *transposed((1, 2, 3, 2), (2, 2, 2, 1), stride=2))
case("kTransposedOverlap", *transposed((2, 3, 2, 2), (2, 3, 2, 3), stride=(2, 1), padding=(1, 0)))
case("kTransposedOutputPadding", *transposed((1, 2, 3, 2), (2, 3, 3, 2), stride=(2, 3), padding=1, output_padding=(1, 2)))
case("kTransposedGroups", *transposed((1, 2, 2, 4), (4, 2, 3, 1), stride=1, dilation=2, groups=2, padding=(0, 1)))
case("kTransposedDilatedEnd", *transposed((1, 2, 2, 1), (1, 2, 2, 2), dilation=(3, 4), padding=(1, 0), output_padding=(2, 3)))
case("kNearestUp", *resized((1, 2, 3, 2), (5, 6), "nearest"))
case("kNearestDown", *resized((2, 5, 7, 1), (3, 2), "nearest"))
case("kBilinearUp", *resized((1, 2, 3, 2), (5, 6), "bilinear"))
case("kBilinearDown", *resized((2, 5, 7, 1), (3, 2), "bilinear"))
case("kBilinearAligned", *resized((1, 3, 2, 2), (5, 4), "bilinear", align_corners=True))
case("kBilinearAlignedOne", *resized((1, 3, 4, 2), (1, 6), "bilinear", align_corners=True))
case("kPadZeros", *padded((1, 2, 3, 2), (1, 0, -1, 2), "zeros"))
case("kPadReplicate", *padded((1, 2, 3, 2), (1, 2, 3, 0), "replicate"))
case("kPadReflect", *padded((2, 3, 4, 1), (2, 1, 2, -1), "reflect"))
case("kPadCircular", *padded((2, 3, 4, 1), (3, 1, -1, 2), "circular"))
case("kPixelShuffle", *layer((1, 2, 3, 8), lambda x: F.pixel_shuffle(x, 2)))
case("kMaxCeil", *maximum((1, 6, 7, 2), (3, 2), stride=2, padding=1, ceil_mode=True))
case("kMaxDilated", *maximum((1, 7, 6, 2), (3, 2), stride=(2, 1), padding=(1, 0), dilation=(2, 3)))
case("kMaxDilatedCeil", *maximum((2, 6, 8, 1), 2, stride=(3, 2), padding=(1, 1), dilation=(3, 2), ceil_mode=True))
case("kAverageCeil", *average((1, 6, 7, 2), (3, 2), stride=2, padding=1, ceil_mode=True, count_include_pad=False))
case("kAverageCeilCounted", *average((1, 6, 7, 2), (3, 2), stride=(2, 3), padding=1, ceil_mode=True))
case("kAverageBeginsInside", *average((1, 5, 5, 1), 2, stride=3, padding=1, ceil_mode=True))
print("""
}  // namespace bantam::testing::oracle""")
