"""Short runs of `bantam train`, and what of their folders must be the same however often they were disturbed."""
import hashlib
import json
import os
import pathlib
import signal
import struct
import subprocess
import sys
import tempfile

# Data that are shuffled, cropped and flipped, batch norm and dropout: whatever could drift is there. 16 updates an epoch.
# Algorithms that are timed may differ from run to run, and their bits with them: they are off.
CONFIG = """version: 1
seed: 7
device: cpu
algorithms: "off"
data:
  format: generated
  train_samples: 256
  test_samples: 256
  pipeline:
    - shuffle: {}
    - random_crop: {padding: 2}
    - random_flip: {}
    - normalize: {scale: 0.00392156862745098}
    - batch: {size: 16}
    - prefetch: {depth: 2, workers: 1}
model:
  name: trial
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 8, kernel: 3, stride: 4, padding: same, bias: false}
    - batch_norm: {activation: relu}
    - dropout: {rate: 0.2}
    - flatten
    - dense: {units: 10}
train:
  epochs: 2
  optimizer: {adam: {learning_rate: 2.0e-3}}
checkpoint: {every: 3updates, min_interval: 0s, keep_last: 2, best: {metric: accuracy}}
"""
UPDATES_AN_EPOCH = 16
OF_THE_CLOCK = {"seconds", "evaluation_seconds", "images_per_s", "data_wait_share", "peak_bytes", "pool_bytes"}


def arguments_of(what):
    """Of `bantam train`: a configuration and a folder, or --resume."""
    return ["train", *what, "--threads", "1", "--progress", "none"]


def environment_of(more=None):
    return {**os.environ, **(more or {})}


def scratch(prefix):
    """A temporary folder, in memory where that is possible: a run syncs its files hundreds of times."""
    memory = "/dev/shm"
    in_memory = "TMPDIR" not in os.environ and os.path.isdir(memory) and os.access(memory, os.W_OK)
    return tempfile.TemporaryDirectory(prefix=prefix, dir=memory if in_memory else None)


def _default_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)  # a shell's background job would pass on an ignored SIGINT


def start_verb(program, folder, arguments, environment=None):
    return subprocess.Popen([program, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, preexec_fn=_default_signals, env=environment_of(environment))


def start(program, folder, what, environment=None):
    return start_verb(program, folder, arguments_of(what), environment)


def run_verb(program, folder, arguments, environment=None):
    """(exit code, output) of a verb with its arguments."""
    process = start_verb(program, folder, arguments, environment)
    output = process.communicate()[0].decode(errors="replace")
    return process.returncode, output


def run(program, folder, what, environment=None):
    """(exit code, output) of a run that nobody disturbs."""
    return run_verb(program, folder, arguments_of(what), environment)


def checkpoints(run_dir):
    """Newest first."""
    folder = pathlib.Path(run_dir) / "checkpoints"
    return sorted(folder.glob("update-*"), reverse=True) if folder.is_dir() else []


def earlier_checkpoint(template, run):
    """The oldest checkpoint of a run, as --resume names it in a copy called `run`: which there are depends on how fast
    the files were written, since none is begun while another is under way."""
    return f"{run}/checkpoints/{checkpoints(template)[-1].name}"


def metrics_text(run_dir):
    """metrics.jsonl without what a clock or the memory says."""
    lines = []
    for line in (pathlib.Path(run_dir) / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)  # a half line raises here
        lines.append(json.dumps({key: value for key, value in entry.items() if key not in OF_THE_CLOCK}))
    return "\n".join(lines)


def event_steps(path):
    """The step of each event of TensorBoard's file, in order of steps: histograms come when they are computed. Raises where a record is cut."""
    data, steps, at = path.read_bytes(), [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        event = data[at + 12:at + 12 + length]
        at += length + 16
        if at > len(data):
            raise ValueError(f"{path}: half a record at its end")
        step, shift, place = 0, 0, 10  # after the time, 9 bytes: field 2, a varint, where it is not 0
        if event[9:10] == b"\x10":
            while True:
                step |= (event[place] & 0x7f) << shift
                if event[place] < 0x80:
                    break
                place, shift = place + 1, shift + 7
        steps.append(step)
    return sorted(steps)


def digests(run_dir):
    """SHA-256 by what it is of; equal for two runs where nothing was lost."""
    run_dir = pathlib.Path(run_dir)
    files = {name: run_dir / name for name in ("weights.safetensors", "weights-best.safetensors", "histograms.jsonl")}
    newest = checkpoints(run_dir)
    if newest:
        files[f"{newest[0].name}/state.safetensors"] = newest[0] / "state.safetensors"
        files[f"{newest[0].name}/weights.safetensors"] = newest[0] / "weights.safetensors"
    found = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items() if path.is_file()}
    for part in ("train", "validation"):
        events = run_dir / "tensorboard" / part / "events.out.tfevents.bantam"
        if events.is_file():
            found[f"tensorboard/{part}"] = event_steps(events)
    found["metrics.jsonl"] = hashlib.sha256(metrics_text(run_dir).encode()).hexdigest()
    return found


def differences(run_dir, expected):
    """What of the folder differs from a run that nobody disturbed, as text; empty: nothing."""
    try:
        found = digests(run_dir)
    except (OSError, ValueError) as error:
        return f"the folder cannot be read: {error}"
    names = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    return f"{', '.join(names)} differ from an undisturbed run's" if names else ""


def half_written(run_dir):
    """Names below the folder that a run should not leave."""
    run_dir = pathlib.Path(run_dir)
    return sorted(str(path.relative_to(run_dir)) for path in run_dir.rglob("*")
                  if path.name.endswith(".tmp") or path.name == ".lock")


def require_verb(program, folder, arguments, name):
    """Runs a verb with its arguments. Exits where it fails; the message begins with `name`."""
    code, output = run_verb(program, folder, arguments)
    if code != 0:
        sys.exit(f"{name} fails with exit code {code}:\n{output}")


def undisturbed(program, folder, name, more=(), config="trial.yaml"):
    """Runs the configuration `config` of `folder` into `name` and returns its digests. Exits where that fails."""
    require_verb(program, folder, arguments_of([config, "--run-dir", name, *more]), "an undisturbed run")
    return digests(pathlib.Path(folder) / name)
