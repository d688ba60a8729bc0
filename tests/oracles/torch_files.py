"""Files of tests/run/weights/torch_file_test.cpp: what torch.save writes, and the same repacked.

Run with PyTorch, in the folder tests/run/weights/files: python ../../../oracles/torch_files.py
"""
import argparse
import datetime
import io
import pathlib
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
torch.save(state, "old.pt", _use_new_zipfile_serialization=False)
torch.save(torch.nn.Linear(1, 1), "module.pt")
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
torch.save({"w": torch.ones(2, dtype=torch.complex64)}, "complex.pt")
torch.save({"w": torch.ones(2, dtype=torch.int16)}, "short.pt")

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
