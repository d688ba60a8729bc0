#!/usr/bin/env python3
"""Writes the first files of the corpus: small sound files of every kind, and damaged copies.

make_corpus.py BANTAM FOLDER. Needs numpy, torch, onnx and Pillow; `BANTAM` trains a run of three updates, whose files are taken.
fuzz_readers.py adds what fuzzing finds. Existing files stay.
"""
import bz2
import gzip
import hashlib
import io
import json
import lzma
import pickle
import struct
import subprocess
import sys
import tarfile
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from PIL import Image

warnings.filterwarnings("ignore")
RANDOM = np.random.default_rng(1)
PIXELS = RANDOM.integers(0, 256, (7, 9, 3), dtype=np.uint8)


def image(kind, mode="RGB", **options):
    out = io.BytesIO()
    Image.fromarray(PIXELS).convert(mode).save(out, kind, **options)
    return out.getvalue()


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def images():
    yield "jpeg", "baseline", image("JPEG", quality=60)
    yield "jpeg", "progressive", image("JPEG", quality=60, progressive=True, subsampling=0)
    yield "jpeg", "grey-exif", image("JPEG", "L", quality=40, exif=exif(6))
    yield "jpeg", "cmyk", image("JPEG", "CMYK", quality=40)
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        yield "png", mode.replace(";", ""), image("PNG", mode)
    frames = [Image.fromarray(RANDOM.integers(0, 256, (5, 5, 3), dtype=np.uint8)) for _ in range(2)]
    out = io.BytesIO()
    frames[0].save(out, "PNG", save_all=True, append_images=frames[1:])
    yield "png", "animated", out.getvalue()
    yield "webp", "lossy", image("WEBP", quality=30)
    yield "webp", "lossless", image("WEBP", lossless=True)
    yield "webp", "alpha-exif", image("WEBP", "RGBA", quality=30, exif=exif(8))
    out = io.BytesIO()
    frames[0].save(out, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    yield "webp", "animated", out.getvalue()
    for kind in ("GIF", "BMP", "PPM"):
        yield "other_images", kind.lower(), image(kind)
    yield "other_images", "pgm", image("PPM", "L")
    yield "other_images", "bmp-palette", image("BMP", "P")
    for compression in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg"):
        yield "other_images", f"tiff-{compression}", image("TIFF", compression=compression)
    yield "other_images", "tiff-16", image("TIFF", "I;16")


def arrays():
    def npy(array, version=None):
        out = io.BytesIO()
        np.lib.format.write_array(out, array, version=version)
        return out.getvalue()

    yield "npy", "u1", npy(PIXELS)
    yield "npy", "f2-fortran", npy(np.asfortranarray(RANDOM.random((3, 4)).astype(np.float16)))
    yield "npy", "i8-big", npy(np.arange(6, dtype=">i8"), (2, 0))
    yield "npy", "text", npy(np.array(["cat", "dög"]), (3, 0))
    yield "npy", "bool", npy(np.array(True))
    for name, save in (("stored", np.savez), ("deflated", np.savez_compressed)):
        out = io.BytesIO()
        save(out, x_train=PIXELS[None], y_train=np.array([1]))
        yield "npz", name, out.getvalue()
    for protocol in (2, 4):
        yield "pickle", f"cifar-{protocol}", pickle.dumps(
            {b"data": RANDOM.integers(0, 256, (2, 12), dtype=np.uint8), b"labels": [1, 2], b"filenames": [b"a.png"]}, protocol)
    images = struct.pack(">IIII", 0x803, 2, 3, 2) + bytes(range(12))
    yield "idx", "plain", images
    yield "idx", "gzip", gzip.compress(images, mtime=0)

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (("cifar/data_batch_1.bin", b"x" * 40), ("cifar/batches.meta.txt", b"cat\ndog\n"), ("ä" * 120 + "/a", b"")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    plain = out.getvalue()
    yield "tar", "plain", plain[:6144]
    yield "tar", "gzip", gzip.compress(plain, mtime=0)
    yield "tar", "bzip2", bz2.compress(plain)
    yield "tar", "xz", lzma.compress(plain)


def weights():
    tensors = {"a.weight": np.ones((2, 3), np.float32), "a.bias": np.zeros(2, np.float16), "n": np.array(3, np.int64)}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    names = {"float32": "F32", "float16": "F16", "int64": "I64"}
    for name, array in tensors.items():
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode()
    yield "safetensors", "small", struct.pack("<Q", len(text)) + text + data
    yield "safetensors", "empty", struct.pack("<Q", 2) + b"{}"

    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 1), torch.nn.BatchNorm2d(2))
    with torch.no_grad():
        states = {"zip": module.state_dict(), "nested": {"epoch": 3, "state_dict": module.state_dict(), "optimizer": {"lr": 0.1}},
                  "module": module, "half": {k: v.half() for k, v in module.state_dict().items()}}
    for name, state in states.items():
        out = io.BytesIO()
        torch.save(state, out)
        yield "torch", name, out.getvalue()
    out = io.BytesIO()
    torch.save(module.state_dict(), out, _use_new_zipfile_serialization=False)
    yield "torch", "legacy", out.getvalue()


