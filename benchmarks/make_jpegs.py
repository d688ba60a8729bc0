#!/usr/bin/env python3
"""Writes a folder of JPEG files of about 500 x 375 pixels, in class folders, for benchmarks of reading them.

  benchmarks/make_jpegs.py OUT [--count 2000] [--classes 10] [--from DIR] [--quality 90]

With --from, windows of the photographs below DIR, of differing places and scales, resized. Without it, textures whose spectrum falls as that
of photographs does (1/f in amplitude), correlated over colours, with edges. Files differ in size by up to a fifth. OUT/train has the files,
OUT/val a tenth of their number. The same arguments write the same pixels. Needs Pillow and NumPy.
"""
import argparse
import pathlib
import random

import numpy
from PIL import Image

SIZE = (500, 375)
SUFFIXES = {".jpg", ".jpeg", ".png"}


def photographs(folder):
    """The images below the folder, decoded."""
    files = sorted(path for path in pathlib.Path(folder).rglob("*") if path.suffix.lower() in SUFFIXES)
    if not files:
        raise SystemExit(f"{folder}: no .jpg, .jpeg or .png below it")
    return [Image.open(path).convert("RGB") for path in files]


def window(image, size, rng):
    """A part of the image, of the size's shape as far as it goes, resized to the size; mirrored in half of the cases."""
    share = rng.uniform(0.6, 1.0)
    width = min(image.width, image.height * size[0] / size[1]) * share
    height = min(image.height, width * size[1] / size[0])
    left, top = rng.uniform(0, image.width - width), rng.uniform(0, image.height - height)
    out = image.resize(size, Image.BICUBIC, box=(left, top, left + width, top + height))
    return out.transpose(Image.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else out


def texture(size, rng):
    """Noise of amplitude 1/f, mostly the same in the three colours, and some flat shapes with edges."""
    width, height = size
    values = numpy.random.default_rng(rng.randrange(2**32))
    frequency = numpy.hypot(numpy.fft.fftfreq(height)[:, None], numpy.fft.rfftfreq(width)[None, :])
    frequency[0, 0] = 1
    layers = [numpy.fft.irfft2(numpy.fft.rfft2(values.standard_normal((height, width))) / frequency, s=(height, width)) for _ in range(4)]
    layers = [layer / layer.std() for layer in layers]
    pixels = numpy.stack([0.9 * layers[0] + 0.3 * layer for layer in layers[1:]], axis=-1) * rng.uniform(35, 60) + rng.uniform(90, 150)
    rows, columns = numpy.mgrid[:height, :width]
    for _ in range(rng.randrange(2, 6)):
        inside = ((rows - rng.uniform(0, height)) / rng.uniform(20, 120)) ** 2 + ((columns - rng.uniform(0, width)) / rng.uniform(20, 160)) ** 2 < 1
        pixels[inside] = 0.4 * pixels[inside] + 0.6 * values.uniform(0, 255, 3)
    return Image.fromarray(numpy.clip(pixels + values.normal(0, 3, pixels.shape), 0, 255).astype(numpy.uint8))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--from", dest="source", metavar="DIR")
    parser.add_argument("--quality", type=int, default=90)
    options = parser.parse_args()
    rng = random.Random(1)
    sources = photographs(options.source) if options.source else None
    written = 0
    for part, count in (("train", options.count), ("val", max(options.classes, options.count // 10))):
        for i in range(count):
            scale = rng.uniform(0.8, 1.2)
            size = tuple(round(extent * scale) for extent in SIZE)
            image = window(rng.choice(sources), size, rng) if sources else texture(size, rng)
            path = pathlib.Path(options.out) / part / f"class-{i % options.classes:02}" / f"{i:05}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.save(path, quality=options.quality)
            written += path.stat().st_size
    print(f"{options.out}: {written / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
