#!/usr/bin/env python3
"""bomb_trial.py PROGRAM [--only TEXT] [--keep]: small files that are made to cost much, each read once by the program.

Each file is made in a temporary folder, read by one verb (`inspect`, `import`, `validate`, `data`, `init`, …), and
removed. A reader may take 10 s of processor time and 256 MiB of memory over the file's own size, say what is wrong in 64 KB, and must neither
crash nor show another library's words. Prints a line for each; exits with 0 where all kept to that, else with 1.
"""
import argparse
import bz2
import gzip
import io
import lzma
import os
import pathlib
import random
import re
import resource
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
import zlib

SECONDS, MEBIBYTES, MESSAGE_BYTES = 10.0, 256, 65536
RAW_WORDS = re.compile(r"json\.exception|std::|basic_string|vector::|\bstod\b|\bstoi\b|\bstoll\b|bad_alloc|yaml-cpp|"
                       r"filesystem error|map::at|bad_variant|bad optional|invalid argument$")
BOMBS = []


def bomb(name, *command):
    """A function that writes its files into a folder; {} in the command stands for the folder."""
    def note(make):
        BOMBS.append((name, command, make))
        return make
    return note


# ---- ONNX, in Protocol Buffers' wire format


def varint(value):
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, dims, type_, raw):
    return b"".join(field(1, d) for d in dims) + field(2, type_) + field(8, name) + field(9, raw)


def int64(name, values, dims=None):
    return tensor(name, [len(values)] if dims is None else dims, 7, struct.pack(f"<{len(values)}q", *values))


def attribute(name, value):
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    if isinstance(value, bytes):
        return field(1, name) + field(5, value) + field(20, 4)
    return field(1, name) + b"".join(field(8, v) for v in value) + field(20, 7)


def node(op, inputs, outputs, **attributes):
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs) + field(4, op) +
            b"".join(field(5, attribute(name, value)) for name, value in attributes.items()))


