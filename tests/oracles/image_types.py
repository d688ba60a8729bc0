"""Files of other types than JPEG and PNG, and files whose metadata turn them, with Pillow's pixels
(tests/data/images/image_type_values.h). Needs PyPI's pillow.

python tests/oracles/image_types.py > tests/data/images/image_type_values.h
"""
import io
import struct

import numpy as np
from PIL import Image, ImageOps, PngImagePlugin, TiffImagePlugin

HEIGHT, WIDTH = 6, 9
y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
RGB = np.stack([x * 28, y * 45, (x * y * 5 + 30)], -1).astype(np.uint8)
RGBA = np.dstack([RGB, (x * 30).astype(np.uint8)])
GREY = RGB[..., 2]
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="%d"/></x:xmpmeta>'


def saved(pixels, kind, mode=None, **options):
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    file = io.BytesIO()
    (image.convert(mode) if mode else image).save(file, kind, **options)
    return file.getvalue()


def exif(little, kind, orientation):
    """A directory of two entries, the second of which is the orientation as SHORT (3) or LONG (4)."""
    order = "<" if little else ">"
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    return ((b"II*\0" if little else b"MM\0*") + struct.pack(order + "IH", 8, 2) +
            struct.pack(order + "HHII", 0x100, 4, 1, 9) + struct.pack(order + "HHI", 0x112, kind, 1) + value + bytes(4))


def with_segments(*segments):
    """A JPEG with APPn segments: (n, bytes)."""
    file = saved(RGB, "JPEG", quality=95, subsampling=0)
    parts = b"".join(b"\xff" + bytes([0xE0 + n]) + struct.pack(">H", len(data) + 2) + data for n, data in segments)
    return file[:2] + parts + file[2:]


def on_canvas(**options):
    """A GIF whose picture of 5 x 4 lies within a canvas of 9 x 6."""
    file = bytearray(saved(Image.fromarray(RGB).quantize(16).crop((0, 0, 5, 4)), "GIF", **options))
    struct.pack_into("<HH", file, 6, WIDTH, HEIGHT)
    at = file.index(b"\x2c\0\0\0\0" + struct.pack("<HH", 5, 4))
    struct.pack_into("<HH", file, at + 1, 3, 1)
    return bytes(file)


