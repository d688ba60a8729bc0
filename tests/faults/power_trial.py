#!/usr/bin/env python3
"""power_trial.py PROGRAM LIBRARY [--every N] [--offset M]: power loss after any file operation of `bantam train`.

A short run writes all of its file operations to a log (faults.cpp). For each prefix of the log the folder is built as a disk
may have it after power loss there: of a file that was not synced the bytes since, and of a folder that was not synced the
names made, renamed and removed since, are dropped, kept, or kept up to a random one of them. Then
  * `train --resume` must end with the bits of a run that nobody disturbed, from no earlier checkpoint than the newest that
    was complete, and its folder synced, before; or
  * where there is no config.yaml, the run had not begun: a new one must do so in the same folder.
Scenarios: a new run; one that goes on; one that goes on from an earlier checkpoint; one that goes on with epochs of fewer
updates, whose checkpoint gets another number; one that replaces another.
"""
import argparse
import os
import pathlib
import random
import re
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import trial_runs  # noqa: E402

SHORT = ["train.epochs=2", "train.log_every=3", "checkpoint.every=4updates", "data.test_samples=64"]
HALF = 15  # updates of the run that is gone on with
# What is left of unsynced (bytes, names).
DISKS = [("dropped", "dropped"), ("kept", "dropped"), ("dropped", "kept"), ("kept", "kept"), ("some", "some")]


class File:
    """A file's bytes, those that were synced, and what was done since."""

    def __init__(self, data=b""):
        self.data, self.synced, self.since = bytearray(data), bytes(data), []

    def do(self, change):
        change(self.data)
        self.since.append(change)

    def sync(self):
        self.synced, self.since = bytes(self.data), []

    def after(self, kind, chance):
        if kind == "kept":
            return bytes(self.data)
        data = bytearray(self.synced)
        if kind == "some":
            for change in self.since[:chance.randint(0, len(self.since))]:
                change(data)
        return bytes(data)


class Folder:
    """A folder's names, those that were synced, and what was done since."""

    def __init__(self):
        self.names, self.synced, self.since = {}, {}, []

    def do(self, change):
        change(self.names)
        self.since.append(change)

    def sync(self):
        self.synced, self.since = dict(self.names), []

    def after(self, kind, chance):
        if kind == "kept":
            return self.names
        names = dict(self.synced)
        if kind == "some":
            for change in self.since[:chance.randint(0, len(self.since))]:
                change(names)
        return names


def overwrite(data, offset, more):
    data.extend(bytes(max(0, offset - len(data))))
    data[offset:offset + len(more)] = more


def resize(data, size):
    del data[size:]
    data.extend(bytes(size - len(data)))


