"""Train convolutional networks with Bantam: plan the memory, train, predict, and see who holds it.

    import bantam
    run = bantam.train({"model": {...}, "train": {"epochs": 5}}, data=(images, labels), validation=(x, y))
    logits = run.model.predict(images)
"""

import ctypes as c
import itertools
import json
import os
from dataclasses import dataclass, field
from typing import Callable, Optional

import numpy as np

from . import _arrays, _library
from ._library import (BadArgument, ConfigError, CudaError, DataError, DeviceError, DTypeError, Error, NotFiniteError,
                       OutOfMemory, ShapeError, Stopped)
from ._tensor import Tensor, from_dlpack, tensor

__all__ = ["BadArgument", "Config", "ConfigError", "CudaError", "DataError", "DeviceError", "DTypeError", "Engine",
           "Error", "Event", "Metrics", "Model", "NotFiniteError", "OutOfMemory", "Plan", "Run", "ShapeError", "Stopped",
           "Tensor", "config_schema", "devices", "from_dlpack", "library_path", "memory_report", "plan", "tensor", "train"]

__version__ = _library.LIBRARY.bantam_version().decode()


def library_path():
    """Of the shared library, which has the pool's functions too: for PyTorch's CUDAPluggableAllocator."""
    return _library.PATH


def devices():
    """The CPU and every GPU, and why there is no GPU where there is none."""
    return json.loads(_library.text("devices"))


def config_schema():
    """The JSON Schema of configurations."""
    return json.loads(_library.text("config_schema"))


class Config(_library.Handle):
    """A configuration: a dict, YAML text, or the path of a YAML file; read and checked. `data` and `validation` are
    samples in memory, in the place of a data set that the configuration would name."""

    _kind = "config"

    def __init__(self, config, *, data=None, validation=None, class_names=None, batch_size=0, overrides=()):
        from_file = isinstance(config, os.PathLike) or (isinstance(config, str) and "\n" not in config and
                                                        config.endswith((".yaml", ".yml")))
        if from_file:
            text = _library.path_bytes(config)
        else:
            text = (config if isinstance(config, str) else json.dumps(config, ensure_ascii=False, default=_plain)).encode()
        self._names, count = _library.texts(overrides)
        options = _library.ConfigOptions(overrides=self._names, override_count=count, batch_size=batch_size)
        given = [None if samples is None else _arrays.samples_of(samples, class_names) for samples in (data, validation)]
        for samples in given:  # from here on the library releases them, whatever happens
            if samples is not None:
                _arrays.hold(samples)
        options.train, options.validation = (None if samples is None else c.pointer(samples) for samples in given)
        super().__init__("config_from_file" if from_file else "config_from_text", text, options)

    def resolved(self):
        """The configuration with every key, defaults included, as YAML."""
        return _library.text("config_resolved", self._handle)


