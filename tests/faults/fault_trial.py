#!/usr/bin/env python3
"""fault_trial.py PROGRAM LIBRARY [--kinds ENOSPC,kill] [--scenarios new,export] [--sample N]: the k-th call fails, for every k.

Short runs of the program are given the preloaded LIBRARY (faults.cpp), which disturbs the k-th call on files below a folder:
k = 1, 2, … until no call is left. Kinds of faults:
  ENOSPC, EIO  open, write, fsync, rename, mkdir, unlink, rmdir or truncate returns an error
  kill         the process gets SIGKILL before such a call, or in the middle of a write
  short        a read or a write transfers half of its bytes
  read         a read returns EIO
  mmap         an mmap returns ENOMEM, be it a file's or the memory of tensors
After each run of `bantam train`:
  * exit code 0: all is saved, with the bits of a run without faults
  * another one: said so, by the file's name; --resume, without faults, ends with those bits, or, where there is no run to
    go on with, a new one does in the same folder
After each run of another verb: its files are those of a run without faults, or the old ones, or none; what it reads is as
it was; where the exit code is not 0 it has named the file, and the same command without faults writes all.
`short` must end with exit code 0. No message has words of a library, and nothing but SIGKILL ends a process by a signal.
Scenarios of training: a new run; one that goes on; one that replaces another; one that goes on from an earlier checkpoint; two
ranks; images from a packed file; a sweep. Of other verbs: predict, export, import, report, data.
"""
import argparse
import collections
import errno
import hashlib
import os
import pathlib
import random
import re
import shutil
import struct
import sys
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import trial_runs  # noqa: E402

SHORT = ["train.epochs=2", "train.log_every=3", "checkpoint.every=4updates", "data.test_samples=64"]
HALF = 15  # updates of the run that is gone on with
RAW_WORDS = re.compile(r"json\.exception|std::|basic_string|bad_alloc|terminate called|filesystem error|yaml-cpp|iostream")
# By kind: the library's, the error number, and which of its four counts.
KINDS = {"ENOSPC": ("fail", errno.ENOSPC, 0), "EIO": ("fail", errno.EIO, 0), "kill": ("kill", 0, 0),
         "short": ("short", 0, 1), "read": ("read", errno.EIO, 2), "mmap": ("mmap", 0, 3)}

PHOTOS = """version: 1
seed: 7
device: cpu
algorithms: "off"
data:
  format: image_folder
  path: photos
  validation: {split: 0.25}
  pipeline: [{resize: {size: [8, 8]}}, {cache: disk}, {shuffle: {}}, {normalize: {scale: 0.0039}}, {batch: {size: 8}}]
model:
  input: [8, 8, 3]
  layers: [flatten, {dense: {units: 2}}]
train: {epochs: 2, optimizer: {adam: {learning_rate: 2.0e-3}}}
checkpoint: {every: 2updates, min_interval: 0s, keep_last: 2}
"""