class Disk:
    """Files and folders below the watched folder, from what a log says."""

    def __init__(self, folder):
        self.root = self.read(pathlib.Path(folder))
        self.complete = 0  # updates of the newest checkpoint whose name is synced

    def read(self, path):
        """All that is there is on the disk."""
        folder = Folder()
        for entry in path.iterdir():
            folder.names[entry.name] = self.read(entry) if entry.is_dir() else File(entry.read_bytes())
        folder.sync()
        return folder

    def node(self, path):
        node = self.root
        for name in [] if path == "." else path.split("/"):
            node = node.names[name]
        return node

    def place(self, path):
        folder, _, name = path.rpartition("/")
        return self.node(folder or "."), name

    def add(self, path, node):
        folder, name = self.place(path)
        folder.do(lambda names: names.__setitem__(name, node))

    def remove(self, path):
        folder, name = self.place(path)
        folder.do(lambda names: names.pop(name, None))

    def rename(self, old, new):
        node = self.node(old)
        (from_folder, from_name), (to_folder, to_name) = self.place(old), self.place(new)
        if from_folder is not to_folder:
            sys.exit(f"a rename from one folder to another: {old} to {new}")

        def change(names):
            names.pop(from_name, None)
            names[to_name] = node

        from_folder.do(change)

    def apply(self, line):
        operation, path, *rest = line.rstrip("\n").split("\t")
        if operation == "create":
            self.add(path, File())
        elif operation == "mkdir":
            self.add(path, Folder())
        elif operation in ("unlink", "rmdir"):
            self.remove(path)
        elif operation == "rename":
            self.rename(path, rest[0])
        elif operation == "fsync":
            self.node(path).sync()
        elif operation == "truncate":
            self.node(path).do(lambda data, size=int(rest[0]): resize(data, size))
        elif operation == "write":
            more = bytes.fromhex(rest[1])
            self.node(path).do(lambda data, offset=int(rest[0]): overwrite(data, offset, more))
        else:
            sys.exit(f"the log has an unknown operation: {operation}")
        self.note_complete(operation, path)

    def note_complete(self, operation, path):
        """A promise: the name of a checkpoint is synced. It ends where the program removes checkpoints itself."""
        if operation == "fsync" and path == "run/checkpoints":
            found = [int(name[7:]) for name in self.node(path).names if re.fullmatch(r"update-\d+", name)]
            self.complete = max(found, default=0)
        if operation in ("rename", "unlink") and re.match(r"run/(config.yaml|checkpoints/update-\d+)$", path):
            found = self.root.names["run"].names.get("checkpoints", Folder()).names
            self.complete = min(self.complete, max((int(name[7:]) for name in found if name.startswith("update-")), default=0))
            if path == "run/config.yaml":
                self.complete = 0  # a run that is being replaced

    def write(self, to, bytes_kind, names_kind, chance):
        def put(folder, path):
            path.mkdir()
            for name, node in folder.after(names_kind, chance).items():
                if isinstance(node, Folder):
                    put(node, path / name)
                else:
                    (path / name).write_bytes(node.after(bytes_kind, chance))

        put(self.root, to)


