"""Tensors on devices, shared with NumPy, PyTorch, CuPy and others by DLPack."""

import ctypes as c

import numpy as np

from . import _arrays, _library
from ._library import BadArgument, TensorInfo

_python = c.pythonapi
_python.PyCapsule_New.restype = c.py_object
_python.PyCapsule_New.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]
_python.PyCapsule_IsValid.restype, _python.PyCapsule_IsValid.argtypes = c.c_int, [c.py_object, c.c_char_p]
_python.PyCapsule_GetPointer.restype = c.c_void_p
_python.PyCapsule_GetPointer.argtypes = [c.py_object, c.c_char_p]
_python.PyCapsule_SetName.restype, _python.PyCapsule_SetName.argtypes = c.c_int, [c.py_object, c.c_char_p]

# Capsules by whether the struct has a version. The names have to live as long as the capsules.
_NAMES = {False: b"dltensor", True: b"dltensor_versioned"}
_USED = {False: b"used_dltensor", True: b"used_dltensor_versioned"}

# A capsule that nobody has taken is deleted by the library: Python code cannot run where an exception is pending.
_DESTRUCTOR = _library.capsule_destructor(c.pythonapi.PyCapsule_IsValid, c.pythonapi.PyCapsule_GetPointer)
_DTYPES = {0: "float32", 1: "float16", 2: "bfloat16", 3: "float64", 4: "uint8", 5: "int32", 6: "int64"}


class Tensor(_library.Handle):
    """Values on a device. numpy.from_dlpack, torch.from_dlpack and their like read it without a copy."""

    _kind = "tensor"

    def __init__(self, create, *arguments):
        super().__init__(create, *arguments)
        info = TensorInfo()
        _library.call("tensor_get_info", self._handle, info)
        self.shape, self.dtype = tuple(info.shape[:info.rank]), _DTYPES[info.dtype]
        self.device, self.address, self.bytes = info.device.decode(), info.data, info.bytes
        self._dlpack_device = (info.dlpack_device_type, info.dlpack_device_id)

    def __repr__(self):
        return f"bantam.Tensor({self.shape}, {self.dtype}, {self.device})"

    def __dlpack_device__(self):
        return self._dlpack_device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if copy or (dl_device is not None and tuple(dl_device) != self._dlpack_device):
            raise BufferError("bantam.Tensor is shared as it is, where it is: copy it afterwards")
        versioned, managed = max_version is not None and max_version[0] >= 1, c.c_void_p()
        _library.call("tensor_to_dlpack", self._handle, None if stream is None else c.byref(c.c_int64(stream)), versioned,
                      c.byref(managed))
        return _python.PyCapsule_New(managed, _NAMES[versioned], _DESTRUCTOR)

    def numpy(self):
        """A copy, as a NumPy array; bfloat16 as its bits."""
        values = np.empty(self.shape, "uint16" if self.dtype == "bfloat16" else self.dtype)
        _library.call("tensor_read", self._handle, values.ctypes.data, values.nbytes)
        return values


def tensor(values, *, engine, device="cpu"):
    """A copy of an array of the host, on a device: float32, float16, float64, uint8, int32 or int64."""
    array = np.ascontiguousarray(values)
    if array.dtype not in _arrays._DTYPES:
        raise BadArgument(f"{array.dtype} is no element type of tensors")
    return Tensor("tensor_create", engine._handle, device.encode(), _arrays.Arrays({"values": array}).list)


def from_dlpack(other, *, engine):
    """Another library's tensor, without a copy, for work of the engine. Both see each other's writes."""
    kind, number = other.__dlpack_device__()
    device = f"cuda:{number}" if kind in (2, 13) else "cpu"
    stream = c.c_int64()
    _library.call("engine_dlpack_stream", engine._handle, device.encode(), c.byref(stream))
    options = {"stream": stream.value} if stream.value else {}
    try:
        capsule = other.__dlpack__(max_version=(1, 0), **options)
    except TypeError:  # of a library from before versions
        capsule = other.__dlpack__(**options)
    versioned = bool(_python.PyCapsule_IsValid(capsule, _NAMES[True]))
    managed = _python.PyCapsule_GetPointer(capsule, _NAMES[versioned])
    made = Tensor("tensor_from_dlpack", engine._handle, device.encode(), managed, versioned)
    _python.PyCapsule_SetName(capsule, _USED[versioned])  # from now on it is ours to delete
    return made