def networks():
    def model(nodes, initializers, output, opset=17):
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)], initializers)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        made.ir_version = 8
        return made.SerializeToString()

    def tensor(name, array):
        return onnx.numpy_helper.from_array(np.asarray(array), name)

    weight = tensor("w", RANDOM.random((2, 3, 3, 3)).astype(np.float32))
    conv = helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1])
    yield "onnx", "conv", model([conv, helper.make_node("Relu", ["c"], ["y"])], [weight], ["n", 2, 8, 8])
    yield "onnx", "classifier", model(
        [conv, helper.make_node("GlobalAveragePool", ["c"], ["p"]), helper.make_node("Flatten", ["p"], ["f"]),
         helper.make_node("Gemm", ["f", "d", "b"], ["y"], transB=1)],
        [weight, tensor("d", np.ones((4, 2), np.float32)), tensor("b", np.zeros(4, np.float32))], ["n", 4])
    yield "onnx", "shapes", model(
        [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Gather", ["s", "i"], ["n0"]),
         helper.make_node("Unsqueeze", ["n0", "axes"], ["n1"]), helper.make_node("Concat", ["n1", "rest"], ["t"], axis=0),
         helper.make_node("Reshape", ["x", "t"], ["y"])],
        [tensor("i", np.array(0, np.int64)), tensor("axes", np.array([0], np.int64)), tensor("rest", np.array([192], np.int64))], ["n", 192])
    norm = {name: tensor(name, np.full(3, value, np.float32)) for name, value in (("g", 1), ("o", 0), ("m", 0), ("v", 1))}
    yield "onnx", "norm-split", model(
        [helper.make_node("BatchNormalization", ["x", *norm], ["b"]), helper.make_node("Split", ["b", "k"], ["l", "r"], axis=2),
         helper.make_node("Add", ["l", "r"], ["a"]), helper.make_node("Clip", ["a", "low", "high"], ["y"])],
        [*norm.values(), tensor("k", np.array([4, 4], np.int64)), tensor("low", np.float32(0)), tensor("high", np.float32(6))],
        ["n", 3, 4, 8])


