"""NumPy arrays as the library reads them, with whatever keeps their memory alive."""

import ctypes as c
import itertools

import numpy as np

from ._library import READ, RELEASE, Array, BadArgument, Samples, texts

_DTYPES = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.float64): 3, np.dtype(np.uint8): 4,
           np.dtype(np.int32): 5, np.dtype(np.int64): 6}


def as_images(values):
    """uint8 stays, bool becomes uint8, all else float32; row-major without gaps."""
    array = np.asarray(values)
    if array.dtype == np.bool_:
        array = array.astype(np.uint8)
    return np.ascontiguousarray(array, None if array.dtype == np.uint8 else np.float32)


def named(batch):
    """{"images": …, "labels" or "targets": …} of such a dict, or of (images, labels): whole numbers are labels."""
    if isinstance(batch, dict):
        images = batch.get("images")
        rest = {name: values for name, values in batch.items() if name != "images"}
    elif isinstance(batch, (tuple, list)) and len(batch) == 2:
        images, labels = batch
        whole = np.asarray(labels).dtype.kind in "iub"
        rest = {"labels" if whole else "targets": labels}
    else:
        raise BadArgument("expected (images, labels) or {'images': …, 'labels': …}, got " + type(batch).__name__)
    if images is None:
        raise BadArgument("the batch has no 'images'")
    arrays = {"images": as_images(images)}
    for name, values in rest.items():
        arrays[name] = as_labels(values) if name == "labels" else np.ascontiguousarray(values, np.float32)
    return arrays


def as_labels(values):
    """int32: class numbers, which no other number is taken for."""
    array = np.asarray(values)
    if array.dtype.kind not in "iub":
        raise BadArgument(f"labels are {array.dtype}; expected whole numbers (other targets are named 'targets')")
    labels = np.ascontiguousarray(array, np.int32)
    if array.dtype.itemsize > 4 or array.dtype == np.uint32:
        wrong = np.flatnonzero(labels.ravel() != array.ravel())
        if wrong.size:
            raise BadArgument(f"label {wrong[0]} is {array.ravel()[wrong[0]]}; expected a class number")
    return labels


class Arrays:
    """A list of bantam_array over NumPy arrays, which it keeps."""

    def __init__(self, arrays):
        self.kept = dict(arrays)
        self.list = (Array * len(self.kept))()
        for entry, (name, array) in zip(self.list, self.kept.items()):
            fill(entry, name, array)
        self.count = len(self.kept)

    def copy(self):
        """The same values in memory of its own."""
        return Arrays({name: array.copy() for name, array in self.kept.items()})

    def shares_memory(self, other):
        return any(np.may_share_memory(one, two) for one in self.kept.values() for two in other.kept.values())


def fill(entry, name, array):
    entry.name = name.encode()
    entry.dtype = _DTYPES[array.dtype]
    entry.rank = array.ndim
    entry.shape = (c.c_int64 * max(1, array.ndim))(*array.shape)
    entry.data = array.ctypes.data


_numbers = itertools.count(1)
_held = {}  # what the library still reads, by the number that it returns when it does not


def _released(number):
    if _held is not None:  # when the interpreter ends, it may be gone
        _held.pop(number, None)


_RELEASE = RELEASE(_released)


def samples_of(data, class_names=None):
    """bantam_samples over arrays. hold() keeps the arrays alive until the library has released them."""
    arrays = Arrays(named(data))
    names, count = texts(class_names or ())
    samples = Samples(arrays=arrays.list, array_count=arrays.count, class_names=names, class_count=count, read=READ(),
                      release=_RELEASE)
    number = next(_numbers)
    samples.user = number
    samples.kept = (arrays, names)
    return samples


def hold(samples):
    """Right before the library is given them."""
    _held[samples.user] = samples.kept