def _plain(value):
    """NumPy's numbers and arrays in a configuration."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a configuration cannot have a {type(value).__name__}")


def _config(config, **options):
    if not isinstance(config, Config):
        return Config(config, **options)
    if any(value is not None and value != 0 and value != () for value in options.values()):
        raise BadArgument("a bantam.Config has its data already: pass them to Config")
    return config


@dataclass(frozen=True)
class Plan:
    """The memory of training, in bytes, to the byte."""

    batch_size: int
    peak_bytes: int
    pool_bytes: int
    by_category: dict
    fits: bool
    recompute: str


def plan(config, *, data=None, validation=None, batch_size=0, memory=0, overrides=()):
    """Plans the memory of training without allocating any on the device, or reading data. `memory`: bytes to fit into."""
    read = _config(config, data=data, validation=validation, batch_size=batch_size, overrides=overrides)
    planned = _library.MemoryPlan()
    _library.call("plan", read._handle, memory, planned)
    names = ("parameter", "gradient", "optimizer", "activation", "workspace", "input", "other")
    return Plan(planned.batch_size, planned.peak_bytes, planned.pool_bytes,
                {name: getattr(planned, name + "_bytes") for name in names}, bool(planned.fits),
                planned.recompute.decode())


_LOGS = []


class Engine(_library.Handle):
    """Devices with their limits and threads. Engines do not see each other; models keep theirs alive."""

    _kind = "engine"

    def __init__(self, *, limits=None, threads=0, log: Optional[Callable[[str], None]] = None):
        names, count = _library.texts(limits or ())
        sizes = (c.c_uint64 * max(1, count))(*(limits or {}).values())
        self._log = _library.LOG((lambda _, message: log(message.decode())) if log else 0)
        if log:
            _LOGS.append(self._log)  # models and tensors keep the engine's runtime, which calls it, after the engine
        super().__init__("engine_create", _library.EngineOptions(threads=threads, limit_devices=names, limits=sizes,
                                                                 limit_count=count, log=self._log))

    def set_limit(self, device, limit_bytes):
        """Raises or lowers a limit, at any time; 0: none."""
        _library.call("engine_set_limit", self._handle, device.encode(), limit_bytes)

    def trim(self, device="cpu"):
        """Releases idle memory to the device; the bytes that were released."""
        released = c.c_uint64()
        _library.call("engine_trim", self._handle, device.encode(), released)
        return released.value

    def memory_report(self, device="cpu"):
        """Who holds the device's memory: every size exact, adding up to the byte."""
        return json.loads(_library.text("engine_memory_report", self._handle, device.encode()))


def memory_report(of, device=None):
    """Of a model, on its device, or of an engine."""
    return of.memory_report() if device is None else of.memory_report(device)


_KINDS = ("begin", "progress", "evaluated", "epoch_end", "test", "warning")


@dataclass(frozen=True)
class Event:
    """What a run tells its callback. `kind`: begin, progress, evaluated, epoch_end, test or warning.

    `accuracy`, here and in Run and Metrics: what metrics.jsonl calls `accuracy`, or `binary_accuracy` (the share of right
    binary decisions, of sigmoids with any number of classes a sample)."""

    kind: str
    epoch: int  # from 0
    epochs: int
    update: int
    updates: int
    loss: float
    accuracy: float
    learning_rate: float
    images_per_second: float
    eta_seconds: float
    metrics: dict
    message: str
    _engine: Optional[int] = field(repr=False, default=None)

    def memory_report(self, device="cpu"):
        """The run's memory now. Only while the callback runs."""
        if not self._engine:
            raise Error("this event has no engine: reports can be read while the callback runs, from the event 'begin' on")
        return json.loads(_library.text("engine_memory_report", self._engine, device.encode()))


class _Heard:
    """Passes events to a callback; what it raises, or that it returns False (NumPy's too), stops the run."""

    def __init__(self, callback):
        self.callback, self.raised = callback, None
        self.function = _library.ON_EVENT(self.hear)

    def hear(self, _, pointer):
        try:
            if self.raised is not None:
                return 1
            answer = None if self.callback is None else self.tell(_event(pointer.contents))
            return 1 if isinstance(answer, (bool, np.bool_)) and not answer else 0
        except BaseException as error:  # also KeyboardInterrupt: raised again once the run has stopped
            self.raised = self.raised or error
            return 1

    def tell(self, event):
        """The callback's answer. An event that the callback keeps has no engine any more: the run's may be gone."""
        try:
            return self.callback(event)
        finally:
            object.__setattr__(event, "_engine", None)

    def check(self):
        if self.raised is not None:
            raise self.raised


def _event(event):
    return Event(_KINDS[event.kind], event.epoch, event.epochs, event.update, event.updates, event.loss, event.accuracy,
                 event.learning_rate, event.images_per_second, event.eta_seconds, json.loads(event.metrics or b"{}"),
                 (event.message or b"").decode(), event.engine)


