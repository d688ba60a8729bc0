"""The C interface (bantam_c.h) through ctypes: structs, functions, and errors as exceptions."""

import ctypes as c
import os

POINTER, SIZED = c.POINTER, ("struct_size", c.c_size_t)


class Error(Exception):
    """What Bantam refuses or cannot do; the message says what was expected and what came."""


class BadArgument(Error, ValueError):
    pass


class ConfigError(Error, ValueError):
    pass


class DataError(Error):
    pass


class ShapeError(Error, ValueError):
    pass


class DTypeError(Error, TypeError):
    pass


class DeviceError(Error):
    pass


class CudaError(DeviceError):
    pass


class OutOfMemory(Error, MemoryError):
    pass


class NotFiniteError(Error, ArithmeticError):
    pass


class Stopped(Error):
    """A callback asked to stop before the training began."""


_ERRORS = {2: BadArgument, 3: ConfigError, 4: DataError, 5: ShapeError, 6: DTypeError, 7: DeviceError, 8: CudaError,
           9: OutOfMemory, 10: NotFiniteError, 11: Stopped}


class Struct(c.Structure):
    """A struct whose first member is its size, so that libraries of other versions read it."""

    def __init__(self, **values):
        super().__init__(**values)
        if self._fields_[0] == SIZED:
            self.struct_size = c.sizeof(self)


class Array(Struct):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int32), ("rank", c.c_int32), ("shape", POINTER(c.c_int64)),
                ("data", c.c_void_p)]


READ = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int64, POINTER(c.c_void_p))
RELEASE = c.CFUNCTYPE(None, c.c_void_p)
LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p)


class Samples(Struct):
    _fields_ = [SIZED, ("arrays", POINTER(Array)), ("array_count", c.c_size_t), ("class_names", POINTER(c.c_char_p)),
                ("class_count", c.c_size_t), ("read", READ), ("user", c.c_void_p), ("release", RELEASE)]


class ConfigOptions(Struct):
    _fields_ = [SIZED, ("name", c.c_char_p), ("overrides", POINTER(c.c_char_p)), ("override_count", c.c_size_t),
                ("train", POINTER(Samples)), ("validation", POINTER(Samples)), ("batch_size", c.c_int64)]


class MemoryPlan(Struct):
    _fields_ = [SIZED, ("batch_size", c.c_int64), ("peak_bytes", c.c_uint64), ("pool_bytes", c.c_uint64),
                ("parameter_bytes", c.c_uint64), ("gradient_bytes", c.c_uint64), ("optimizer_bytes", c.c_uint64),
                ("activation_bytes", c.c_uint64), ("workspace_bytes", c.c_uint64), ("input_bytes", c.c_uint64),
                ("other_bytes", c.c_uint64), ("fits", c.c_int32), ("recompute", c.c_char * 64)]


class EngineOptions(Struct):
    _fields_ = [SIZED, ("threads", c.c_int32), ("limit_devices", POINTER(c.c_char_p)), ("limits", POINTER(c.c_uint64)),
                ("limit_count", c.c_size_t), ("log", LOG), ("user", c.c_void_p)]


class EventStruct(Struct):
    _fields_ = [SIZED, ("kind", c.c_int32), ("epoch", c.c_int64), ("epochs", c.c_int64), ("update", c.c_int64),
                ("updates", c.c_int64), ("loss", c.c_double), ("accuracy", c.c_double), ("learning_rate", c.c_double),
                ("images_per_second", c.c_double), ("eta_seconds", c.c_double), ("metrics", c.c_char_p),
                ("message", c.c_char_p), ("engine", c.c_void_p)]


ON_EVENT = c.CFUNCTYPE(c.c_int32, c.c_void_p, POINTER(EventStruct))


class TrainOptions(Struct):
    _fields_ = [SIZED, ("folder", c.c_char_p), ("overwrite", c.c_int32), ("resume", c.c_int32), ("threads", c.c_int32),
                ("on_event", ON_EVENT), ("user", c.c_void_p)]


