#!/usr/bin/env python3
"""Changes of small images by torchvision 0.20 (transforms.v2.functional of uint8 tensors), as a C++ header:
augment.py > tests/data/augment/augment_oracle.h

The image is a formula that the tests repeat: 12 rows, 14 columns, value of channel c at (y, x):
128 + 100·sin(0.55·y + 0.4·c)·cos(0.43·x - 0.9·c) + 20·sin(1.7·x + y), rounded down. Its mask is (3·y + x) / 5, whole numbers."""
import math

import torch
from torchvision.transforms import RandAugment, TrivialAugmentWide, v2
from torchvision.transforms.v2 import functional as F

HEIGHT, WIDTH = 12, 14
NEAREST, BILINEAR = v2.InterpolationMode.NEAREST, v2.InterpolationMode.BILINEAR


def image(channels):
    pixels = torch.empty(channels, HEIGHT, WIDTH, dtype=torch.uint8)
    for c in range(channels):
        for y in range(HEIGHT):
            for x in range(WIDTH):
                value = 128 + 100 * math.sin(0.55 * y + 0.4 * c) * math.cos(0.43 * x - 0.9 * c) + 20 * math.sin(1.7 * x + y)
                pixels[c, y, x] = int(value)
    return pixels


def mask():
    y, x = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    return ((3 * y + x) // 5).to(torch.uint8)[None]


def shear_x(i, m, how, fill=None):
    return F.affine(i, 0.0, [0, 0], 1.0, [math.degrees(math.atan(m)), 0.0], how, fill, [0, 0])


def shear_y(i, m, how, fill=None):
    return F.affine(i, 0.0, [0, 0], 1.0, [0.0, math.degrees(math.atan(m))], how, fill, [0, 0])


def framed(i, fill, change):
    """What comes in from outside is a frame of the value `fill`: at the edge torchvision's own fill weighs pixels by their share twice."""
    frame = 20
    wide = F.pad(i, [frame], fill=fill if isinstance(fill, list) else [fill])
    return change(wide)[:, frame:frame + HEIGHT, frame:frame + WIDTH]


# Name: (channels, what becomes of the image). Names and numbers are those of the test's table.
VALUES = {
    "brightness_low": (3, lambda i: F.adjust_brightness(i, 0.35)),
    "brightness_high": (1, lambda i: F.adjust_brightness(i, 1.8)),
    "contrast_low": (3, lambda i: F.adjust_contrast(i, 0.3)),
    "contrast_high": (3, lambda i: F.adjust_contrast(i, 1.7)),
    "contrast_grey": (1, lambda i: F.adjust_contrast(i, 1.7)),
    "saturation_low": (3, lambda i: F.adjust_saturation(i, 0.2)),
    "saturation_high": (3, lambda i: F.adjust_saturation(i, 1.9)),
    "hue_left": (3, lambda i: F.adjust_hue(i, -0.37)),
    "hue_right": (3, lambda i: F.adjust_hue(i, 0.11)),
    "sharpness_low": (3, lambda i: F.adjust_sharpness(i, 0.1)),
    "sharpness_high": (1, lambda i: F.adjust_sharpness(i, 1.9)),
    "grey": (3, lambda i: F.rgb_to_grayscale(i, num_output_channels=3)),
    "posterize": (3, lambda i: F.posterize(i, 3)),
    "solarize": (3, lambda i: F.solarize(i, 100)),
    "autocontrast": (3, lambda i: F.autocontrast(i // 2 + 40)),
    "equalize": (3, lambda i: F.equalize(torch.cat([i, i, i, i], 2))[:, :, :WIDTH]),
    "rotate_bilinear": (3, lambda i: framed(i, [10, 20, 30], lambda w: F.rotate(w, 21.0, BILINEAR))),
    "affine_bilinear": (1, lambda i: framed(i, 77, lambda w: F.affine(w, 14.0, [2, -1], 1.2, [8.0, -5.0], BILINEAR))),
    "shrink_bilinear": (3, lambda i: framed(i, 0, lambda w: F.affine(w, -40.0, [0, 3], 0.7, [0.0, 0.0], BILINEAR))),
    "rotate_nearest": (3, lambda i: F.rotate(i, 33.0, NEAREST, fill=9)),
    "shear_x": (3, lambda i: shear_x(i, 0.31, NEAREST)),
    "shear_y": (1, lambda i: shear_y(i, -0.57, NEAREST)),
    "translate_x": (3, lambda i: F.affine(i, 0.0, [4, 0], 1.0, [0.0, 0.0], NEAREST, 0)),
    "translate_y": (1, lambda i: F.affine(i, 0.0, [0, -3], 1.0, [0.0, 0.0], NEAREST, 0)),
}


def put(name, values):
    print(f'  all["{name}"] = {{', end="")
    print(", ".join(str(int(v)) for v in values.flatten()) + "};")


print("// Written by tests/oracles/augment.py, which says what the operands are. Do not edit.")
print("// clang-format off")
print("#pragma once\n\n#include <cstdint>\n#include <map>\n#include <string>\n#include <vector>\n")
print("namespace bantam::testing {\n")
print("inline std::map<std::string, std::vector<std::uint8_t>> augment_oracle() {")
print("  std::map<std::string, std::vector<std::uint8_t>> all;")
for name, (channels, change) in VALUES.items():
    put(name, change(image(channels)).permute(1, 2, 0))
put("mask_rotate", F.rotate(mask(), 21.0, NEAREST, fill=255))
put("mask_affine", F.affine(mask(), 14.0, [2, -1], 1.2, [8.0, -5.0], NEAREST, 255))
print("  return all;\n}\n")
print("/// Magnitudes of the 31 bins of each operation; translations of images of one pixel.")
print("inline std::map<std::string, std::vector<double>> magnitude_oracle() {")
print("  std::map<std::string, std::vector<double>> all;")
for table, space in {"trivial": TrivialAugmentWide()._augmentation_space(31), "rand": RandAugment()._augmentation_space(31, (1, 1))}.items():
    for name, (magnitudes, signed) in space.items():
        values = magnitudes.tolist() if magnitudes.ndim > 0 else [0.0] * 31
        print(f'  all["{table}.{name}.{int(signed)}"] = {{' + ", ".join(f"{v:.9g}" for v in values) + "};")
print("  return all;\n}\n\n}  // namespace bantam::testing")
