"""Files of tests/run/weights/torch_file_test.cpp: what torch.save writes, and the same repacked.

Run with PyTorch, in the folder tests/run/weights/files: python ../../../oracles/torch_files.py
"""
import argparse
import datetime
import io
import pathlib
import pickle
import struct
import zipfile
from collections import OrderedDict, defaultdict

import numpy
import torch

base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
state = OrderedDict(
    whole=base,
    transposed=base.t(),
    part=base[1:3, 1::2],
    expanded=torch.full((1,), 7.0).expand(3),
    parameter=torch.nn.Parameter(torch.tensor([0.5, -1.5])),
    scalar=torch.tensor(2.5),
    empty=torch.zeros(0, 3),
    half=torch.tensor([1.0, -0.5], dtype=torch.float16),
    bfloat=torch.tensor([1.0, -0.5], dtype=torch.bfloat16),
    double=torch.tensor([0.1], dtype=torch.float64),
    counted=torch.tensor(3),
    int32=torch.tensor([-7, 70000], dtype=torch.int32),
    bytes=torch.tensor([1, 255], dtype=torch.uint8),
    flags=torch.tensor([True, False]),
)
state._metadata = OrderedDict({"": {"version": 1}})
# Each line of what training programs put beside a state_dict is of a kind that must be read past.
checkpoint = {
    "epoch": 3, "best": 0.75, "name": "tiny", "args": None, "done": False, "seed": -(2 ** 40), "shape": torch.Size([2, 3]),
    "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999)}]},
    "state_dict": state,
}
torch.save(checkpoint, "views.pt")
torch.save(checkpoint, "protocol4.pt", pickle_protocol=4)
# The form before 1.6: a state_dict, the checkpoint, the latter from a GPU, and with pickles of protocol 4.
OLD = {"_use_new_zipfile_serialization": False}
torch.save(state, "old.pt", **OLD)
torch.save(checkpoint, "old_checkpoint.pt", **OLD)
torch.save(checkpoint, "old_protocol4.pt", pickle_protocol=4, **OLD)
with open("old_checkpoint.pt", "rb") as file:
    cpu = file.read()
with open("old_gpu.pt", "wb") as file:
    file.write(cpu.replace(b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0"))


class Call:
    """Pickled as a call."""

    def __init__(self, *reduced):
        self.reduced = reduced

    def __reduce__(self):
        return self.reduced


class OldPickler(pickle.Pickler):
    """PyTorch 0.3 under Python 2: _rebuild_tensor, dictionaries made of lists of pairs, views of storages."""

    def persistent_id(self, value):
        return value.id if isinstance(value, Storage) else None


class Storage:
    def __init__(self, *id):
        self.id = ("storage", torch.FloatStorage, *id)


def old_tensor(storage, offset, size, stride):
    return Call(torch._utils._rebuild_tensor, (storage, offset, size, stride))


root, view = Storage("7", "cpu", 6, None), Storage("7", "cuda:1", 6, ("8", 2, 3))
with open("old_python2.pt", "wb") as file:
    for value in (0x1950a86a20f9469cfc6c, 1001, {"protocol_version": 1001, "little_endian": True}):
        pickle.dump(value, file, protocol=2)
    OldPickler(file, 2).dump(Call(OrderedDict, ([["a.weight", old_tensor(root, 0, (2, 3), (3, 1))],
                                                 ["b.weight", old_tensor(view, 1, (2,), (1,))]],)))
    pickle.dump(["7"], file, protocol=2)
    file.write(struct.pack("<q6f", 6, *range(6)))

# Whole modules, as torch.save and torch.jit.save have them.
network = torch.nn.Sequential(OrderedDict(conv=torch.nn.Conv2d(1, 2, 1), norm=torch.nn.BatchNorm2d(2)))
with torch.no_grad():
    network.conv.weight.copy_(torch.tensor([1.0, 2.0]).reshape(2, 1, 1, 1))
torch.save({"epoch": 1, "model": network}, "module.pt")
torch.serialization.get_source_lines_and_file = None  # the form before 1.6 would have PyTorch's source in it
torch.save(network, "old_module.pt", **OLD)
torch.jit.save(torch.jit.script(network), "scripted.pt")
# Tensors of types that are not read, beside one that is.
torch.save({"w": torch.tensor([1.0, 2.0]), "i16": torch.ones(2, dtype=torch.int16), "c": torch.ones(3, dtype=torch.complex64),
            "f8": torch.ones(4).to(torch.float8_e4m3fn), "u16": torch.ones(2, dtype=torch.uint16),
            "q": torch.quantize_per_tensor(torch.ones(2, 5), 0.1, 0, torch.qint8),
            "s": torch.eye(2).to_sparse()}, "types.pt")
torch.save({"a": {"w": torch.ones(1)}, "b": {"w": torch.ones(1)}}, "several.pt")
# As PyTorch's ImageNet example saves them, and a module with a dictionary as its extra state.
torch.save({"epoch": 1, "best_acc1": torch.tensor(71.5), "state_dict": {"w": torch.tensor([1.0, 2.0])}}, "beside.pt")
torch.save({"w": torch.tensor([1.0, 2.0]), "extra": {"v": torch.zeros(1)}}, "extra.pt")
# As PyTorch's ImageNet example of old and timm save them: objects of other classes, and averaged weights.
log = defaultdict(list)
log["loss"].append(numpy.float64(0.25))
args = argparse.Namespace(arch="resnet18", lr=0.1, device=torch.device("cpu"), dtype=torch.float16, seen={1, 2},
                          data=pathlib.PurePosixPath("data"), at=datetime.datetime(2026, 11, 23), log=log)
torch.save({"epoch": 1, "args": args, "state_dict": {"w": torch.tensor([1.0, 2.0])},
            "state_dict_ema": {"w": torch.tensor([3.0, 4.0])}}, "namespace.pt")

WIDTHS = {"FloatStorage": 4, "DoubleStorage": 8, "HalfStorage": 2, "BFloat16Storage": 2, "LongStorage": 8, "IntStorage": 4}


def repacked(name, change=lambda member, data: data, method=zipfile.ZIP_STORED, force_zip64=False):
    with zipfile.ZipFile("views.pt") as old, zipfile.ZipFile(name, "w", method) as new:
        for member in old.namelist():
            with new.open(zipfile.ZipInfo(member) if method == zipfile.ZIP_STORED else member, "w",
                          force_zip64=force_zip64) as out:
                out.write(change(member, old.read(member)))


def widths():
    """Bytes an element, by storage."""
    found = {}

    class Reader(torch.serialization.pickle.Unpickler):
        def persistent_load(self, saved):
            found[saved[2]] = WIDTHS.get(saved[1].__name__, 1)
            return torch.UntypedStorage(0)

        def find_class(self, module, name):
            if name == "_rebuild_tensor_v2":
                return lambda *a: None
            if name == "_rebuild_parameter":
                return lambda *a: None
            return super().find_class(module, name)

    with zipfile.ZipFile("views.pt") as old:
        Reader(io.BytesIO(old.read("views/data.pkl"))).load()
    return found


def big_endian(member, data, by_key=widths()):
    if member.endswith("/byteorder"):
        return b"big"
    if "/data/" not in member:
        return data
    width = by_key[member.rsplit("/", 1)[1]]
    return b"".join(data[i:i + width][::-1] for i in range(0, len(data), width))


repacked("big.pt", big_endian)
repacked("deflated.pt", method=zipfile.ZIP_DEFLATED)
repacked("zip64.pt", force_zip64=True)