def png(chance):
    """12 x 12 pixels of noise."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = b"".join(b"\0" + chance.randbytes(36) for _ in range(12))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 12, 12, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def make_photos(folder):
    chance = random.Random(1)
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for i in range(16):
            path = folder / name / f"{i:02}.png"
            path.write_bytes(png(chance))
            os.utime(path, (1_700_000_000, 1_700_000_000))  # a packed file's digest has it


Disturbed = collections.namedtuple("Disturbed", "code output fault killed")


class Trial:
    """Folders: runs/ has configurations and templates; runs/run is the folder whose calls fail."""

    def __init__(self, program, library, folder):
        self.program, self.library = os.path.abspath(program), os.path.abspath(library)
        self.folder, self.run_dir, self.notes = folder / "runs", folder / "runs/run", folder / "notes"
        self.folder.mkdir()
        (self.folder / "trial.yaml").write_text(trial_runs.CONFIG)
        (self.folder / "photos.yaml").write_text(PHOTOS)
        make_photos(self.folder / "photos")
        whole = self.undisturbed("whole", SHORT)
        self.undisturbed("half", [*SHORT, f"train.max_updates={HALF}"])
        self.undisturbed("other", [*SHORT, "seed=8", "train.epochs=4"])
        self.make_verbs_template()
        new = ["trial.yaml", "--run-dir", "run", *SHORT]
        resumed = ["--resume", "run", "train.max_updates=0"]
        earlier = ["--resume", trial_runs.earlier_checkpoint(self.folder / "half", "run"), "train.max_updates=0"]
        ranks = ["trial.yaml", "--run-dir", "run", *SHORT, "train.replicas=2", "data.pipeline.batch.size=8", "--ranks", "2"]
        photos = ["photos.yaml", "--run-dir", "run"]
        verb = lambda *arguments, **more: Verb(self, list(arguments), **more)  # noqa: E731
        self.scenarios = {
            "new": Training(self, None, new, new, whole),
            "resumed": Training(self, "half", resumed, new, whole),
            "replaced": Training(self, "other", [*new, "--overwrite"], [*new, "--overwrite"], whole),
            "earlier": Training(self, "half", earlier, new, whole),
            "ranks": Training(self, None, ranks, ranks, self.undisturbed("of_ranks", ranks[3:-2])),
            "packed": Training(self, None, photos, photos, self.undisturbed("of_photos", [], "photos.yaml")),
            "sweep": Sweep(self),
            "predict": verb("predict", "run/trained", "run/photos", "--out", "run/answers.csv", "--progress", "none",
                            streamed=["answers.csv"], partial=True),
            "export": verb("export", "run/trained", "--onnx", "run/network.onnx"),
            "import": verb("import", "run/imported.onnx", "-o", "run/weights.safetensors"),
            "report": verb("report", "run/trained", "--progress", "none", "--threads", "1", partial=True),
            "data": verb("data", "photos.yaml", "--out", "run/page.html", "data.path=run/photos", partial=True),
        }

    def undisturbed(self, name, more, config="trial.yaml"):
        return trial_runs.undisturbed(self.program, self.folder, name, more, config)

    def make_verbs_template(self):
        template = self.folder / "verbs"
        shutil.copytree(self.folder / "whole", template / "trained")
        shutil.copytree(self.folder / "photos", template / "photos")
        trial_runs.require_verb(self.program, self.folder, ["export", "whole", "--onnx", "verbs/imported.onnx"], "export")

    def prepare(self, template):
        shutil.rmtree(self.run_dir, ignore_errors=True)
        if template:
            shutil.copytree(self.folder / template, self.run_dir)

    def disturb(self, arguments, kind, call):
        """Runs the program with a fault at a call; `fault` is what the library noted of it, or None."""
        name, error, _ = KINDS[kind]
        self.notes.unlink(missing_ok=True)
        code, output = trial_runs.run_verb(self.program, self.folder, arguments, {
            "LD_PRELOAD": self.library, "BANTAM_FAULT_FOLDER": str(self.run_dir), "BANTAM_FAULT_KIND": name,
            "BANTAM_FAULT_CALL": str(call), "BANTAM_FAULT_ERRNO": str(error), "BANTAM_FAULT_COUNT": str(self.notes)})
        faults = [line.split(" ", 3)[2:] for line in self.notes.read_text().splitlines() if line.startswith("fault ")]
        return Disturbed(code, output, faults[0] if faults else None, kind == "kill")

    def counts(self, arguments):
        """How many calls of each of the library's four counts the command makes."""
        self.notes.unlink(missing_ok=True)
        code, output = trial_runs.run_verb(self.program, self.folder, arguments, {
            "LD_PRELOAD": self.library, "BANTAM_FAULT_FOLDER": str(self.run_dir), "BANTAM_FAULT_COUNT": str(self.notes)})
        if code != 0 or not self.notes.exists():
            sys.exit(f"{' '.join(arguments)}: the library is not in the program, or exit code {code}\n{output}")
        lines = [line.split()[1:] for line in self.notes.read_text().splitlines() if line.startswith("calls ")]
        return [max(int(line[i]) for line in lines) for i in range(4)]


