"""Expected values of decoded and resampled images (tests/data/images/pillow_values.h). Needs PyPI's pillow.

python tests/oracles/images.py > tests/data/images/pillow_values.h
"""
import io

import numpy as np
from PIL import Image

HEIGHT, WIDTH = 19, 26


def pattern(height, width, channels):
    """As pattern_image in the tests."""
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    return ((x * 37 + y * 91 + c * 53 + x * y * 7) % 256).astype(np.uint8)


def waves(channels):
    y, x, c = np.meshgrid(np.arange(HEIGHT), np.arange(WIDTH), np.arange(channels), indexing="ij")
    return np.uint8(np.clip(128 + 70 * np.sin(x * .4 + c) + 50 * np.cos(y * .5 - c), 0, 255))


def text(data):
    data = bytes(data).hex()
    lines = [data[i:i + 112] for i in range(0, len(data), 112)]
    return "\n".join(f'     "{line}"' for line in lines)


def resampled(window, size, channels):
    top, left, height, width = window
    image = Image.fromarray(pattern(HEIGHT, WIDTH, channels).squeeze())
    part = image.crop((left, top, left + width, top + height))
    # Horizontal first: Pillow 13 chooses the cheaper order, earlier releases did as here.
    part = part.resize((size[1], height), Image.BILINEAR).resize(size[::-1], Image.BILINEAR)
    sampling = f"{{{top}, {left}, {{{height}, {width}}}, {{{size[0]}, {size[1]}}}}}"
    print(f"    {{{channels}, {sampling},\n{text(part.tobytes())}}},")


def decoded(name, image, **options):
    file = io.BytesIO()
    image.save(file, **{"format": "JPEG", "optimize": True, **options})
    pixels = Image.open(file)
    print(f'    {{"{name}", {{{HEIGHT}, {WIDTH}}},\n{text(file.getvalue())},')
    print(f"{text(pixels.convert('RGB').tobytes())},\n{text(pixels.convert('RGB').convert('L').tobytes())}}},")


print("// Made by tests/oracles/images.py (Pillow). Bytes as hexadecimal digits.\n#pragma once\n")
print('#include "bantam/data/formats/sample_reader.h"\n\nnamespace bantam::testing {\n')
print("struct ResampledValues {\n  std::int64_t channels;\n  Sampling sampling;\n  const char* pixels;\n};\n")
print("/// Of pattern_image(19, 26, channels).\nconst ResampledValues kResampledValues[] = {")
for case in (((0, 0, 19, 26), (7, 9), 3), ((2, 3, 11, 17), (24, 20), 3), ((4, 1, 13, 25), (13, 6), 3),
             ((4, 1, 13, 25), (40, 25), 3), ((0, 0, 19, 26), (1, 1), 3), ((1, 2, 17, 23), (8, 31), 1),
             ((0, 0, 19, 26), (5, 5), 1), ((3, 5, 1, 1), (2, 3), 3)):
    resampled(*case)
print("};\n\nstruct DecodedValues {\n  const char* name;\n  ImageSize size;\n  const char* file;\n  const char* rgb;")
print("  const char* grey;  ///< of the RGB values\n};\n\nconst DecodedValues kDecodedValues[] = {")
rgb = Image.fromarray(waves(3))
decoded("4:2:0", rgb, quality=80, subsampling=2)
decoded("4:2:2, progressive", rgb, quality=70, subsampling=1, progressive=True)
decoded("4:4:4", rgb, quality=60, subsampling=0)
decoded("grey", Image.fromarray(waves(1).squeeze()), quality=80)
decoded("CMYK", Image.fromarray(waves(4), "CMYK"), quality=80)
decoded("RGB PNG", rgb, format="PNG")
decoded("palette PNG", rgb.quantize(16), format="PNG", bits=4)
decoded("grey and alpha PNG", Image.merge("LA", [Image.fromarray(waves(1).squeeze())] * 2), format="PNG")
print("};\n\n}  // namespace bantam::testing")