@dataclass
class Run:
    """What a run came to. `folder` has its weights, log and checkpoints; None where nothing was saved."""

    folder: Optional[str]
    epochs: int
    updates: int
    seconds: float
    loss: float
    accuracy: float
    validation_loss: Optional[float]
    validation_accuracy: Optional[float]
    test_loss: Optional[float]
    test_accuracy: Optional[float]
    images_per_second: float
    stopped: bool
    stopped_early: bool
    parameters: int
    planned_peak_bytes: int
    planned_pool_bytes: int
    peak_bytes: int
    pool_bytes: int
    _model: Optional["Model"] = field(repr=False, default=None)

    @property
    def model(self):
        """The trained network, for predictions."""
        if self._model is None:
            self._model = Model.open(self.folder)
        return self._model


def _run(result, folder, model=None):
    validated, tested = result.validation_samples > 0, result.test_samples > 0
    return Run(folder, result.epochs, result.updates, result.seconds, result.loss, result.accuracy,
               result.validation_loss if validated else None, result.validation_accuracy if validated else None,
               result.test_loss if tested else None, result.test_accuracy if tested else None,
               result.images_per_second, bool(result.stopped), bool(result.stopped_early), result.parameters,
               result.planned_peak_bytes, result.planned_pool_bytes, result.peak_bytes, result.pool_bytes, model)


def _gathered(data):
    """Arrays as they are; a list or iterator of batches is read once, into memory."""
    if data is None or isinstance(data, dict) or (isinstance(data, tuple) and len(data) == 2):
        return data
    batches = [_arrays.named(batch) for batch in data]
    if not batches:
        raise DataError("the iterator has no batches")
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def train(config, data=None, validation=None, *, callback=None, folder=None, overwrite=False, resume=False, threads=0,
          batch_size=0, class_names=None, overrides=(), steps_per_epoch=None):
    """Trains a configuration to its end, as `bantam train` does, and returns a Run.

    data, validation: (images, labels), a dict of arrays, or an iterator of such batches, which is read into memory; None:
    what the configuration names. With `steps_per_epoch`, `data` (and `validation`, None or a list) are functions that
    return an iterator of batches as the network reads them: one an epoch, streamed, and nothing is saved; folder, overwrite,
    resume, threads, batch_size and class_names cannot be given then.
    callback: called with Events; returning False stops the run, which is then saved; exceptions stop it, too.
    """
    heard = _Heard(callback)
    if steps_per_epoch is not None:
        _refuse_with_a_stream(folder=folder, overwrite=overwrite, resume=resume, threads=threads, batch_size=batch_size,
                              class_names=class_names)
        return _train_on_stream(Model(config, overrides=overrides), data, validation, steps_per_epoch, heard)
    read = _config(config, data=_gathered(data), validation=_gathered(validation), class_names=class_names,
                   batch_size=batch_size, overrides=overrides)
    options = _library.TrainOptions(folder=_library.path_bytes(folder), overwrite=overwrite, resume=resume,
                                    threads=threads, on_event=heard.function)
    result, saved = _library.TrainResult(), c.c_void_p()
    try:
        _library.call("train", read._handle, options, result, saved)
    except Error:
        heard.check()
        raise
    path = _library.taken(saved)
    heard.check()
    return _run(result, path)


def _refuse_with_a_stream(**given):
    """Arguments of `train` that say nothing to a training on a stream; None, False and 0 are as good as not given."""
    names = [name for name, value in given.items()
             if not (value is None or (isinstance(value, (int, np.bool_, np.integer)) and not value))]
    if names:
        raise BadArgument("with steps_per_epoch nothing is saved, and batches are trained on as they come: expected no " +
                          ", ".join(names))


class _CannotGoBack(Exception):
    """A batch is asked for once more that is not kept."""