def ended_badly(ended, kind):
    """The reason where the process ended as it should not, or said what it should not."""
    if ended.code < 0 and not ended.killed:
        return f"ended by signal {-ended.code}"
    if raw := RAW_WORDS.search(ended.output):
        return f"it says '{raw.group(0)}'"
    if kind == "short" and ended.code != 0:
        return f"exit code {ended.code} although nothing had failed"
    if ended.code == 0 or ended.killed or ended.code == 137:
        return None
    if kind == "mmap":
        return None if re.search(r"memory|bytes|GiB|MiB|KiB", ended.output) else "it does not say that memory is short"
    return None if ended_with_name(ended) else f"its message does not name {' '.join(reversed(ended.fault))}"


def ended_with_name(ended):
    """Whether the output has the name of the file, or of a folder of it, at which the fault was."""
    path = ended.fault[1]
    names = {re.sub(r"^\.(.*)\.[0-9a-f]{8}\.tmp$", r"\1", part) for part in path.split("/")} if path != "." else {"run"}
    return any(name in ended.output for name in names)


class Training:
    """`bantam train`, in the folder `run`, which is a copy of a template."""

    def __init__(self, trial, template, what, retry, expected):
        self.trial, self.template, self.retry, self.expected = trial, template, retry, expected
        self.command = trial_runs.arguments_of(what)

    def reason(self, ended):
        """Why the run's end loses something; None: nothing is lost."""
        run_dir = self.trial.run_dir
        if ended.code == 0 and (reason := trial_runs.differences(run_dir, self.expected)):
            return f"exit code 0, but {reason}"
        config = run_dir / "config.yaml"
        text = config.read_text() if config.exists() else ""
        is_old = self.template == "other" and "seed: 8" in text  # the replaced run is still there, whole
        what = self.retry if is_old or not text else self.resumed()
        code, output = trial_runs.run(self.trial.program, self.trial.folder, what)
        if code != 0:
            return f"then {' '.join(what)} fails with exit code {code}\n{output}"
        if reason := trial_runs.differences(run_dir, self.expected):
            return f"after {' '.join(what)}: {reason}\n{output}"
        left = trial_runs.half_written(run_dir)
        return f"after {' '.join(what)} there are {', '.join(left)}" if left else None

    def resumed(self):
        return ["--resume", "run", *(["train.max_updates=0"] if self.template == "half" else [])]


class Sweep:
    """Two short runs of a sweep, gone on with by --resume."""
    template = None
    START = ["sweep", "trial.yaml", "--out", "run", "--repeat", "2", "train.epochs=1", "data.test_samples=64"]
    FLAGS = ["--threads", "1", "--progress", "none"]

    def __init__(self, trial):
        self.trial, self.command = trial, [*self.START, *self.FLAGS]
        trial_runs.require_verb(trial.program, trial.folder, self.command, "a sweep")
        self.expected = self.digests()

    def digests(self):
        return {path.parent.name: trial_runs.digests(path.parent) for path in self.trial.run_dir.glob("*/config.yaml")}

    def reason(self, ended):
        if ended.code == 0 and self.digests() != self.expected:
            return "exit code 0, but its runs differ from undisturbed ones"
        is_one = (self.trial.run_dir / "sweep.json").exists()
        what = ["sweep", "--resume", "run", *self.FLAGS] if is_one else self.command
        code, output = trial_runs.run_verb(self.trial.program, self.trial.folder, what)
        if code != 0:
            return f"then {' '.join(what)} fails with exit code {code}\n{output}"
        if self.digests() != self.expected:
            return f"after {' '.join(what)} its runs differ from undisturbed ones\n{output}"
        # A run that had ended is not opened again: the lock file of the killed process stays in it, and locks nothing.
        left = [name for name in trial_runs.half_written(self.trial.run_dir) if not name.endswith("/.lock")]
        return f"after {' '.join(what)} there are {', '.join(left)}" if left else None


