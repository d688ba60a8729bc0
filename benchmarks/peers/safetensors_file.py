"""Tensors in files of the safetensors format (8-byte length, JSON header, raw little-endian tensors), without the package of that name."""
import json
import struct

import torch

TYPES = {"F32": torch.float32, "I32": torch.int32}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def write(path, tensors):
    header, blobs, at = {}, [], 0
    for name, tensor in tensors.items():
        blob = tensor.detach().cpu().contiguous().numpy().tobytes()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.writelines([struct.pack("<Q", len(text)), text, *blobs])


def read(path):
    with open(path, "rb") as file:
        data = bytearray(file.read())
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(data, dtype=TYPES[row["dtype"]], offset=begin + row["data_offsets"][0],
                                   count=(row["data_offsets"][1] - row["data_offsets"][0]) // 4).reshape(row["shape"])
            for name, row in header.items()}