class _Stream:
    """Batches of a function that returns an iterator, as the library asks for them: one after another. Those of the update
    under way, `an_update` of them, are asked for once more where it is repeated, as its memory has ended; those of the
    update before, where it was not finite. `evaluates`: batch 0 begins an evaluation, and each one has epoch 0."""

    def __init__(self, make, batches, *, an_update=1, evaluates=False):
        self.make, self.raised, self.an_update, self.evaluates = make, None, an_update, evaluates
        self.epoch, self.number, self.kept = None, -1, {}  # of the batch that was read last; batches by number
        iterator = iter(make())
        first = next(iterator)
        self.begun = itertools.chain([first], iterator)  # of the first epoch; its first batch says how large they are
        size = len(_arrays.named(first)["images"])
        self.struct = _library.Batches(batches=batches, batch_size=size, next=_library.NEXT(self.next))

    def next(self, _, epoch, batch, arrays, count):
        try:
            given = self.batch(epoch, batch)
            for i in range(given.count):
                arrays[i] = given.list[i]  # what it points to lives as long as the batch is kept
            count[0] = given.count
            return 0
        except StopIteration:
            _library.LIBRARY.bantam_set_error(b"the iterator has no more batches")
        except _CannotGoBack:  # not `raised`: a search for what is not finite goes without it
            _library.LIBRARY.bantam_set_error(b"the stream cannot go back to batch %d" % batch)
        except BaseException as error:
            self.raised = error
        return 1

    def batch(self, epoch, number):
        if number == 0 and (self.evaluates or epoch != self.epoch):
            self.iterator, self.begun = self.begun or iter(self.make()), None
            self.epoch, self.number, self.kept = epoch, -1, {}
        if epoch == self.epoch and number in self.kept:
            return self.kept[number]
        if (epoch, number) != (self.epoch, self.number + 1):
            raise _CannotGoBack
        first = number - number % self.an_update  # of the update under way
        self.kept = {at: batch for at, batch in self.kept.items() if at >= first - self.an_update}
        if number > first:  # the iterator may write this batch over the last one
            self.kept[self.number] = self.kept[self.number].copy()
        read = _arrays.Arrays(_arrays.named(next(self.iterator)))
        self.kept = {at: batch for at, batch in self.kept.items() if not batch.shares_memory(read)}
        self.kept[number], self.number = read, number
        return read


def _train_on_stream(model, data, validation, steps, heard):
    if not callable(data):
        raise BadArgument("with steps_per_epoch, data is a function that returns an iterator of batches")
    stream = _Stream(data, steps, an_update=max(1, model._repeated_batches))
    held_out = None
    if validation is not None:
        batches = list(validation)
        held_out = _Stream(lambda: batches, len(batches), evaluates=True)
        held_out.struct.last_batch_size = len(_arrays.named(batches[-1])["images"])
    result = _library.TrainResult()
    try:
        _library.call("model_train", model._handle, stream.struct, held_out.struct if held_out else None, heard.function,
                      None, result)
    except Error:
        for source in (stream, held_out):
            if source is not None and source.raised is not None:
                raise source.raised
        heard.check()
        raise
    heard.check()
    return _run(result, None, model)


@dataclass(frozen=True)
class Metrics:
    """Means over samples, and metrics of the configuration by name."""

    loss: float
    accuracy: float
    samples: int
    updates: int
    values: dict


def _metrics(read):
    return Metrics(read.loss, read.accuracy, read.samples, read.updates, json.loads(read.values))