def texts(root):
    for file in sorted((root / "configs").glob("*.yaml")):
        yield "yaml", file.stem, file.read_bytes()
    yield "yaml", "layers", (b"version: 1\nmodel:\n  input: [8, 8, 3]\n  layers:\n    - conv2d: {filters: 4, kernel: 3}\n    - relu\n"
                             b"    - repeat: {times: 2, layers: [batch_norm, relu]}\n    - dense: {units: 3}\ntrain: {epochs: 2}\n")
    for i, text in enumerate(("1 + 2 * 3", "min(a, bc) // 2 == 3 and not true", "'relu' == x", "round(2.5) % -3 or 1 / 0 > .5",
                              "(1 +", "9223372036854775807 * 2")):
        yield "expression", str(i), text.encode()
    yield "gpu_profile", "sheet", b"memory: 12GiB\nbandwidth_gb_per_s: 360\nfloat16_tflops: 25.5\nfloat32_tflops: 12.7\nmultiprocessors: 28\n"
    for flags, name, table in (
            (1, "labels", "a,b,label\n1,2.5,cat\n3,,dog\n"), (2, "targets", "0;1,5;2\n3;4,5;6\n"),
            (1 | 4 | 8, "images", "file,label\na.jpg,x|y\n\"b \"\"1\"\".png\",y\n"), (2 | 32, "gaps", "# note\n1\tNA\n2\t?\n3\t1e3\n"),
            (1, "utf16", None)):
        content = table.encode() if table else "\ufefflabel,b\nä,1\n".encode("utf-16-le")
        yield "csv", name, bytes([flags]) + content

    fields = "Host: 127.0.0.1:8080\r\nOrigin: http://localhost:8080\r\nSec-Fetch-Site: same-origin\r\nSec-Fetch-Dest: empty\r\n"
    yield "http_request", "get", f"GET /data.json?since=3 HTTP/1.1\r\n{fields}\r\n".encode()
    yield "http_request", "head", b"HEAD / HTTP/1.0\r\nHost: localhost:8080\r\nContent-Length: 0\r\n\r\n"
    yield "http_request", "post", f"POST / HTTP/1.1\r\n{fields}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n".encode()

    def frame(text):
        return struct.pack("<I", len(text)) + text

    hello = json.dumps({"protocol": 1, "rank": 1, "size": 2, "run": "r", "version": "0.1.0", "host": "h", "nonce": "00" * 32}).encode()
    yield "hello", "hello", frame(hello) + frame(b"0" * 64 + hello)
    yield "hello", "failed", frame(json.dumps({"failed": {"rank": 3, "host": "h", "reason": "no memory"}}).encode())
    yield "hello", "no-object", frame(b"[1]")
    yield "hello", "long", struct.pack("<I", 1 << 31)


def run_files(bantam):
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "run.yaml"
        config.write_text("version: 1\ndata:\n  format: generated\n  limit: 64\n"
                          "  pipeline: [normalize: {scale: 0.004}, batch: {size: 32}]\n"
                          "model:\n  input: [32, 32, 3]\n  layers: [conv2d: {filters: 2, kernel: 3}, global_average_pool, dense: {units: 10}]\n"
                          "train: {epochs: 1, loss: softmax_cross_entropy, optimizer: {sgd: {learning_rate: 0.1}}, metrics: [accuracy]}\n")
        run = Path(folder) / "run"
        subprocess.run([bantam, "train", str(config), "--device", "cpu", "--run-dir", str(run)], check=True, capture_output=True)
        yield "run_json", "finished", (run / "run.json").read_bytes()
        yield "metrics", "finished", (run / "metrics.jsonl").read_bytes()
        yield "metrics", "no-object", b"[1]\n"
        checkpoint = next((run / "checkpoints").iterdir()) / "checkpoint.json"
        facts = json.loads(checkpoint.read_bytes())
        for file in facts["files"].values():  # readers.cpp puts eight bytes in their place
            file["bytes"] = 8
            if "sha256" in file:
                file["sha256"] = hashlib.sha256(b"12345678").hexdigest()
        yield "checkpoint_json", "written", json.dumps(facts, indent=1).encode()


def main():
    bantam, folder = sys.argv[1], Path(sys.argv[2])
    root = Path(__file__).resolve().parents[2]
    for reader, name, content in (*images(), *arrays(), *weights(), *networks(), *texts(root), *run_files(bantam)):
        for file, data in ((name, content), (f"{name}-short", content[: len(content) * 2 // 3])):
            path = folder / reader / file
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.write_bytes(data)


if __name__ == "__main__":
    main()