class Trial:
    def __init__(self, program, library, folder, seed):
        self.program, self.library, self.home = os.path.abspath(program), os.path.abspath(library), folder
        self.chance = random.Random(seed)
        (folder / "trial.yaml").write_text(trial_runs.CONFIG)
        self.expected = trial_runs.undisturbed(self.program, folder, "whole", SHORT)
        trial_runs.undisturbed(self.program, folder, "half", [*SHORT, f"train.max_updates={HALF}"])
        trial_runs.undisturbed(self.program, folder, "other", [*SHORT, "seed=8", "train.epochs=4"])
        self.new = ["../trial.yaml", "--run-dir", "run", *SHORT]
        self.resume = ["--resume", "run", "train.max_updates=0"]
        earlier = trial_runs.earlier_checkpoint(folder / "half", "run")
        self.change = [*self.resume, "train.accumulate=4", "train.epochs=3", "--accept-changes"]
        trial_runs.undisturbed(self.program, folder, "epochs", SHORT)
        self.changed = self.changed_digests()
        self.scenarios = {"new": (None, self.new), "resumed": ("half", self.resume),
                          "earlier": ("half", ["--resume", earlier, "train.max_updates=0"]),
                          "changed": ("epochs", self.change),
                          "replaced": ("other", [*self.new, "--overwrite"])}

    def changed_digests(self):
        folder = self.start_folder("epochs")
        code, output = trial_runs.run(self.program, folder, self.change)
        if code != 0:
            sys.exit(f"{' '.join(self.change)} fails with exit code {code}\n{output}")
        return trial_runs.digests(folder / "run")

    def start_folder(self, template):
        folder = self.home / "recorded"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        if template:
            shutil.copytree(self.home / template, folder / "run")
        return folder

    def record(self, name):
        """(lines of the log, the disk before them)"""
        template, what = self.scenarios[name]
        folder = self.start_folder(template)
        disk, log = Disk(folder), self.home / "log"
        log.unlink(missing_ok=True)
        if name in ("resumed", "changed"):
            disk.complete = max(int(path.name[7:]) for path in trial_runs.checkpoints(folder / "run"))
        code, output = trial_runs.run(self.program, folder, what, {
            "LD_PRELOAD": self.library, "BANTAM_FAULT_FOLDER": str(folder), "BANTAM_FAULT_LOG": str(log)})
        if code != 0 or not log.exists():
            sys.exit(f"{name}: no log; exit code {code}\n{output}")
        return log.read_text().splitlines(), disk

    def check_log(self, lines, disk):
        """The log tells all: its end is the folder that the program left."""
        disk.write(self.home / "replayed", "kept", "kept", self.chance)
        replayed, recorded = self.home / "replayed", self.home / "recorded"
        names = {str(path.relative_to(recorded)) for path in recorded.rglob("*")}
        others = {str(path.relative_to(replayed)) for path in replayed.rglob("*")}
        differ = [name for name in sorted(names | others)
                  if name not in names & others
                  or (recorded / name).is_file() and (recorded / name).read_bytes() != (replayed / name).read_bytes()]
        if differ:
            sys.exit(f"after {len(lines)} operations the log tells of other files than there are: {differ}")
        shutil.rmtree(replayed)

    def resume_from(self, disk, kinds, scenario):
        """The reason where the folder that the power loss left is not gone on with."""
        folder = self.home / "disk"
        shutil.rmtree(folder, ignore_errors=True)
        disk.write(folder, *kinds, self.chance)
        config = folder / "run/config.yaml"
        text = config.read_text() if config.exists() else ""
        what = self.new if not text else self.change if scenario == "changed" else self.resume
        if scenario == "replaced" and (not text or "seed: 8" in text):
            what = [*self.new, "--overwrite"]
        elif not text and disk.complete:
            return f"update {disk.complete} was complete, and there is no run"
        elif text:
            newest = [int(path.name[7:]) for path in trial_runs.checkpoints(folder / "run")]
            if max(newest, default=0) < disk.complete:
                return f"update {disk.complete} was complete; there are {newest}"
        code, output = trial_runs.run(self.program, folder, what)
        if code != 0:
            return f"{' '.join(what)} fails with exit code {code}\n{output}"
        if text and disk.complete and "starts at update 0" in output:
            return f"update {disk.complete} was complete\n{output}"
        if reason := trial_runs.differences(folder / "run", self.changed if scenario == "changed" else self.expected):
            return f"after {' '.join(what)}: {reason}\n{output}"
        left = trial_runs.half_written(folder / "run")
        return f"after {' '.join(what)} there are {', '.join(left)}" if left else None

    def scenario(self, name, every, offset):
        """(operations, prefixes, disks, losses)"""
        lines, disk = self.record(name)
        prefixes = disks = lost = 0
        for number in range(len(lines) + 1):
            if (number - offset) % every == 0 or number == len(lines):
                prefixes += 1
                for kinds in DISKS:
                    disks += 1
                    if reason := self.resume_from(disk, kinds, name):
                        lost += 1
                        last = lines[number - 1][:120] if number else "none"
                        print(f"{name}, after operation {number} ({last}), bytes {kinds[0]}, names {kinds[1]}: LOST: {reason}",
                              flush=True)
            if number < len(lines):
                disk.apply(lines[number])
        self.check_log(lines, disk)
        return len(lines), prefixes, disks, lost


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of bantam")
    parser.add_argument("library", help="path of the library made from faults.cpp")
    parser.add_argument("--every", type=int, default=1, help="tries every N-th prefix; default: 1")
    parser.add_argument("--offset", type=int, default=int(time.time() // 86400), help="with --every: which; default: by date")
    parser.add_argument("--seed", type=int, default=1, help="of what is kept of unsynced changes; default: 1")
    parser.add_argument("--scenario", help="new, resumed, earlier, changed or replaced; default: all")
    options = parser.parse_args()
    failed = 0
    with trial_runs.scratch("bantam-power-") as folder:
        trial = Trial(options.program, options.library, pathlib.Path(folder).resolve(), options.seed)
        for name in trial.scenarios if not options.scenario else [options.scenario]:
            operations, prefixes, disks, lost = trial.scenario(name, options.every, options.offset)
            failed += lost
            print(f"{name}: {operations} operations, {prefixes} prefixes, {disks} disks "
                  f"(--every {options.every} --offset {options.offset}); lost: {lost}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
