#!/usr/bin/env python3
"""Tensors exchanged with NumPy and PyTorch by DLPack: same memory, right values, right owners, right order of streams.

    exchange_with_python.py BRIDGE_LIBRARY [--device cuda:0]

Python's side is what a binding does: it wraps the structs of to_dlpack into capsules, which NumPy and PyTorch read, and reads theirs.
"""
import argparse
import ctypes
import gc
import sys
import weakref

try:
    import numpy
except ImportError:
    print("no NumPy: skipped")
    sys.exit(0)
try:
    import torch
except ImportError:
    torch = None

ELEMENTS = 24
NAMES = {0: b"dltensor", 1: b"dltensor_versioned"}
USED = {0: b"used_dltensor", 1: b"used_dltensor_versioned"}
python = ctypes.pythonapi
python.PyCapsule_New.restype, python.PyCapsule_New.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_IsValid.restype, python.PyCapsule_IsValid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_GetPointer.restype, python.PyCapsule_GetPointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.restype, python.PyCapsule_SetName.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


class Bridge:
    """A Bantam tensor that goes out (0, 1, 2, …) and one that came in."""

    def __init__(self, library, device, elements=ELEMENTS):
        self.library, self.read_only = library, False
        self.handle = library.bridge_open(device.encode(), elements)
        if not self.handle:
            raise RuntimeError(self.error())

    def error(self):
        return self.library.bridge_error().decode()

    def __dlpack_device__(self):
        kind, number = ctypes.c_int32(), ctypes.c_int32()
        self.library.bridge_device(self.handle, ctypes.byref(kind), ctypes.byref(number))
        return kind.value, number.value

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        versioned = int(max_version is not None and max_version[0] >= 1)
        managed = self.library.bridge_export(self.handle, stream or 0, versioned, int(self.read_only))
        if not managed:
            raise BufferError(self.error())
        return python.PyCapsule_New(managed, NAMES[versioned], None)

    def accept(self, array, versioned, producer=0):
        """Whether Bantam has taken what `array` hands out; else its error."""
        stream = self.library.bridge_stream(self.handle)
        options = {"stream": stream} if stream else {}
        capsule = array.__dlpack__(max_version=(1, 0), **options) if versioned else array.__dlpack__(**options)
        versioned = python.PyCapsule_IsValid(capsule, NAMES[1])
        managed = python.PyCapsule_GetPointer(capsule, NAMES[versioned])
        if self.library.bridge_import(self.handle, managed, versioned, producer) != 0:
            return self.error()  # the capsule still owns it, and deletes it
        python.PyCapsule_SetName(capsule, USED[versioned])
        return None

    def values(self, imported, elements=ELEMENTS):
        values = (ctypes.c_float * elements)()
        assert self.library.bridge_read(self.handle, int(imported), values) == elements, self.error()
        return list(values)

    def drop(self):
        self.library.bridge_drop(self.handle)

    def close(self):
        self.library.bridge_close(self.handle)


def load(path):
    library = ctypes.CDLL(path)
    for function, result, arguments in (
            ("error", ctypes.c_char_p, []), ("open", ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int64]), ("close", None, [ctypes.c_void_p]),
            ("device", None, [ctypes.c_void_p] * 3),
            ("export", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_int]),
            ("stream", ctypes.c_int64, [ctypes.c_void_p]),
            ("import", ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64]),
            ("drop", None, [ctypes.c_void_p]), ("read", ctypes.c_int64, [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p])):
        entry = getattr(library, "bridge_" + function)
        entry.restype, entry.argtypes = result, arguments
    return library


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def numpy_out(library):
    bridge = Bridge(library, "cpu")
    array = numpy.from_dlpack(bridge)
    check(array.shape == (2, 3, 4) and array.dtype == numpy.float32, array)
    check(array.ravel().tolist() == list(range(ELEMENTS)), array)
    bridge.close()
    check(array.sum() == 276, "the runtime lives as long as the array")


def numpy_in(library):
    bridge = Bridge(library, "cpu")
    for versioned in (False, True):
        array = numpy.arange(10, dtype=numpy.float32)
        check(bridge.accept(array, versioned) is None, bridge.error())
        array[3] = 70
        check(bridge.values(True, 10)[3] == 70, "the memory is shared")
        alive = weakref.ref(array)
        del array
        gc.collect()
        check(bridge.values(True, 10)[9] == 9 and alive() is not None, "Bantam keeps the array alive")
        bridge.drop()
        gc.collect()
        check(alive() is None, "and releases it")
    check("row-major" in bridge.accept(numpy.ones((4, 4), numpy.float32).T[:2], False), bridge.error())
    check("complex64" in bridge.accept(numpy.ones(4, numpy.complex64), False), bridge.error())
    bridge.close()


def torch_out(library, device):
    bridge = Bridge(library, device)
    tensor = torch.from_dlpack(bridge)
    check(tuple(tensor.shape) == (2, 3, 4) and tensor.dtype == torch.float32 and str(tensor.device) == device, tensor)
    check(tensor.flatten().tolist() == [float(i) for i in range(ELEMENTS)], tensor)
    tensor[1, 2, 3] = 500
    if device != "cpu":
        torch.cuda.synchronize()
    check(bridge.values(False)[-1] == 500, "the memory is shared")
    bridge.close()
    check(tensor.sum().item() == 276 - 23 + 500, "the runtime lives as long as the tensor")


def torch_in(library, device):
    bridge = Bridge(library, device)
    producer = torch.cuda.current_stream().cuda_stream or 1 if device != "cpu" else 0
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        tensor = torch.arange(10, device=device).to(dtype)
        problem = bridge.accept(tensor, True, producer)
        check(problem is None, problem)
        check(bridge.values(True, 10) == [float(i) for i in range(10)], dtype)
        bridge.drop()
    bridge.close()


def torch_streams(library, device):
    """A stream of PyTorch's own sees Bantam's tensor, and Bantam sees what a busy stream writes last."""
    elements = 6 << 20
    bridge, side = Bridge(library, device, elements), torch.cuda.Stream()
    with torch.cuda.stream(side):
        busy, written = torch.randn(4096, 4096, device=device), torch.zeros(elements, device=device)
        for _ in range(50):
            busy = busy @ busy * 1e-3
        written += torch.arange(elements, device=device)
        written += 1
        problem = bridge.accept(written, True, side.cuda_stream)
        check(problem is None, problem)
        mine = torch.from_dlpack(bridge)
        check(float(mine.flatten()[-1]) == float(numpy.float32(elements - 1)), "PyTorch's stream waits for Bantam's")
    check(bridge.values(True, elements)[1:3] == [2.0, 3.0], "Bantam's stream waits for PyTorch's")
    del mine
    bridge.drop()
    bridge.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    library = load(options.library)
    numpy_out(library)
    numpy_in(library)
    print(f"NumPy {numpy.__version__}: ok")
    if torch is None:
        print("PyTorch is not installed")
        return
    torch_out(library, options.device)
    torch_in(library, options.device)
    if options.device != "cpu":
        torch_streams(library, options.device)
    print(f"PyTorch {torch.__version__} on {options.device}: ok")


if __name__ == "__main__":
    main()
