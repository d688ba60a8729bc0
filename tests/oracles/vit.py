"""timm's side of tests/run/weights/vit_test.cpp and of tests/engine/train/weights_by_name_test.cpp. Needs PyPI's timm.

python tests/oracles/vit.py positions > tests/engine/train/position_embeddings.h
    position embeddings that timm's resample_abs_pos_embed has resized
python tests/oracles/vit.py rates > tests/run/weights/layer_rates.h
    factors of learning rates by timm's param_groups_layer_decay
"""
import sys

import timm
import torch
from timm.layers import resample_abs_pos_embed
from timm.optim import param_groups_layer_decay

# Old side of the image in patches, tokens before it, new height and width.
CASES = [(5, 1, 8, 6), (6, 0, 3, 4), (7, 5, 7, 2), (4, 1, 9, 4), (14, 0, 5, 24)]
CHANNELS, DECAY = 3, 0.75


def number(value):
    text = f"{value:.9g}"
    return text + ("f" if "." in text or "e" in text else ".0f")


def numbers(values):
    return ", ".join(map(number, values))


def positions():
    print(f"// Made by tests/oracles/vit.py with timm {timm.__version__} and torch {torch.__version__}.\n#pragma once\n")
    print("#include <cstdint>\n#include <vector>\n\nnamespace bantam::testing {\n")
    print("/// The embedding of prefix + side * side positions and 3 channels that has sin(0.7 i) as element i, for an image of\n"
          "/// another height and width in patches.")
    print("struct ResizedPositions {\n  std::int64_t side, prefix, height, width;\n  std::vector<float> values;\n};\n")
    print("// clang-format off\ninline const ResizedPositions kResizedPositions[] = {")
    for side, prefix, height, width in CASES:
        count = (prefix + side * side) * CHANNELS
        old = torch.sin(0.7 * torch.arange(count, dtype=torch.float64)).float().reshape(1, -1, CHANNELS)
        new = resample_abs_pos_embed(old, [height, width], [side, side], num_prefix_tokens=prefix)
        print(f"    {{{side}, {prefix}, {height}, {width}, {{{numbers(new.flatten().tolist())}}}}},")
    print("};\n// clang-format on\n\n}  // namespace bantam::testing")


def rates():
    print(f"// Made by tests/oracles/vit.py with timm {timm.__version__}.\n#pragma once\n\n#include <string_view>\n\nnamespace bantam::testing {{\n")
    print(f"/// The factor of the learning rate of each tensor of timm's vit_tiny_patch16_224 with a layer decay of {DECAY}.")
    print("struct LayerRate {\n  std::string_view name;\n  float rate;\n};\ninline constexpr LayerRate kLayerRates[] = {")
    model = timm.create_model("vit_tiny_patch16_224")
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {names[id(parameter)]: group["lr_scale"] for group in param_groups_layer_decay(model, layer_decay=DECAY)
             for parameter in group["params"]}
    assert set(found) == set(names.values())
    print(",\n".join(f'    {{"{name}", {number(rate)}}}' for name, rate in found.items()) + "};\n\n}  // namespace bantam::testing")


{"positions": positions, "rates": rates}[sys.argv[1]]()