class TrainResult(Struct):
    _fields_ = [SIZED, ("epochs", c.c_int64), ("updates", c.c_int64), ("seconds", c.c_double), ("loss", c.c_double),
                ("accuracy", c.c_double), ("validation_samples", c.c_int64), ("validation_loss", c.c_double),
                ("validation_accuracy", c.c_double), ("test_samples", c.c_int64), ("test_loss", c.c_double),
                ("test_accuracy", c.c_double), ("images_per_second", c.c_double), ("stopped", c.c_int32),
                ("stopped_early", c.c_int32), ("finished_before", c.c_int32), ("parameters", c.c_int64),
                ("planned_peak_bytes", c.c_uint64), ("planned_pool_bytes", c.c_uint64), ("peak_bytes", c.c_uint64),
                ("pool_bytes", c.c_uint64)]


class OpenOptions(Struct):
    _fields_ = [SIZED, ("checkpoint", c.c_char_p), ("config", c.c_char_p), ("threads", c.c_int32),
                ("batch_size", c.c_int64)]


class ModelInfo(Struct):
    _fields_ = [SIZED, ("input_rank", c.c_int32), ("input_shape", c.c_int64 * 8), ("output_rank", c.c_int32),
                ("output_shape", c.c_int64 * 8), ("parameters", c.c_int64), ("trains", c.c_int32),
                ("device", c.c_char * 32), ("repeated_batches", c.c_int64)]


class MetricsStruct(Struct):
    _fields_ = [SIZED, ("loss", c.c_double), ("accuracy", c.c_double), ("samples", c.c_int64), ("updates", c.c_int64),
                ("values", c.c_char * 256)]


class TensorInfo(Struct):
    _fields_ = [SIZED, ("dtype", c.c_int32), ("rank", c.c_int32), ("shape", c.c_int64 * 8), ("data", c.c_void_p),
                ("bytes", c.c_uint64), ("dlpack_device_type", c.c_int32), ("dlpack_device_id", c.c_int32),
                ("device", c.c_char * 32)]


NEXT = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int64, c.c_int64, POINTER(Array), POINTER(c.c_size_t))


class Batches(Struct):
    _fields_ = [SIZED, ("batches", c.c_int64), ("batch_size", c.c_int64), ("last_batch_size", c.c_int64),
                ("next", NEXT), ("user", c.c_void_p)]


# Functions that return a status, by the types of their arguments.
_H, _S, _OUT_TEXT, _OUT_HANDLE = c.c_void_p, c.c_char_p, POINTER(c.c_void_p), POINTER(c.c_void_p)
_FUNCTIONS = {
    "devices": [_OUT_TEXT],
    "config_schema": [_OUT_TEXT],
    "config_from_text": [_S, POINTER(ConfigOptions), _OUT_HANDLE],
    "config_from_file": [_S, POINTER(ConfigOptions), _OUT_HANDLE],
    "config_resolved": [_H, _OUT_TEXT],
    "plan": [_H, c.c_uint64, POINTER(MemoryPlan)],
    "engine_create": [POINTER(EngineOptions), _OUT_HANDLE],
    "engine_set_limit": [_H, _S, c.c_uint64],
    "engine_trim": [_H, _S, POINTER(c.c_uint64)],
    "engine_memory_report": [_H, _S, _OUT_TEXT],
    "train": [_H, POINTER(TrainOptions), POINTER(TrainResult), _OUT_TEXT],
    "model_create": [_H, _H, _OUT_HANDLE],
    "model_open": [_H, _S, POINTER(OpenOptions), _OUT_HANDLE],
    "model_get_info": [_H, POINTER(ModelInfo)],
    "model_class_names": [_H, _OUT_TEXT],
    "model_step": [_H, POINTER(Array), c.c_size_t, POINTER(MetricsStruct)],
    "model_accumulate": [_H, POINTER(Array), c.c_size_t, c.c_int64, c.c_int64],
    "model_update": [_H],
    "model_read_metrics": [_H, POINTER(MetricsStruct)],
    "model_evaluate": [_H, POINTER(Array), c.c_size_t, POINTER(MetricsStruct)],
    "model_set_learning_rate": [_H, c.c_double],
    "model_train": [_H, POINTER(Batches), POINTER(Batches), ON_EVENT, c.c_void_p, POINTER(TrainResult)],
    "model_predict": [_H, POINTER(Array), c.c_int32, POINTER(c.c_float), c.c_size_t],
    "model_save": [_H, _S],
    "model_load": [_H, _S],
    "model_save_state": [_H, _S],
    "model_load_state": [_H, _S],
    "model_memory_report": [_H, _OUT_TEXT],
    "tensor_create": [_H, _S, POINTER(Array), _OUT_HANDLE],
    "tensor_get_info": [_H, POINTER(TensorInfo)],
    "tensor_read": [_H, c.c_void_p, c.c_size_t],
    "tensor_to_dlpack": [_H, POINTER(c.c_int64), c.c_int32, POINTER(c.c_void_p)],
    "tensor_from_dlpack": [_H, _S, c.c_void_p, c.c_int32, _OUT_HANDLE],
    "engine_dlpack_stream": [_H, _S, POINTER(c.c_int64)],
    "model_step_tensors": [_H, POINTER(_S), POINTER(c.c_void_p), c.c_size_t, POINTER(MetricsStruct)],
    "model_forward": [_H, _H, _OUT_HANDLE],
    "model_parameter_names": [_H, _OUT_TEXT],
    "model_parameter": [_H, _S, _OUT_HANDLE],
}