def bmp(bits, compression, rows, palette=b"", height=HEIGHT, masks=b""):
    offset = 54 + len(masks) + len(palette)
    return (struct.pack("<2sIII", b"BM", offset + len(rows), 0, offset) +
            struct.pack("<IiiHHIIIIII", 40, WIDTH, height, 1, bits, compression, len(rows), 0, 0, len(palette) // 4, 0) +
            masks + palette + rows)


def profile(data):
    return f"\nexif\n      {len(data)}\n{data.hex()}\n"


def chunk(pixels, **texts):
    info = PngImagePlugin.PngInfo()
    for name, value in texts.items():
        if name == "xmp":
            info.add_itxt("XML:com.adobe.xmp", value, zip=True)
        else:
            info.add_text("Raw profile type exif", value, zip=True)
    return saved(pixels, "PNG", pnginfo=info)


def tagged(orientation):
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[274] = orientation
    return tags


palette = Image.fromarray(RGB).quantize(16)
greys = bytes(v for i in range(4) for v in (i * 80, i * 60, i * 40, 0))
FILES = {
    "webp lossy": saved(RGB, "WEBP", quality=80),
    "webp lossless": saved(RGB, "WEBP", lossless=True),
    "webp alpha": saved(RGBA, "WEBP", lossless=True, exact=True),
    "webp animation": saved(RGB, "WEBP", save_all=True, append_images=[Image.fromarray(255 - RGB)], lossless=True),
    "webp exif": saved(RGB, "WEBP", lossless=True, exif=b"Exif\0\0" + exif(True, 3, 6)),
    "webp xmp": saved(RGB, "WEBP", lossless=True, xmp=XMP % 8),
    "gif": saved(palette, "GIF"),
    "gif interlaced": saved(palette, "GIF", interlace=1),
    "gif transparent": saved(palette, "GIF", transparency=5),
    "gif grey": saved(GREY, "GIF"),
    "gif animation": saved(palette, "GIF", save_all=True, append_images=[Image.fromarray(255 - RGB).quantize(16)]),
    "gif on a canvas": on_canvas(),
    "gif on a transparent canvas": on_canvas(transparency=3),
    "bmp 1": saved(RGB, "BMP", "1"),
    "bmp 4 runs": bmp(4, 2, b"\x09\x12\0\0" * 2 + b"\0\x05\x01\x23\x10\0\x04\x32\0\0" + b"\x09\x31\0\0" * 3 + b"\0\1",
                      greys),
    "bmp 8": saved(RGB, "BMP", "P"),
    "bmp 8 runs": bmp(8, 1, b"\x09\1\0\0" * 2 + b"\0\x05\1\2\3\1\2\0\4\3\0\0" + b"\x02\1\0\2\1\0\x06\2\0\0" * 3 + b"\0\1",
                      greys),
    "bmp 16": bmp(16, 0, b"".join((RGB[r, c].astype(int) // 8 @ [1024, 32, 1]).astype("<u2").tobytes() if c < WIDTH else
                                  b"\0\0" for r in range(HEIGHT) for c in range(WIDTH + 1))),
    "bmp 16 fields": bmp(16, 3, b"".join((RGB[r, c].astype(int) // [8, 4, 8] @ [2048, 32, 1]).astype("<u2").tobytes()
                                         if c < WIDTH else b"\0\0" for r in range(HEIGHT) for c in range(WIDTH + 1)),
                         masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)),
    "bmp 24": saved(RGB, "BMP"),
    "bmp 24 from the top": bmp(24, 0, b"".join(row[:, ::-1].tobytes() + b"\0" for row in RGB), height=-HEIGHT),
    "bmp 32": saved(RGBA, "BMP"),
    "ppm": saved(RGB, "PPM"),
    "pgm": saved(GREY, "PPM"),
    "pbm": saved(RGB, "PPM", "1"),
    "ppm text": b"P3\n# a comment\n2 2\n100\n1 2 3 100 50 0 7 8 9 10 11 12\n",
    "pgm of another greatest value": b"P5 3 1 100\n\x00\x32\x64",
    "pbm text": b"P1\n4 2\n0110 1001",
    "tiff": saved(RGB, "TIFF"),
    "tiff lzw": saved(RGB, "TIFF", compression="tiff_lzw"),
    "tiff deflate": saved(RGBA, "TIFF", compression="tiff_adobe_deflate"),
    "tiff jpeg": saved(RGB, "TIFF", compression="jpeg"),
    "tiff packbits": saved(GREY, "TIFF", compression="packbits"),
    "tiff palette": saved(RGB, "TIFF", "P"),
    "tiff bits": saved(RGB, "TIFF", "1", compression="group4"),
    "tiff inks": saved(RGB, "TIFF", "CMYK"),
    "tiff turned": saved(RGB, "TIFF", tiffinfo=tagged(6)),
    "tiff mirrored": saved(RGB, "TIFF", tiffinfo=tagged(5)),
    "jpeg long": with_segments((1, b"Exif\0\0" + exif(True, 4, 6))),
    "jpeg long, other order": with_segments((1, b"Exif\0\0" + exif(False, 4, 8))),
    "jpeg exif after others": with_segments((2, b"ICC_PROFILE\0" + bytes(200)), (13, b"Photoshop 3.0\0"),
                                            (1, b"Exif\0\0" + exif(False, 3, 5))),
    "jpeg xmp": with_segments((1, b"http://ns.adobe.com/xap/1.0/\0" + XMP % 7)),
    "jpeg xmp, an element": with_segments((1, b"http://ns.adobe.com/xap/1.0/\0<tiff:Orientation>3</tiff:Orientation>")),
    "jpeg both": with_segments((1, b"http://ns.adobe.com/xap/1.0/\0" + XMP % 3), (1, b"Exif\0\0" + exif(True, 3, 6))),
    "png exif": saved(RGB, "PNG", exif=exif(True, 3, 6)),
    "png raw profile": chunk(RGB, exif=profile(b"Exif\0\0" + exif(False, 4, 8))),
    "png xmp": chunk(RGB, xmp=(XMP % 6).decode()),
}


def text(data):
    digits = bytes(data).hex()
    return "\n".join(f'     "{digits[i:i + 112]}"' for i in range(0, len(digits), 112))


def main():
    print("""// Made by tests/oracles/image_types.py (Pillow). Bytes as hexadecimal digits.
#pragma once

#include "bantam/data/formats/sample_reader.h"

namespace bantam::testing {

struct ImageTypeValues {
  const char* name;  ///< begins with the type
  ImageSize size;
  const char* file;
  const char* rgba;
};

const ImageTypeValues kImageTypeValues[] = {""")
    for name, file in FILES.items():
        image = Image.open(io.BytesIO(file))
        image.load()
        image = (ImageOps.exif_transpose(image) or image).convert("RGBA")
        print(f'    {{"{name}",\n     {{{image.height}, {image.width}}},\n{text(file)},\n{text(np.asarray(image).tobytes())}}},')
    print("};\n\n}  // namespace bantam::testing")


main()