class Model(_library.Handle):
    """A network with its optimizer and loss, for a loop of one's own; Model.open has a trained one for predictions."""

    _kind = "model"

    def __init__(self, config, *, engine=None, data=None, overrides=()):
        read = _config(config, data=data, overrides=overrides)
        super().__init__("model_create", engine._handle if engine else None, read._handle)
        self._read_info()

    @classmethod
    def open(cls, path, *, checkpoint=None, config=None, engine=None, threads=0, batch_size=0):
        """Of a run's folder, a checkpoint, or a weights file (then `config` is the path of its configuration).
        `checkpoint`: of a run's folder, "last", "best" or a number of updates; None: the run's weights."""
        model = cls.__new__(cls)
        options = _library.OpenOptions(checkpoint=None if checkpoint is None else str(checkpoint).encode(),
                                       config=_library.path_bytes(config), threads=threads, batch_size=batch_size)
        _library.Handle.__init__(model, "model_open", engine._handle if engine else None, _library.path_bytes(path), options)
        model._read_info()
        return model

    def _read_info(self):
        info = _library.ModelInfo()
        _library.call("model_get_info", self._handle, info)
        self.input_shape = tuple(info.input_shape[:info.input_rank])
        self.output_shape = tuple(info.output_shape[:info.output_rank])
        self.parameters, self.device, self.trains = info.parameters, info.device.decode(), bool(info.trains)
        self._repeated_batches = info.repeated_batches
        self.class_names = json.loads(_library.text("model_class_names", self._handle))

    def step(self, images, labels=None, *, read=True):
        """Forward, backward and update on one batch, arrays or Tensors on the model's device; its Metrics, or, with
        read=False, None, without waiting."""
        metrics = _library.MetricsStruct() if read else None
        if isinstance(images, Tensor):
            self._step_on_device({"images": images, _target(labels): labels}, metrics)
        else:
            arrays = _batch(images, labels)
            _library.call("model_step", self._handle, arrays.list, arrays.count, metrics)
        return _metrics(metrics) if read else None

    def _step_on_device(self, tensors, metrics):
        names, count = _library.texts(tensors)
        handles = (c.c_void_p * count)(*(tensor._handle for tensor in tensors.values()))
        _library.call("model_step_tensors", self._handle, names, handles, count, metrics)

    def forward(self, tensor):
        """The outputs for a Tensor of inputs as the network reads them, as a Tensor on the device."""
        return Tensor("model_forward", self._handle, tensor._handle)

    def parameter_tensors(self):
        """The float32 weights themselves, by name: they change as the model trains."""
        names = json.loads(_library.text("model_parameter_names", self._handle))
        return {name: Tensor("model_parameter", self._handle, name.encode()) for name in names}

    def accumulate(self, images, labels, *, first_sample, effective_batch):
        """Adds the gradients of samples first_sample … of an effective batch; `update` ends it."""
        arrays = _batch(images, labels)
        _library.call("model_accumulate", self._handle, arrays.list, arrays.count, first_sample, effective_batch)

    def update(self):
        _library.call("model_update", self._handle)

    def metrics(self):
        """Of all updates since they were last asked for; waits for the device."""
        read = _library.MetricsStruct()
        _library.call("model_read_metrics", self._handle, read)
        return _metrics(read)

    def evaluate(self, images, labels=None):
        """Loss and metrics of a batch, without training."""
        arrays, read = _batch(images, labels), _library.MetricsStruct()
        _library.call("model_evaluate", self._handle, arrays.list, arrays.count, read)
        return _metrics(read)

    def set_learning_rate(self, learning_rate):
        _library.call("model_set_learning_rate", self._handle, learning_rate)

    def predict(self, samples, *, as_input=False):
        """The network's outputs, (samples, …) float32. Samples are stored as those that it was trained on, and pass the
        pipeline's stages of evaluation; with as_input, or without `data` in the configuration, as the network reads them."""
        array = np.ascontiguousarray(samples, np.float32) if as_input else _arrays.as_images(samples)
        outputs = np.empty((len(array), *self.output_shape), np.float32)
        arrays = _arrays.Arrays({"images": array})
        _library.call("model_predict", self._handle, arrays.list, 0 if as_input else 2,
                      outputs.ctypes.data_as(_library.POINTER(c.c_float)), outputs.size)
        return outputs

    def save(self, path):
        """Weights, as safetensors."""
        _library.call("model_save", self._handle, _library.path_bytes(path))

    def load(self, path):
        _library.call("model_load", self._handle, _library.path_bytes(path))

    def save_state(self, path):
        """Weights and the optimizer's state: training goes on with the same bits."""
        _library.call("model_save_state", self._handle, _library.path_bytes(path))

    def load_state(self, path):
        _library.call("model_load_state", self._handle, _library.path_bytes(path))

    def memory_report(self):
        """Who holds the memory of the model's device."""
        return json.loads(_library.text("model_memory_report", self._handle))


def _target(labels):
    if not isinstance(labels, Tensor):
        raise BadArgument("images are a bantam.Tensor: labels have to be one, too")
    return "labels" if labels.dtype == "int32" else "targets"


def _batch(images, labels):
    return _arrays.Arrays(_arrays.named(images if labels is None else (images, labels)))