# The library beside this file, or the one that BANTAM_LIBRARY names.
PATH = os.environ.get("BANTAM_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "_bantam.so")


def _load():
    library = c.CDLL(PATH)
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, "bantam_" + name)
        function.argtypes, function.restype = arguments, c.c_int32
    for name in ("version", "last_error"):
        getattr(library, "bantam_" + name).restype = c.c_char_p
    library.bantam_set_error.argtypes, library.bantam_set_error.restype = [_S], None
    library.bantam_python_capsules.argtypes, library.bantam_python_capsules.restype = [c.c_void_p, c.c_void_p], None
    library.bantam_free.argtypes, library.bantam_free.restype = [_H], None
    for kind in ("config", "engine", "model", "tensor"):
        destroy = getattr(library, f"bantam_{kind}_destroy")
        destroy.argtypes, destroy.restype = [_H], None
    return library


LIBRARY = _load()


def capsule_destructor(is_valid, get_pointer):
    """The address of a destructor of DLPack's capsules, which calls Python through these two functions."""
    LIBRARY.bantam_python_capsules(c.cast(is_valid, c.c_void_p), c.cast(get_pointer, c.c_void_p))
    return c.cast(LIBRARY.bantam_python_delete_capsule, c.c_void_p)


def call(name, *arguments):
    """Calls bantam_<name>; a status other than BANTAM_OK becomes an exception with the library's message."""
    status = getattr(LIBRARY, "bantam_" + name)(*arguments)
    if status != 0:
        raise _ERRORS.get(status, Error)(LIBRARY.bantam_last_error().decode())


def text(name, *arguments):
    """The same for a function whose last argument returns text."""
    out = c.c_void_p()
    call(name, *arguments, c.byref(out))
    return taken(out)


def taken(out):
    """The text behind a pointer, which is freed."""
    try:
        return c.string_at(out).decode()
    finally:
        LIBRARY.bantam_free(out)


class Handle:
    """Owns a handle of the library."""

    _kind = ""

    def __init__(self, create, *arguments):
        out = c.c_void_p()
        call(create, *arguments, c.byref(out))
        self._handle = out

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            getattr(LIBRARY, f"bantam_{self._kind}_destroy")(handle)


def texts(values):
    """A list of texts as the library reads it, with their number."""
    encoded = [str(value).encode() for value in values]
    return (c.c_char_p * max(1, len(encoded)))(*encoded), len(encoded)


def path_bytes(path):
    return None if path is None else os.fsencode(path)