def value(name, dims):
    shape = b"".join(field(1, field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def onnx(path, nodes, initializers=(), output="y", inputs=((1, 3, 8, 8),), more=b""):
    graph = b"".join(field(1, n) for n in nodes) + field(2, "g") + b"".join(field(5, t) for t in initializers)
    graph += field(11, value("x", inputs[0])) + field(12, value(output, (1, 10))) + more
    path.write_bytes(field(1, 8) + field(8, field(2, 17)) + field(7, graph))


LARGE = 4_000_000


def large(name="large", count=LARGE, fill=0):
    """A constant of many elements that costs few bytes."""
    return [node("ConstantOfShape", ["count"], [name], value=int64("", [fill], [1]))], [int64("count", [count])]


def many(op, count=3000, **attributes):
    def make(folder):
        nodes, tensors = large()
        tensors += [int64("one", [1], [1]), int64("zero", [0], [1]), int64("scalar", [0], [])]
        given = {"Squeeze": ["one", "large"], "Unsqueeze": ["one", "large"], "Gather": ["large", "zero"],
                 "Slice": ["large", "zero", "one"], "Reshape": ["one", "large"], "Expand": ["one", "large"],
                 "Shape": ["large"], "Size": ["large"], "Identity": ["large"], "ReduceSum": ["large"], "Cast": ["large"],
                 "ConstantOfShape": ["large"], "Tile": ["one", "large"], "Equal": ["large", "one"], "Add": ["large", "one"],
                 "Transpose": ["large"], "Concat": ["one", "large"], "Where": ["large", "one", "one"],
                 "Range": ["large", "one", "one"], "CastLike": ["one", "large"], "Not": ["large"], "Min": ["large"],
                 "SliceStarts": ["one", "large", "large"], "ReduceAxes": ["one", "large"],
                 "GatherIndices": ["one", "large"]}[op]
        name = {"SliceStarts": "Slice", "ReduceAxes": "ReduceSum", "GatherIndices": "Gather"}.get(op, op)
        nodes += [node(name, given, [f"o{i}"], **attributes) for i in range(count)]
        onnx(folder / "net.onnx", nodes + [node("Relu", ["x"], ["y"])], tensors)
    return make


for op in ["Squeeze", "Unsqueeze", "Gather", "Slice", "Reshape", "Expand", "Shape", "Size", "Identity", "ReduceSum",
           "ConstantOfShape", "Tile", "Equal", "Add", "Transpose", "Where", "Range", "CastLike", "Not", "Min",
           "SliceStarts", "ReduceAxes", "GatherIndices"]:
    bomb(f"onnx: 3000 {op} of a constant of 4M", "import", "{}/net.onnx", "-o", "{}/out")(many(op))
bomb("onnx: 3000 Cast of a constant of 4M", "import", "{}/net.onnx", "-o", "{}/out")(many("Cast", to=7))
bomb("onnx: 3000 Concat of a constant of 4M", "import", "{}/net.onnx", "-o", "{}/out")(many("Concat", axis=0))


@bomb("onnx: one Squeeze of 4M axes that are used", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes, tensors = large()
    onnx(folder / "net.onnx", nodes + [node("Squeeze", ["x", "large"], ["y"])] * 1, tensors)


@bomb("onnx: 3000 layers that read a constant of 4M", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes, tensors = large()
    nodes += [node("Reshape", ["x" if i == 0 else f"y{i - 1}", "large"], [f"y{i}"]) for i in range(3000)]
    onnx(folder / "net.onnx", nodes, tensors, output="y2999")


def layers_that_read(op, count=3000):
    def make(folder):
        nodes, tensors = large()
        tensors += [int64("shape", [1, 3, 8, 8]), tensor("f", [1], 1, struct.pack("<f", 1)), int64("ax", [1])]
        nodes += [node("Cast", ["large"], ["floats"], to=1)]
        for i in range(count):
            x = "x" if i == 0 else f"y{i - 1}"
            given = {"Unsqueeze": [x, "large"], "Squeeze": [x, "large"], "Slice": [x, "large", "large", "large"],
                     "Pad": [x, "large"], "Resize": [x, "", "floats"], "Gather": [x, "large"], "Expand": [x, "large"],
                     "ReduceMean": [x, "large"], "Clip": [x, "floats"], "Add": [x, "floats"], "PRelu": [x, "floats"],
                     "Split": [x, "large"]}[op]
            nodes.append(node(op, given, [f"y{i}"]))
        onnx(folder / "net.onnx", nodes, tensors, output=f"y{count - 1}")
    return make


for op in ["Unsqueeze", "Squeeze", "Slice", "Pad", "Resize", "Gather", "Expand", "ReduceMean", "Clip", "Add", "PRelu", "Split"]:
    bomb(f"onnx: layers {op} that read 4M", "import", "{}/net.onnx", "-o", "{}/out")(layers_that_read(op))


@bomb("onnx: Expand by 1 of x, 3000 times, shape of 4M ones", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes, tensors = large(fill=1)
    nodes += [node("Expand", ["x" if i == 0 else f"y{i - 1}", "large"], [f"y{i}"]) for i in range(3000)]
    onnx(folder / "net.onnx", nodes, tensors, output="y2999")


@bomb("onnx: 3000 Add of a float constant that broadcasts to channels", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes, tensors = large(count=3)
    tensors[0] = int64("count", [1, 1 << 20, 1, 1])
    nodes = [node("ConstantOfShape", ["count"], ["large"])]
    nodes += [node("Add", ["x" if i == 0 else f"y{i - 1}", "large"], [f"y{i}"]) for i in range(3000)]
    onnx(folder / "net.onnx", nodes, tensors, output="y2999", inputs=((1, 1 << 20, 1, 1),))


@bomb("onnx: Concat that doubles, 60 times", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes = [node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], axis=0) for i in range(60)]
    onnx(folder / "net.onnx", nodes + [node("Relu", ["x"], ["y"])], [int64("c0", [1, 2, 3])])


@bomb("onnx: Concat of a constant with 100000 inputs", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes = [node("Concat", ["c"] * 100000, ["d"], axis=0), node("Concat", ["d"] * 3000, ["e"], axis=0)]
    onnx(folder / "net.onnx", nodes + [node("Relu", ["x"], ["y"])], [int64("c", [1, 2, 3])])


@bomb("onnx: Concat of empty constants, 3000 nodes of 3000 inputs", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes = [node("Concat", ["c"] * 3000, [f"d{i}"], axis=0) for i in range(1000)]
    onnx(folder / "net.onnx", nodes + [node("Relu", ["x"], ["y"])], [int64("c", [], [0])])


@bomb("onnx: 100000 Relu in a chain", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes = [node("Relu", ["x" if i == 0 else f"y{i - 1}"], [f"y{i}"]) for i in range(100000)]
    onnx(folder / "net.onnx", nodes, output="y99999")


@bomb("onnx: 100000 Identity in a chain", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes = [node("Identity", ["x" if i == 0 else f"y{i - 1}"], [f"y{i}"]) for i in range(100000)]
    onnx(folder / "net.onnx", nodes + [node("Relu", ["y99999"], ["z"])], output="z")


@bomb("onnx: 100000 Add of x with itself", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes = [node("Add", ["x" if i == 0 else f"y{i - 1}"] * 2, [f"y{i}"]) for i in range(100000)]
    onnx(folder / "net.onnx", nodes, output="y99999")


@bomb("onnx: 100000 Transpose in a chain", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    nodes = [node("Transpose", ["x" if i == 0 else f"y{i - 1}"], [f"y{i}"], perm=[0, 1, 3, 2]) for i in range(100000)]
    onnx(folder / "net.onnx", nodes, output="y99999")


@bomb("onnx: 100000 inputs", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    onnx(folder / "net.onnx", [node("Relu", ["x"], ["y"])], more=b"".join(field(11, value(f"in{i}", (1, 3))) for i in range(100000)))


@bomb("onnx: 100000 outputs", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    onnx(folder / "net.onnx", [node("Relu", ["x"], ["y"])], more=b"".join(field(12, value(f"out{i}", (1, 3))) for i in range(100000)))


@bomb("onnx: 200000 initializers of nothing", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    onnx(folder / "net.onnx", [node("Relu", ["x"], ["y"])], [int64(f"c{i}", [], [0]) for i in range(200000)])


@bomb("onnx: 16 MB of empty nodes", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    onnx(folder / "net.onnx", [node("R", [], [])] * 3_000_000)


@bomb("onnx: 16 MB of empty nodes, inspected", "inspect", "{}/net.onnx")
def _(folder):
    onnx(folder / "net.onnx", [node("R", [], [])] * 3_000_000)


@bomb("onnx: a node of 5M empty inputs", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    onnx(folder / "net.onnx", [node("Relu", ["x"] + [""] * 5_000_000, ["y"])])


@bomb("onnx: an attribute of 10M integers", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    packed = field(1, "axes") + varint(8 << 3 | 2) + varint(10_000_000) + bytes(10_000_000) + field(20, 7)
    onnx(folder / "net.onnx", [field(1, "x") + field(2, "y") + field(4, "Squeeze") + field(5, packed)])


@bomb("onnx: 4M empty attributes", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    onnx(folder / "net.onnx", [field(1, "x") + field(2, "y") + field(4, "Relu") + field(5, b"") * 4_000_000])


@bomb("onnx: a tensor of 8M extents", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    onnx(folder / "net.onnx", [node("Relu", ["x"], ["y"])], [field(1, 1) * 4_000_000 + field(2, 7) + field(8, "c") + field(9, bytes(8))])


@bomb("onnx: Flatten and Reshape of many axes", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    tensors = [int64("s", [1] + [1] * 100000 + [192])]
    nodes = [node("Reshape", ["x" if i == 0 else f"y{i - 1}", "s"], [f"y{i}"]) for i in range(300)]
    onnx(folder / "net.onnx", nodes, tensors, output="y299")


@bomb("onnx: constants of 100000 axes, 300 Transpose", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    dims = [1] * 50000
    nodes = [node("Transpose", ["c"], [f"t{i}"]) for i in range(300)]
    onnx(folder / "net.onnx", nodes + [node("Relu", ["x"], ["y"])], [int64("c", [7], dims)])


@bomb("onnx: constants of 50000 axes, Squeeze of each", "import", "{}/net.onnx", "-o", "{}/out")
def _(folder):
    dims = [1] * 50000
    nodes = [node("Squeeze", ["c", "axes"], [f"t{i}"]) for i in range(3)]
    onnx(folder / "net.onnx", nodes + [node("Relu", ["x"], ["y"])], [int64("c", [7], dims), int64("axes", list(range(50000)))])


@bomb("onnx: names in one million notes", "inspect", "{}/net.onnx")
def _(folder):
    onnx(folder / "net.onnx", [node("Relu", ["x"], ["y"])], more=b"")
    data = (folder / "net.onnx").read_bytes()
    (folder / "net.onnx").write_bytes(data + b"".join(field(14, field(1, f"k{i}") + field(2, "v")) for i in range(1_000_000)))


# ---- YAML

CONFIG = """version: 1
device: cpu
data: {{format: generated, train_samples: 8, test_samples: 8, pipeline: [{{batch: {{size: 4}}}}]}}
model:
  input: [8, 8, 3]
  layers:
{layers}
train: {{epochs: 1, optimizer: adam}}
{more}
"""
LAYERS = "    - flatten\n    - dense: {units: 10}"


def yaml(path, layers=LAYERS, more=""):
    path.write_text(CONFIG.format(layers=layers, more=more))


def yaml_bomb(name, text, verb="validate"):
    @bomb("yaml: " + name, verb, "{}/net.yaml")
    def _(folder):
        made = text()
        if isinstance(made, tuple):
            yaml(folder / "net.yaml", *made)
        else:
            (folder / "net.yaml").write_text(made)


yaml_bomb("100000 unknown keys", lambda: (LAYERS, "\n".join(f"key_{i}: 1" for i in range(100000))))
yaml_bomb("100000 unknown keys that are near", lambda: (LAYERS, "\n".join(f"trian{i}: 1" for i in range(100000))))
yaml_bomb("100000 unknown keys in train", lambda: CONFIG.format(layers=LAYERS, more="").replace("epochs: 1,", "epochs: 1, " + ", ".join(f"lerning_rate{i}: 1" for i in range(100000)) + ","))
yaml_bomb("100000 unknown keys in one line", lambda: "{" + ", ".join(f"key_{i}: 1" for i in range(100000)) + "}")
yaml_bomb("200000 unknown layers", lambda: ("\n".join("    - densee: {units: 1}" for _ in range(150000)), ""))
yaml_bomb("200000 unknown plain layers", lambda: ("\n".join("    - flaten" for _ in range(200000)), ""))
yaml_bomb("200000 layers without options", lambda: ("\n".join("    - dense" for _ in range(200000)), ""))
yaml_bomb("200000 layers with a wrong option", lambda: ("\n".join("    - dense: {units: x}" for _ in range(140000)), ""))
yaml_bomb("200000 sound layers", lambda: ("\n".join("    - relu" for _ in range(200000)) + "\n" + LAYERS, ""))
yaml_bomb("100000 sound dense layers", lambda: ("    - flatten\n" + "\n".join("    - dense: {units: 8}" for _ in range(100000)), ""))
yaml_bomb("100000 layers of wrong inputs", lambda: ("\n".join(f"    - add: {{name: a{i}, inputs: [b{i}, c{i}]}}" for i in range(80000)), ""))
yaml_bomb("80000 named layers, one unknown input each", lambda: ("\n".join(f"    - relu: {{name: layer_{i}, inputs: [layr_{i}]}}" for i in range(70000)), ""))
yaml_bomb("a join of 400000 inputs", lambda: ("    - relu: {name: a}\n    - add: {inputs: [" + ", ".join(["a"] * 400000) + "]}\n" + LAYERS, ""))
yaml_bomb("a join of 400000 unknown inputs", lambda: ("    - relu: {name: a}\n    - add: {inputs: [" + ", ".join(["b"] * 400000) + "]}\n" + LAYERS, ""))
yaml_bomb("100000 blocks", lambda: (LAYERS, "").__class__((LAYERS, "")) if False else CONFIG.format(layers=LAYERS, more="").replace("model:\n", "model:\n  blocks:\n" + "\n".join(f"    b{i}: {{layers: [relu]}}" for i in range(100000)) + "\n"))
yaml_bomb("blocks that double", lambda: CONFIG.format(layers="    - b29\n" + LAYERS, more="").replace("model:\n", "model:\n  blocks:\n    b0: {layers: [relu]}\n" + "\n".join(f"    b{i + 1}: {{layers: [b{i}, b{i}]}}" for i in range(29)) + "\n"))
yaml_bomb("repeat of many", lambda: CONFIG.format(layers="    - b0: {repeat: 1000000000}\n" + LAYERS, more="").replace("model:\n", "model:\n  blocks:\n    b0: {layers: [relu]}\n"))
yaml_bomb("deep lists", lambda: (LAYERS, "x: " + "[" * 1_900_000 + "]" * 1_900_000))
yaml_bomb("deep lists, open", lambda: (LAYERS, "x: " + "[" * 3_900_000))
yaml_bomb("deep maps", lambda: (LAYERS, "x: " + "{a: " * 900_000))
yaml_bomb("deep block lists", lambda: (LAYERS, "x:\n" + "- " * 1_900_000 + "1"))
yaml_bomb("deep block maps", lambda: (LAYERS, "\n".join(" " * i + "a:" for i in range(2700))))
yaml_bomb("deep question marks", lambda: (LAYERS, "x:\n" + "? " * 1_900_000 + "1"))
yaml_bomb("a long scalar", lambda: (LAYERS, "x: " + "a" * 3_900_000))
yaml_bomb("a long key", lambda: (LAYERS, "a" * 3_900_000 + ": 1"))
yaml_bomb("a long quoted scalar", lambda: (LAYERS, 'x: "' + "\\n" * 1_900_000 + '"'))
yaml_bomb("a scalar of many lines", lambda: (LAYERS, "x: a\n" + " a\n" * 1_200_000))
yaml_bomb("a block scalar", lambda: (LAYERS, "x: |\n" + " a\n" * 1_200_000))
yaml_bomb("a long layer kind", lambda: ("    - " + "a" * 3_900_000, ""))
yaml_bomb("long names of layers and inputs", lambda: ("    - relu: {name: " + "a" * 1_900_000 + "}\n    - relu: {inputs: " + "a" * 1_900_000 + "b}", ""))
yaml_bomb("1000 long names and one input", lambda: ("".join(f"    - relu: {{name: {chr(97 + i % 26) * 1800}_{i}}}\n" for i in range(2000)) + "    - relu: {inputs: [" + "a" * 1790 + "]}", ""))
yaml_bomb("colons", lambda: (LAYERS, ": " * 1_900_000))
yaml_bomb("commas", lambda: (LAYERS, "x: [" + "," * 3_900_000 + "]"))
yaml_bomb("a list of 1.9M numbers", lambda: (LAYERS, "x: [" + "1," * 1_900_000 + "]"))
yaml_bomb("input of 1.9M numbers", lambda: CONFIG.format(layers=LAYERS, more="").replace("[8, 8, 3]", "[" + "1," * 1_900_000 + "]"))
yaml_bomb("flow keys without values", lambda: (LAYERS, "x: {" + "a" * 1 + ", " + ", ".join(f"k{i}" for i in range(400000)) + "}"))
yaml_bomb("dashes", lambda: (LAYERS, "x:\n" + "-\n" * 1_900_000))
yaml_bomb("comments", lambda: (LAYERS, "#\n" * 1_900_000))
yaml_bomb("documents", lambda: "---\n" * 900_000)
yaml_bomb("directives", lambda: "%YAML 1.2\n" * 390_000)
yaml_bomb("tags", lambda: "%TAG !a! b\n" * 350_000)
yaml_bomb("anchors", lambda: (LAYERS, "\n".join(f"k{i}: &a{i} 1" for i in range(200000))))
yaml_bomb("aliases that double", lambda: "a: &a [1,1]\n" + "\n".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)},*{chr(97 + i)}]" for i in range(24)))
yaml_bomb("an expression of 3.9 MB", lambda: CONFIG.format(layers="    - flatten\n    - dense: {units: \"${" + "1+" * 1_900_000 + "1}\"}", more=""))
yaml_bomb("parentheses", lambda: CONFIG.format(layers="    - flatten\n    - dense: {units: \"${" + "(" * 3_900_000 + "}\"}", more=""))
yaml_bomb("10000 expressions", lambda: CONFIG.format(layers="    - b: {n: 3}\n", more="").replace("model:\n", "model:\n  blocks:\n    b: {parameters: {n: 1}, layers: [" + ", ".join("{dense: {units: '${" + "(n+1)*" * 20 + "1}'}}" for i in range(20000)) + "]}\n"))
yaml_bomb("a path of dots", lambda: (LAYERS, "x: '" + "$" * 3_000_000 + "'"))
yaml_bomb("pipeline of 100000 stages", lambda: CONFIG.format(layers=LAYERS, more="").replace("pipeline: [", "pipeline: [" + "random_flip: {}, ".join([""] * 1) + "{random_flip: {}}, " * 150000))
yaml_bomb("pipeline of 100000 unknown stages", lambda: CONFIG.format(layers=LAYERS, more="").replace("pipeline: [", "pipeline: [" + "{random_flp: {}}, " * 150000))
yaml_bomb("metrics of 500000", lambda: CONFIG.format(layers=LAYERS, more="").replace("epochs: 1,", "epochs: 1, metrics: [" + "accuracy, " * 300000 + "],"))
yaml_bomb("classes of 500000", lambda: CONFIG.format(layers=LAYERS, more="").replace("format: generated,", "format: image_folder, path: /tmp, classes: [" + ", ".join(f"c{i}" for i in range(400000)) + "],"))
yaml_bomb("200000 unknown layers, planned", lambda: ("\n".join("    - densee: {units: 1}" for _ in range(150000)), ""), "plan")
yaml_bomb("100000 unknown keys, planned", lambda: (LAYERS, "\n".join(f"key_{i}: 1" for i in range(100000))), "plan")
yaml_bomb("100000 unknown keys, as JSON", lambda: (LAYERS, "\n".join(f"key_{i}: 1" for i in range(100000))), "validate --json")


# ---- images, through `bantam data` of a folder of them

def images(name, suffix, make, count=1):
    @bomb("image: " + name, "data", "{}/net.yaml", "--check")
    def _(folder):
        for label in ("a", "b"):
            (folder / "images" / label).mkdir(parents=True)
        for i in range(4):
            (folder / "images" / "ab"[i % 2] / f"s{i}.pgm").write_bytes(b"P5 32 32 255\n" + bytes([i]) * 1024)
        (folder / "images" / "a" / f"x.{suffix}").write_bytes(make())
        (folder / "net.yaml").write_text(f"""version: 1
device: cpu
data: {{format: image_folder, path: {folder}/images, pipeline: [{{resize: {{size: 32}}}}, {{batch: {{size: 4}}}}]}}
model:
  input: [32, 32, 3]
  layers: [flatten, {{dense: {{units: 2}}}}]
train: {{epochs: 1, optimizer: adam}}
""")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(chunks, width=32, height=32, colour=0, depth=8, interlace=0):
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunks) + chunk(b"IEND", b"")


def deflated(size, level=9):
    """A zlib stream of zeros, without ever holding them."""
    packer = zlib.compressobj(level)
    block, out = bytes(1 << 20), []
    for _ in range(size >> 20):
        out.append(packer.compress(block))
    out.append(packer.compress(bytes(size & 0xFFFFF)))
    return b"".join(out) + packer.flush()


def stored(size):
    """A zlib stream of stored blocks of nothing, as long as that."""
    return b"\x78\x01" + b"\x00\x00\x00\xff\xff" * (size // 5)


ROWS = bytes(33 * 32)
PNG_BODY = chunk(b"IDAT", zlib.compress(ROWS))
images("png of 17 MB of image data after the last row", "png", lambda: png([chunk(b"IDAT", deflated(17 << 30))]))
images("png of 17 MB of interlaced image data after the last row", "png", lambda: png([chunk(b"IDAT", deflated(17 << 30))], interlace=1))
images("png of empty blocks before the rows", "png", lambda: png([chunk(b"IDAT", stored(16 << 20))]))
images("png of a million empty IDAT", "png", lambda: png([chunk(b"IDAT", b"")] * 1_300_000 + [PNG_BODY]))
images("png of many zTXt of 1 MB", "png", lambda: png([chunk(b"zTXt", b"XML:com.adobe.xmp\0\0" + deflated(1 << 20))] * 15000 + [PNG_BODY]))
images("png of many zTXt of 8 MB", "png", lambda: png([chunk(b"zTXt", b"Comment\0\0" + deflated(7 << 20))] * 2000 + [PNG_BODY]))
images("png of many iTXt exif", "png", lambda: png([chunk(b"iTXt", b"XML:com.adobe.xmp\0\1\0\0\0" + deflated(1000))] * 250000 + [PNG_BODY]))
images("png of many tEXt exif", "png", lambda: png([chunk(b"tEXt", b"Raw profile type exif\0" + b"\nexif\n  8\n" + b"00" * 8)] * 250000 + [PNG_BODY]))
images("png with an iCCP bomb", "png", lambda: png([chunk(b"iCCP", b"a\0\0" + deflated(1 << 30))] + [PNG_BODY]))
images("png with many iCCP", "png", lambda: png([chunk(b"iCCP", b"a\0\0" + deflated(7 << 20))] * 2000 + [PNG_BODY]))
images("png with many sPLT", "png", lambda: png([chunk(b"sPLT", b"a%d\0\x08" % i + bytes(6 * 1000)) for i in range(2500)] + [PNG_BODY]))
images("apng of many frames", "png", lambda: png([chunk(b"acTL", struct.pack(">II", 100000, 0)), PNG_BODY] + [chunk(b"fcTL", bytes(26)), chunk(b"fdAT", bytes(4) + zlib.compress(ROWS))] * 100000))
images("png of many chunks after the image", "png", lambda: png([PNG_BODY] + [chunk(b"tEXt", b"a\0b")] * 1_000_000))
images("png of 16384 x 16384", "png", lambda: png([chunk(b"IDAT", deflated(16385 * 16384))], 16384, 16384))
images("png of 11585 x 11585 in 64 bits", "png", lambda: png([chunk(b"IDAT", deflated((11585 * 8 + 1) * 11585))], 11585, 11585, 6, 16))


def jpeg_segments():
    """Of a progressive JPEG of one component, written by hand: headers, then a scan of coefficients."""
    quantizer = b"\xff\xdb\x00\x43\x00" + b"\x01" * 64
    # One code of one bit for EOB run 0 (AC) or category 0 (DC).
    table = lambda kind, symbol: b"\xff\xc4\x00\x14" + bytes([kind]) + b"\x01" + bytes(15) + bytes([symbol])
    return quantizer, table


def jpeg(width, height, scans, progressive=True, components=1):
    quantizer, table = jpeg_segments()
    parts = b"".join(bytes([i + 1, 0x11, 0]) for i in range(components))
    frame = (b"\xff\xc2" if progressive else b"\xff\xc0") + struct.pack(">HBHHB", 8 + 3 * components, 8, height, width, components) + parts
    return b"\xff\xd8" + quantizer + frame + table(0x00, 0) + table(0x10, 0) + scans + b"\xff\xd9"


def scan(first, last, high_low, data, component=1):
    return b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, component, 0, first, last, high_low) + data


def dc_scan(width, height):
    blocks = (width + 7) // 8 * ((height + 7) // 8)
    return scan(0, 0, 0, bytes((blocks + 7) // 8))


def eob_table():
    """EOB run of 2^14 and more: symbol 0xE0 with 14 bits."""
    return b"\xff\xc4\x00\x14\x10\x01" + bytes(15) + b"\xe0"


def ac_scans(width, height, count):
    blocks = (width + 7) // 8 * ((height + 7) // 8)
    runs = (blocks + (1 << 14) - 1) >> 14
    return b"".join(scan(1 + i % 63, 1 + i % 63, 0, bytes((runs * 15 + 7) // 8)) for i in range(count))


images("jpeg of 90 scans of 16384 x 16383", "jpg", lambda: jpeg(16384, 16383, dc_scan(16384, 16383) + eob_table() + ac_scans(16384, 16383, 63) + b""))
images("jpeg of 10000 scans of 1024 x 1024", "jpg", lambda: jpeg(1024, 1024, dc_scan(1024, 1024) + eob_table() + ac_scans(1024, 1024, 10000)))
images("jpeg of 90 scans of 8192 x 8192", "jpg", lambda: jpeg(8192, 8192, dc_scan(8192, 8192) + eob_table() + ac_scans(8192, 8192, 63)))
images("jpeg of 200000 tables", "jpg", lambda: jpeg(32, 32, jpeg_segments()[0] * 240000 + dc_scan(32, 32)))
images("jpeg of 16 MB of FF", "jpg", lambda: b"\xff\xd8" + b"\xff" * (16 << 20))
images("jpeg of 16 MB of APP1", "jpg", lambda: b"\xff\xd8" + (b"\xff\xe1\xff\xff" + b"Exif\0\0" + bytes(65527)) * 256 + jpeg(32, 32, dc_scan(32, 32))[2:])
images("jpeg of 3M tiny APP1", "jpg", lambda: b"\xff\xd8" + (b"\xff\xe1\x00\x08Exif\0\0") * 1_700_000 + jpeg(32, 32, dc_scan(32, 32))[2:])
images("jpeg of 16384 x 16383, baseline", "jpg", lambda: jpeg(16384, 16383, b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, 1, 0, 0, 63, 0) + bytes(2048 * 2048 * 2 // 8), False))


def gif(frames, width=32, height=32):
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6) + frames + b";"


def gif_frame(width=32, height=32, data=b""):
    return b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02" + data + b"\0"


GIF_DATA = b"\x01\x44"
images("gif of 1000000 frames", "gif", lambda: gif(gif_frame(data=b"\x02\x44\x01") * 1_000_000))
images("gif of 16 MB of extensions", "gif", lambda: gif(b"!\xfe\x01a\0" * 3_000_000 + gif_frame(data=b"\x02\x44\x01")))
images("gif of 16 MB of clear codes", "gif", lambda: gif(gif_frame(data=(b"\xff" + b"\x24\x49\x92" * 85) * 65000)))
images("gif of 16384 x 16384", "gif", lambda: gif(gif_frame(16384, 16384, (b"\xff" + bytes(255)) * 1000), 16384, 16384))


def tiff(tags, data=b"", pages=1):
    """Little-endian, tags (number, type, count, value)."""
    directory = struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *t) for t in sorted(tags)) + struct.pack("<I", 0)
    return b"II*\0" + struct.pack("<I", 8) + directory + data


def tiff_tiles(width, height, tile_width, tile_height, compressed, compression=8, samples=1):
    count = ((width + tile_width - 1) // tile_width) * ((height + tile_height - 1) // tile_height)
    tags = 11
    begin = 8 + 2 + 12 * tags + 4
    offsets = begin + len(compressed)
    return tiff([(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, compression), (262, 3, 1, 1), (277, 3, 1, samples),
                 (284, 3, 1, 1), (322, 4, 1, tile_width), (323, 4, 1, tile_height), (324, 4, count, offsets), (325, 4, count, offsets + 4 * count)],
                compressed + struct.pack("<I", begin) * count + struct.pack("<I", len(compressed)) * count)


images("tiff of 4096 tiles of 2^28", "tif", lambda: tiff_tiles(16, 65536, 1 << 24, 16, deflated(1 << 28)))
images("tiff of tiles of 2^20 for 16 pixels each", "tif", lambda: tiff_tiles(16 * 256, 16 * 256, 1 << 14, 16, deflated(1 << 18)))
images("tiff of a tile of 16384 x 16384", "tif", lambda: tiff_tiles(32, 32, 16384, 16384, deflated(1 << 28)))
images("tiff of 65535 samples", "tif", lambda: tiff_tiles(32, 32, 32, 32, deflated(1024 * 65535), samples=65535))


def tiff_pages(count):
    head = b"II*\0" + struct.pack("<I", 8)
    pages, at = [], 8
    for i in range(count):
        tags = [(256, 4, 1, 1), (257, 4, 1, 1), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, 8), (278, 4, 1, 1), (279, 4, 1, 1)]
        size = 2 + 12 * len(tags) + 4
        at += size
        pages.append(struct.pack("<H", len(tags)) + b"".join(struct.pack("<HHII", *t) for t in tags) + struct.pack("<I", at if i + 1 < count else 0))
    return head + b"".join(pages)


images("tiff of 160000 pages", "tif", lambda: tiff_pages(160000))
images("tiff of 65535 tags", "tif", lambda: tiff([(256, 4, 1, 32), (257, 4, 1, 32)] + [(40000 + i % 20000, 4, 1, i) for i in range(65000)], bytes(2000)))
images("tiff of a tag of 16 MB", "tif", lambda: tiff([(256, 4, 1, 32), (257, 4, 1, 32), (700, 1, 16 << 20, 200)], bytes(17 << 20)))
images("tiff of 4 G strips", "tif", lambda: tiff([(256, 4, 1, 32), (257, 4, 1, 0xFFFFFF), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 0xFFFFFFF, 200), (278, 4, 1, 1), (279, 4, 0xFFFFFFF, 200)], bytes(1 << 20)))
images("pnm of 16 MB of comments", "ppm", lambda: b"P6\n" + b"#\n" * (8 << 20) + b"32 32 255\n" + bytes(3072))
images("pnm of 16 MB of blanks", "ppm", lambda: b"P3\n32 32 255\n" + b" " * (16 << 20))
images("pnm of a number of 16 MB", "ppm", lambda: b"P3\n32 32 255\n" + b"0" * (16 << 20))
images("pnm of 16384 x 16384 in text", "ppm", lambda: b"P3\n16384 16384 255\n" + b"0 " * (1 << 20))
images("pbm of 16384 x 16384", "pbm", lambda: b"P4\n16384 16384\n" + bytes(2048 * 16384))
images("bmp of runs of nothing", "bmp", lambda: b"BM" + struct.pack("<IHHI", 1 << 24, 0, 0, 54 + 1024) + struct.pack("<IiiHHIIiiII", 40, 32, 32, 1, 8, 1, 0, 0, 0, 256, 0) + bytes(1024) + b"\0\2\0\0" * (4 << 20))


def webp_frames(count):
    riff = lambda kind, data: kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    frame = riff(b"ANMF", bytes(6) + b"\x1f\0\0\x1f\0\0" + bytes(4) + riff(b"VP8L", b"\x2f\x1f\xc0\x07\x00\x00\x00"))
    body = b"WEBP" + riff(b"VP8X", b"\x02\0\0\0\x1f\0\0\x1f\0\0") + riff(b"ANIM", bytes(6)) + frame * count
    return b"RIFF" + struct.pack("<I", len(body)) + body


images("webp of 300000 frames", "webp", lambda: webp_frames(300000))


# ---- weights

def pickle(name, make, legacy=False):
    def write(folder):
        data = make()
        if legacy:
            (folder / "net.pt").write_bytes(b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03." + b"\x80\x02}." + data)
            return
        with zipfile.ZipFile(folder / "net.pt", "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("net/data.pkl", data)
            archive.writestr("net/version", "3\n")
    bomb("pickle: " + name, "inspect", "{}/net.pt")(write)


SIZE = 16 << 20
pickle("16 MB of tiny integers", lambda: b"\x80\x02](" + b"K\x01" * (SIZE // 2) + b"e.")
pickle("16 MB of None", lambda: b"\x80\x02](" + b"N" * SIZE + b"e.")
pickle("16 MB of empty tuples", lambda: b"\x80\x02](" + b")" * SIZE + b"e.")
pickle("16 MB of empty lists", lambda: b"\x80\x02](" + b"]" * SIZE + b"e.")
pickle("16 MB of empty maps", lambda: b"\x80\x02](" + b"}" * SIZE + b"e.")
pickle("16 MB of True", lambda: b"\x80\x02](" + b"\x88" * SIZE + b"e.")
pickle("16 MB of marks", lambda: b"\x80\x02" + b"(" * SIZE)
pickle("16 MB of marks and tuples", lambda: b"\x80\x02](" + b"(t" * (SIZE // 2) + b"e.")
pickle("16 MB of nested tuples", lambda: b"\x80\x02)" + b"\x85" * SIZE + b".")
pickle("16 MB of doubled values", lambda: b"\x80\x02](N" + b"2" * SIZE + b"e.")
pickle("16 MB of recalled values", lambda: b"\x80\x02Nq\x000](" + b"h\x00" * (SIZE // 2) + b"e.")
pickle("a list that is appended to itself", lambda: b"\x80\x02]" + b"2a" * (SIZE // 2) + b".")
pickle("16 MB of memo entries", lambda: b"\x80\x04N" + b"\x94" * SIZE + b".")
pickle("3M memo entries far apart", lambda: b"\x80\x02N" + b"".join(b"r" + struct.pack("<I", i * 1001 & 0xFFFFFFFF) for i in range(SIZE // 5)) + b".")
pickle("16 MB of empty texts", lambda: b"\x80\x04](" + b"\x8c\x00" * (SIZE // 2) + b"e.")
pickle("16 MB of protocols", lambda: b"\x80\x02" * (SIZE // 2) + b"N.")
pickle("16 MB of frames", lambda: b"\x80\x04" + (b"\x95" + bytes(8)) * (SIZE // 9) + b"N.")
pickle("a LONG4 of 16 MB", lambda: b"\x80\x02\x8b" + struct.pack("<I", SIZE) + b"\x01" * SIZE + b".")
pickle("16 MB of LONG1", lambda: b"\x80\x02](" + b"\x8a\x01\x01" * (SIZE // 3) + b"e.")
pickle("16 MB of names", lambda: b"\x80\x02](" + b"ctorch\nFloatStorage\n" * (SIZE // 20) + b"e.")
pickle("16 MB of floats in text", lambda: b"\x80\x02](" + b"F1\n" * (SIZE // 3) + b"e.")
pickle("one number of 16 MB in text", lambda: b"\x80\x02I" + b"1" * SIZE + b"\n.")
pickle("16 MB of sets of items", lambda: b"\x80\x02}(" + b"NN" * (SIZE // 2) + b"u.")
pickle("a map of 4M names", lambda: b"\x80\x02}(" + b"".join(b"X\x04\0\0\0" + struct.pack("<I", 0x20202020 + i) + b"N" for i in range(1 << 20)) + b"u.")
pickle("ordered dictionaries", lambda: b"\x80\x02](" + b"ccollections\nOrderedDict\n)R" * (SIZE // 28) + b"e.")
pickle("ordered dictionaries, recalled", lambda: b"\x80\x02](ccollections\nOrderedDict\nq\x00" + b"h\x00)R" * (SIZE // 4) + b"e.")
pickle("16 MB of tiny integers, before 1.6", lambda: b"\x80\x02](" + b"K\x01" * (SIZE // 2) + b"e.", legacy=True)
pickle("16 MB of None, before 1.6", lambda: b"\x80\x02](" + b"N" * SIZE + b"e.", legacy=True)


@bomb("pickle: 300000 tensors of one storage", "inspect", "{}/net.pt")
def _(folder):
    out = [b"\x80\x02}("]
    out.append(b"X\x01\0\0\0a" + b"ctorch._utils\n_rebuild_tensor_v2\nq\x01((X\x07\0\0\0storageq\x02ctorch\nFloatStorage\nq\x03X\x01\0\0\x000q\x04X\x03\0\0\0cpuq\x05K\x01tq\x06QK\0K\x01\x85q\x07K\x01\x85q\x08\x89ccollections\nOrderedDict\nq\x09)Rq\x0atR")
    for i in range(300000):
        name = b"t%d" % i
        out.append(b"X" + struct.pack("<I", len(name)) + name + b"h\x01(h\x06QK\0h\x07h\x08\x89h\x0atR")
    out.append(b"u.")
    with zipfile.ZipFile(folder / "net.pt", "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("net/data.pkl", b"".join(out))
        archive.writestr("net/data/0", bytes(4))


@bomb("pickle: 300000 tensors, imported", "import", "{}/net.pt", "-o", "{}/out")
def _(folder):
    [make for name, _, make in BOMBS if name == "pickle: 300000 tensors of one storage"][0](folder)


@bomb("pickle: 20000 tensors of one storage of 16 MB", "import", "{}/net.pt", "-o", "{}/out")
def _(folder):
    out = [b"\x80\x02}("]
    count = struct.pack("<I", 4 << 20)
    out.append(b"X\x01\0\0\0a" + b"ctorch._utils\n_rebuild_tensor_v2\nq\x01((X\x07\0\0\0storageq\x02ctorch\nFloatStorage\nq\x03X\x01\0\0\x000q\x04X\x03\0\0\0cpuq\x05J" + count + b"tq\x06QK\0J" + count + b"\x85q\x07K\x01\x85q\x08\x89ccollections\nOrderedDict\nq\x09)Rq\x0atR")
    for i in range(20000):
        name = b"t%d" % i
        out.append(b"X" + struct.pack("<I", len(name)) + name + b"h\x01(h\x06QK\0h\x07h\x08\x89h\x0atR")
    out.append(b"u.")
    with zipfile.ZipFile(folder / "net.pt", "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("net/data.pkl", b"".join(out))
        archive.writestr("net/data/0", bytes(16 << 20))


@bomb("zip: 300000 members", "inspect", "{}/net.pt")
def _(folder):
    with zipfile.ZipFile(folder / "net.pt", "w", zipfile.ZIP_STORED) as archive:
        for i in range(200000):
            archive.writestr(f"net/data/{i}", b"")
        archive.writestr("net/data.pkl", b"\x80\x02}.")


def overlapping_zip(path, member_bytes, entries, method=8, names=None):
    """Entries of the directory that all name the same member."""
    data = deflated(member_bytes) if method == 8 else bytes(member_bytes)
    data = data[2:-4] if method == 8 else data
    crc = 0
    for _ in range(member_bytes >> 20):
        crc = zlib.crc32(bytes(1 << 20), crc)
    names = names or [b"m%06d" % i for i in range(entries)]
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, method, 0, 0, crc, len(data), member_bytes, len(names[0]), 0) + names[0] + data)
        at = file.tell()
        for name in names:
            file.write(struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, method, 0, 0, crc, len(data), member_bytes, len(name), 0, 0, 0, 0, 0, 0) + name)
        end = file.tell()
        file.write(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, len(names), len(names), end - at, at, 0))


@bomb("zip: overlapping members of 1 MB each", "inspect", "{}/net.pt")
def _(folder):
    overlapping_zip(folder / "net.pt", 1 << 20, 60000)


@bomb("zip: overlapping stored members of 1 MB each", "inspect", "{}/net.pt")
def _(folder):
    overlapping_zip(folder / "net.pt", 1 << 20, 60000, 0)


@bomb("zip: an .npz of overlapping members", "inspect", "{}/net.npz")
def _(folder):
    overlapping_zip(folder / "net.npz", 1 << 20, 60000)


def data_file(name, config, make, *command):
    """Samples of a format, by `data --check`."""
    @bomb("data: " + name, *(command or ("data", "{}/net.yaml", "--check")))
    def _(folder):
        make(folder)
        (folder / "net.yaml").write_text(f"""version: 1
device: cpu
data: {{{config.format(folder)}, pipeline: [{{batch: {{size: 1}}}}]}}
model:
  input: [1]
  layers: [{{dense: {{units: 2}}}}]
train: {{epochs: 1, optimizer: adam}}
""")


def npy(descr="<f4", shape="(1,)", data=b"", order="False"):
    head = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}}}"
    head += " " * ((64 - (10 + len(head) + 1) % 64) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


NPY = "format: npy, train: {{images: {0}/a.npy, labels: {0}/b.npy}}, test: {{images: {0}/a.npy, labels: {0}/b.npy}}"
for shape in ["(1000000000000,)", "(9223372036854775807,)", "(9223372036854775807, 9223372036854775807)", "(99999999999999999999,)", "(-1,)", "(1,)" * 3, "(0, 9223372036854775807, 2)", "(" + "1," * 20000 + ")", "(268435456, 0)"]:
    data_file(f"npy of shape {shape[:50]}", NPY, lambda folder, shape=shape: ((folder / "a.npy").write_bytes(npy(shape=shape)), (folder / "b.npy").write_bytes(npy("<i8", "(1,)", bytes(8)))))
data_file("npy of a header of 4 GB", NPY, lambda folder: ((folder / "a.npy").write_bytes(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"), (folder / "b.npy").write_bytes(npy("<i8", "(1,)", bytes(8)))))
data_file("npy of text of 2^20 letters", NPY, lambda folder: ((folder / "a.npy").write_bytes(npy(shape="(4, 1)", data=bytes(16))), (folder / "b.npy").write_bytes(npy("<U1048576", "(4,)", bytes(16 << 20)))))
data_file("npy of 16M text labels of one letter", NPY, lambda folder: ((folder / "a.npy").write_bytes(npy("|u1", shape="(8000000, 1)", data=bytes(8000000))), (folder / "b.npy").write_bytes(npy("|S2", "(8000000,)", b"".join(struct.pack(">H", 0x2121 + (i % 10000)) for i in range(8000000))))))
IDX = "format: idx, path: {0}"


def idx_files(folder, images, labels, suffix=""):
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte{suffix}").write_bytes(images)
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)



for dims in [(0xFFFFFFFF,), (0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 255, (0, 0xFFFFFFFF, 0xFFFFFFFF), (1 << 20, 1 << 10, 1 << 10)]:
    data_file(f"idx of extents {str(dims)[:40]}", IDX, lambda folder, dims=dims: idx_files(
        folder, bytes([0, 0, 8, len(dims)]) + b"".join(struct.pack(">I", d) for d in dims), bytes([0, 0, 8, 1]) + struct.pack(">I", dims[0])))
for pack, suffix in ((gzip.compress, "gz"), (bz2.compress, "bz2"), (lzma.compress, "xz")):
    data_file(f"idx of 2 GB of zeros in .{suffix}", IDX, lambda folder, pack=pack, suffix=suffix: idx_files(
        folder, packed(pack), bytes([0, 0, 8, 1]) + struct.pack(">I", 2000) + bytes(2000), f".{suffix}"))


def packed(pack, size=2 << 30):
    out = io.BytesIO()
    opened = {gzip.compress: gzip.GzipFile, bz2.compress: bz2.BZ2File, lzma.compress: lzma.LZMAFile}[pack]
    file = opened(out, "w") if pack is not gzip.compress else gzip.GzipFile(fileobj=out, mode="w")
    file.write(bytes([0, 0, 8, 3]) + struct.pack(">III", 2000, 1024, 1024))
    for _ in range(size >> 20):
        file.write(bytes(1 << 20))
    file.close()
    return out.getvalue()


def tar_bomb(name, write, **options):
    @bomb("tar: " + name, "data", "{}/net.yaml", "--check")
    def _(folder):
        with open(folder / "cifar-10-binary.tar.gz", "wb") as file:
            write(file)
        (folder / "net.yaml").write_text(f"""version: 1
device: cpu
data: {{format: {options.get("format", "cifar10")}, path: {folder}/cifar-10-binary.tar.gz, pipeline: [{{batch: {{size: 1}}}}]}}
model:
  input: [32, 32, 3]
  layers: [flatten, {{dense: {{units: 10}}}}]
train: {{epochs: 1, optimizer: adam}}
""")


def tar_of_zeros(file, name, size, mode="gz"):
    with tarfile.open(fileobj=file, mode="w:" + mode) as archive:
        info = tarfile.TarInfo(name)
        info.size = size

        class Zeros(io.RawIOBase):
            def read(self, count=-1):
                return bytes(count)
        archive.addfile(info, Zeros())


tar_bomb("gz with a member of 3 GB", lambda file: tar_of_zeros(file, "cifar-10-batches-bin/data_batch_1.bin", 3 << 30))
tar_bomb("gz with a pickled member of 3 GB", lambda file: tar_of_zeros(file, "cifar-10-batches-py/data_batch_1", 3 << 30))
tar_bomb("gz with another member of 8 GB", lambda file: tar_of_zeros(file, "readme", 8 << 30))
tar_bomb("xz with another member of 8 GB", lambda file: tar_of_zeros(file, "readme", 8 << 30, "xz"))


def tiny_members(file):
    info = tarfile.TarInfo("a")
    block = info.tobuf()
    packer = gzip.GzipFile(fileobj=file, mode="w", compresslevel=6)
    for _ in range(1_000_000 // 100):
        packer.write(block * 100)
    packer.close()


tar_bomb("gz of a million members", tiny_members)


def long_names(file):
    packer = gzip.GzipFile(fileobj=file, mode="w")
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = b"L", 1 << 30
    packer.write(info.tobuf())
    for _ in range(1 << 10):
        packer.write(b"a" * (1 << 20))
    packer.close()


tar_bomb("gz with a name of 1 GB", long_names)


def pax(file):
    packer = gzip.GzipFile(fileobj=file, mode="w")
    info = tarfile.TarInfo("pax")
    info.type, info.size = b"x", 1 << 30
    packer.write(info.tobuf())
    for _ in range(1 << 10):
        packer.write(b"10 a=aaaaa\n" * 95325)
    packer.close()


tar_bomb("gz with a pax header of 1 GB", pax)


def safetensors(name, header, data=b"", verb="inspect"):
    @bomb("safetensors: " + name, verb, "{}/net.safetensors")
    def _(folder):
        text = header()
        (folder / "net.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


safetensors("a million empty tensors", lambda: b"{" + b",".join(b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(1_000_000)) + b"}")
safetensors("990000 tensors with the same beginning", lambda: b"{" + b",".join(b'"' + b"a" * 40 + b'%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % i for i in range(900_000)) + b"}")
safetensors("a million entries of metadata", lambda: b'{"__metadata__":{' + b",".join(b'"t%d":"v"' % i for i in range(1_000_000)) + b"}}")
safetensors("a deep value", lambda: b'{"a":{"x":' + b"[" * 10_000_000)
safetensors("a deep header", lambda: b"[" * 50_000_000)
safetensors("a number of 10 MB", lambda: b'{"a":{"dtype":"F32","shape":[' + b"1" * 10_000_000 + b"]")
safetensors("a name of 50 MB", lambda: b'{"' + b"a" * 50_000_000 + b'":1}')
safetensors("a shape of 10M", lambda: b'{"a":{"dtype":"F32","shape":[' + b"1," * 5_000_000)
safetensors("30M duplicate keys of one tensor", lambda: b'{"a":{' + b'"x":1,' * 5_000_000 + b'"dtype":"F32","shape":[0],"data_offsets":[0,0]}}')


# ---- tables

def csv(name, config, make, *command):
    def write(folder):
        with open(folder / "t.csv", "wb") as file:
            file.write(make())
    data_file("csv, " + name, "format: csv, path: {0}/t.csv, " + config, write, *command)


ROW = lambda count, rows: b",".join(b"c%d" % i for i in range(count)) + b",label\n" + (b",".join([b"1"] * count) + b",1\n" + b",".join([b"2"] * count) + b",2\n") * rows
csv("80000 columns", "label: label", lambda: ROW(80000, 3))
csv("80000 columns, features: all", "label: label, features: all", lambda: ROW(80000, 3))
csv("80000 columns of text", "label: label, features: all", lambda: b",".join(b"c%d" % i for i in range(80000)) + b",label\n" + (b",".join([b"a"] * 80000) + b",1\n") * 10)
csv("80000 columns, one unknown", "label: label, features: [d1]", lambda: ROW(80000, 3))
csv("80000 columns, another label", "label: labell", lambda: ROW(80000, 3))
csv("80000 columns of one name", "label: label", lambda: b",".join([b"a"] * 80000) + b",label\n" + (b",".join([b"1"] * 80000) + b",1\n") * 3)
csv("2M columns", "label: label", lambda: ROW(2_000_000, 1))
csv("8M empty columns", "label: 0", lambda: b"," * 8_000_000 + b"\n" + b"," * 8_000_000 + b"\n")
csv("80000 columns named one by one", "label: label, features: [" + ", ".join(f"c{i}" for i in range(80000)) + "]", lambda: ROW(80000, 3))
csv("20000 unknown features of 20000 columns", "label: label, features: [" + ", ".join(f"d{i}" for i in range(20000)) + "]", lambda: ROW(20000, 3))
csv("a million classes", "label: l", lambda: b"x,l\n" + b"".join(b"1,c%d\n" % i for i in range(1_000_000)))
csv("100000 sets of labels", "label: {{column: l, separator: '|'}}", lambda: b"x,l\n" + b"".join(b"1,c%d|d\n" % i for i in range(300_000)))
csv("one set of 3M labels", "label: {{column: l, separator: '|'}}", lambda: b"x,l\n1," + b"|".join(b"c%d" % i for i in range(1_000_000)) + b"\n2,c1\n")
csv("8M quotes", "label: 0", lambda: b'a,b\n' + b'""' * 8_000_000 + b",1\n")
csv("an open quote", "label: 0", lambda: b'a,b\n1,2\n' + b'"a\n' + b"1,2\n" * 4_000_000)
csv("many open quotes", "label: 0", lambda: b'a,b\n' + b'1,"\n' * 4_000_000)
csv("16 MB of comments", "label: 0", lambda: b"a,b\n" + b"#\n" * 8_000_000)
csv("16 MB in one line of comment signs", "label: 0", lambda: b"a,b\n" + b"#" * 16_000_000)
csv("16 MB of lines", "label: 0", lambda: b"\n" * 16_000_000)
csv("16 MB of blanks in a cell", "label: 0", lambda: b"a,b\n" + b" " * 16_000_000 + b",1\n")
csv("a cell of 16 MB", "label: b, features: [a]", lambda: b"a,b\n" + b"1" * 16_000_000 + b",1\n")
csv("a name of 16 MB", "label: b, features: [a]", lambda: b"a" * 16_000_000 + b",b\n1,1\n")
csv("1M rows of another length", "label: 0", lambda: b"a,b\n" + b"1\n" * 8_000_000)
csv("8M missing cells", "label: b, missing: drop, features: all", lambda: b"a,c,b\n" + b",,\n" * 4_000_000)
csv("20 MB of numbers", "label: b, features: all", lambda: b"a,b\n" + b"1,1\n" * 5_000_000)
csv("images that are not there", "image: a, label: b", lambda: b"a,b\n" + b"".join(b"i%d.png,1\n" % i for i in range(500_000)))
csv("init of 80000 columns", "label: 0", lambda: ROW(80000, 3), "init", "{}/t.csv", "-o", "{}/new.yaml")
csv("init of 80000 columns of text", "label: 0", lambda: b",".join(b"c%d" % i for i in range(80000)) + b",label\n" + (b",".join([b"a%d" % 1] * 80000) + b",1\n") * 10, "init", "{}/t.csv", "-o", "{}/new.yaml")
csv("init of a million classes", "label: 0", lambda: b"x,label\n" + b"".join(b"1,c%d\n" % i for i in range(1_000_000)), "init", "{}/t.csv", "-o", "{}/new.yaml")
csv("init of numbers that no double holds", "label: 0", lambda: b"x,label\n" + b"1e999,1\n99999999999999999999999999999999999999,2\n" * 1000 + b"9" * 1000 + b",1\n", "init", "{}/t.csv", "-o", "{}/new.yaml")


def packed_table(name, pack):
    @bomb("data: csv, 3 GB of zeros in " + name, "data", "{}/net.yaml", "--check")
    def _(folder):
        out = io.BytesIO()
        file = gzip.GzipFile(fileobj=out, mode="w") if pack == "gz" else bz2.BZ2File(out, "w") if pack == "bz2" else lzma.LZMAFile(out, "w")
        file.write(b"a,b\n")
        for _ in range(3 << 10):
            file.write(b"1,1\n" * (1 << 18))
        file.close()
        (folder / "t.csv").write_bytes(out.getvalue())
        (folder / "net.yaml").write_text(f"version: 1\ndevice: cpu\ndata: {{format: csv, path: {folder}/t.csv, label: b, pipeline: [{{batch: {{size: 1}}}}]}}\nmodel:\n  input: [1]\n  layers: [{{dense: {{units: 2}}}}]\ntrain: {{epochs: 1, optimizer: adam}}\n")


for suffix in ("gz", "bz2", "xz"):
    packed_table(suffix, suffix)


def init_file(name, file_name, make):
    @bomb("init: " + name, "init", "{}/folder", "-o", "{}/new.yaml")
    def _(folder):
        (folder / "folder").mkdir()
        path = folder / "folder" / file_name
        path.write_bytes(make())


init_file("a JSON of 16 MB of brackets", "a.json", lambda: b"[" * (16 << 20))
init_file("a labelmap of 1M lines", "labelmap.txt", lambda: b"a:1,2,3::\n" * 1_000_000)
init_file("a labelmap of large numbers", "labelmap.txt", lambda: b"a:99999999999999999999999,2,3::\n" * 10)

for kind in ("[", '{"a":', '"', "1", '{"a":1,'):
    @bomb(f"profile: 16 MB of {kind!r}", "plan", "{}/net.yaml", "--profile", "{}/p.json")
    def _(folder, kind=kind):
        yaml(folder / "net.yaml")
        (folder / "p.json").write_bytes(kind.encode() * ((16 << 20) // len(kind)))


def measure(program, command, folder):
    """Processor seconds, peak bytes, exit code and output of one call."""
    arguments = [program] + [a for part in command for a in (part.split() if part.startswith(("validate", "plan ")) else [part])]
    arguments = [a.replace("{}", str(folder)) for a in arguments]
    with open(folder / ".out", "wb") as out:
        child = subprocess.Popen(arguments, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                 preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (60, 61)))
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    with open(folder / ".out", "rb") as out:
        text = out.read(1 << 20)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, child.returncode, (folder / ".out").stat().st_size, text.decode(errors="replace")


def size_of(folder):
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file() and p.name not in (".out",))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--only", default="", help="a regular expression of names")
    parser.add_argument("--messages", action="store_true", help="shows how each ended")
    options = parser.parse_args()
    failed = count = 0
    for name, command, make in BOMBS:
        if not re.search(options.only, name):
            continue
        with tempfile.TemporaryDirectory(prefix="bombs-") as made:
            folder = pathlib.Path(made)
            make(folder)
            size = size_of(folder)
            seconds, peak, code, written, text = measure(os.path.abspath(options.program), command, folder)
            text = text.replace(str(folder), "")
        over = (peak - size) / (1 << 20)
        if image := re.match(r"image: .* of (\d+) x (\d+)", name):  # its own pixels, and a progressive JPEG's coefficients
            over -= 5 * int(image.group(1)) * int(image.group(2)) / (1 << 20)
        raw = RAW_WORDS.search(text)
        is_stale = name.startswith(("data: npy", "data: idx", "tar: ")) and re.search(r"(missing|unknown) key", text)
        faults = [what for what, holds in (("time", seconds > SECONDS), ("memory", over > MEBIBYTES),
                                           ("output", code != 0 and written > MESSAGE_BYTES), ("signal", code < 0), ("its configuration was not accepted", is_stale),
                                           (f"words: {raw.group(0) if raw else ''}", raw is not None)) if holds]
        count += 1
        failed += bool(faults)
        print(f"{name:55} {size / 1e6:7.2f} MB {seconds:7.2f} s {over:7.0f} MiB over, exit {code:3}, {written:9} bytes {'  <-- ' + ', '.join(faults) if faults else ''}", flush=True)
        if options.messages:
            print("    " + "\n    ".join(line[:300] for line in text.strip().splitlines()[-4:]), flush=True)
    print(f"{count} files, {failed} not within {SECONDS:.0f} s and {MEBIBYTES} MiB over their own size")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