class Verb:
    """A verb that reads files below `run` and writes others there. What it should write is what it writes undisturbed; the
    files `streamed` appear row by row, and may be cut short where the exit code is not 0. Of a `partial` verb the file may
    lack a part whose source could not be read, where it says so."""
    template = "verbs"
    DATES = re.compile(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?|\"?seconds\"?: ?[0-9.e-]+")

    def __init__(self, trial, command, streamed=(), partial=False):
        self.trial, self.command, self.partial = trial, command, partial
        trial.prepare(self.template)
        self.before = self.files()
        trial_runs.require_verb(trial.program, trial.folder, command, " ".join(command))
        self.after = self.files()
        self.streamed = {name: (trial.run_dir / name).read_bytes() for name in streamed}

    def files(self):
        root = self.trial.run_dir
        return {str(path.relative_to(root)): hashlib.sha256(self.DATES.sub(b"", path.read_bytes())).hexdigest()
                for path in root.rglob("*") if path.is_file()}

    def reason(self, ended):
        found = self.files()
        if ended.code == 0 and found != self.after and not (self.partial and ended_with_name(ended)):
            return f"exit code 0, but {self.other(found, self.after)} differ from an undisturbed run's"
        parts = {name for name in found if name.endswith(".tmp")} if ended.killed else set()  # nobody was left to remove them
        for name in sorted((found.keys() | self.before.keys()) - parts):
            is_begun = name in self.streamed and self.streamed[name].startswith((self.trial.run_dir / name).read_bytes())
            if found.get(name) not in (self.before.get(name), self.after.get(name)) and not is_begun and (
                    ended.killed or not self.partial):
                return f"{name} is neither the old file nor the new one"
        code, output = trial_runs.run_verb(self.trial.program, self.trial.folder, self.command)
        if code != 0:
            return f"then the same command fails with exit code {code}\n{output}"
        found = {name: digest for name, digest in self.files().items() if name not in parts}
        return f"then {self.other(found, self.after)} differ\n{output}" if found != self.after else None

    @staticmethod
    def other(found, expected):
        return ", ".join(sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name)))


class Results:
    def __init__(self):
        self.tried, self.failed = collections.Counter(), []

    def try_call(self, trial, name, kind, call):
        """Whether there was such a call."""
        scenario = trial.scenarios[name]
        trial.prepare(scenario.template)
        ended = trial.disturb(scenario.command, kind, call)
        if ended.fault is None:
            return False
        self.tried[name, kind] += 1
        if reason := ended_badly(ended, kind) or scenario.reason(ended):
            self.failed.append((name, kind, call))
            print(f"{name}, {kind} at call {call} ({' '.join(ended.fault)}), exit code {ended.code}: LOST: {reason}\n"
                  f"  the run with the fault said:\n{ended.output}", flush=True)
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of bantam")
    parser.add_argument("library", help="path of the library made from faults.cpp")
    parser.add_argument("--kinds", default=",".join(KINDS), help="default: all")
    parser.add_argument("--scenarios", default="", help="default: all")
    parser.add_argument("--sample", type=int, default=0, help="tries so many of all calls; default: every one")
    parser.add_argument("--seed", type=int, default=1, help="with --sample: which; default: 1")
    parser.add_argument("--call", type=int, default=0, help="tries this one alone")
    options = parser.parse_args()
    results = Results()
    with trial_runs.scratch("bantam-faults-") as folder:
        trial = Trial(options.program, options.library, pathlib.Path(folder).resolve())
        names, kinds = options.scenarios.split(",") if options.scenarios else list(trial.scenarios), options.kinds.split(",")
        if options.call:
            for name in names:
                for kind in kinds:
                    results.try_call(trial, name, kind, options.call)
        elif options.sample:
            calls = []
            for name in names:
                trial.prepare(trial.scenarios[name].template)
                counts = trial.counts(trial.scenarios[name].command)
                calls += [(name, kind, call) for kind in kinds for call in range(1, counts[KINDS[kind][2]] + 1)]
            for name, kind, call in random.Random(options.seed).sample(calls, min(options.sample, len(calls))):
                results.try_call(trial, name, kind, call)
        else:
            for name in names:
                for kind in kinds:
                    call = 1
                    while results.try_call(trial, name, kind, call):
                        call += 1
                    lost = sum(1 for failure in results.failed if failure[:2] == (name, kind))
                    print(f"{name}: {kind} at {results.tried[name, kind]} calls; lost: {lost}", flush=True)
    print(f"{sum(results.tried.values())} calls in {len(names)} scenarios ({', '.join(kinds)}); lost: {len(results.failed)}")
    if not results.tried:
        sys.exit("no call was tried: the library is not in the program")
    return 1 if results.failed else 0


if __name__ == "__main__":
    sys.exit(main())
