#!/usr/bin/env python3
"""fault_trial.py PROGRAM LIBRARY [--every N] [--offset M] [--error ENOSPC|EIO]: the k-th file operation fails, for every k.

A short run of `bantam train` is given the preloaded LIBRARY (faults.cpp), which lets the k-th call of open, write, fsync,
rename, mkdir, unlink, rmdir or truncate below the run's folder fail: k = 1, 2, … until no call is left. After each run:
  * exit code 0: all is saved, with the bits of a run without faults
  * exit code 3 (2 where the run's configuration cannot be read): said so; --resume, without faults, ends with those bits, or, where there is no config.yaml, a new run does
    in the same folder
Scenarios: a new run; one that goes on; one that replaces another; one that goes on from an earlier checkpoint.
"""
import argparse
import errno
import os
import pathlib
import shutil
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import trial_runs  # noqa: E402

SHORT = ["train.epochs=2", "train.log_every=3", "checkpoint.every=4updates", "data.test_samples=64"]
HALF = 15  # updates of the run that is gone on with


class Trial:
    def __init__(self, program, library, folder, error):
        self.program, self.library, self.error = os.path.abspath(program), os.path.abspath(library), error
        self.home, self.folder, self.run_dir = folder, folder / "runs", folder / "runs/run"
        self.folder.mkdir()
        (self.folder / "trial.yaml").write_text(trial_runs.CONFIG)
        self.count = folder / "count"
        self.expected = trial_runs.undisturbed(self.program, self.folder, "whole", SHORT)
        trial_runs.undisturbed(self.program, self.folder, "half", [*SHORT, f"train.max_updates={HALF}"])
        trial_runs.undisturbed(self.program, self.folder, "other", [*SHORT, "seed=8", "train.epochs=4"])
        new = ["trial.yaml", "--run-dir", "run", *SHORT]
        resumed = ["--resume", "run", "train.max_updates=0"]
        self.scenarios = {
            "new": (None, new, new),
            "resumed": ("half", resumed, new),
            "replaced": ("other", [*new, "--overwrite"], [*new, "--overwrite"]),
            "earlier": ("half", ["--resume", trial_runs.earlier_checkpoint(self.folder / "half", "run"), "train.max_updates=0"], new),
        }

    def prepare(self, template):
        shutil.rmtree(self.run_dir, ignore_errors=True)
        if template:
            shutil.copytree(self.folder / template, self.run_dir)

    def run_with_fault(self, what, first, last=0):
        """(exit code, output, number of calls)"""
        environment = {"LD_PRELOAD": self.library, "BANTAM_FAULT_FOLDER": str(self.run_dir),
                       "BANTAM_FAULT_CALL": str(first), "BANTAM_FAULT_LAST": str(last),
                       "BANTAM_FAULT_ERRNO": str(self.error), "BANTAM_FAULT_COUNT": str(self.count)}
        code, output = trial_runs.run(self.program, self.folder, what, environment)
        return code, output, int(self.count.read_text())

    def go_on(self, replaces, retry):
        """Without faults, to the end; the reason where that fails. A replaced run's folder is asked for again."""
        if replaces and "seed: 8" in self.config():  # the old run is still there, whole
            return self.finish(retry)
        whole = (self.run_dir / "config.yaml").exists()
        return self.finish(["--resume", "run", "train.max_updates=0"] if whole else retry)

    def config(self):
        path = self.run_dir / "config.yaml"
        return path.read_text() if path.exists() else ""

    def finish(self, what):
        code, output = trial_runs.run(self.program, self.folder, what)
        if code != 0:
            return f"{' '.join(what)} fails with exit code {code}\n{output}"
        if reason := trial_runs.differences(self.run_dir, self.expected):
            return f"after {' '.join(what)}: {reason}\n{output}"
        left = trial_runs.half_written(self.run_dir)
        return f"after {' '.join(what)} there are {', '.join(left)}" if left else None

    def check(self, scenario, code, output, retry):
        """The reason where a run with a fault lost something."""
        refused = code == 2 and "cannot read run/config.yaml" in output  # nothing was begun
        if code not in (0, 3) and not refused:
            return f"exit code {code}, expected 0 or 3\n{output}"
        if code == 0 and (reason := trial_runs.differences(self.run_dir, self.expected)):
            return f"exit code 0, but {reason}\n{output}"
        reason = self.go_on(scenario == "replaced", retry)
        return f"exit code {code}, then {reason}\nthe run with the fault:\n{output}" if reason else None

    def scenario(self, name, every, offset):
        """(calls, k's tried, reasons by k)"""
        template, what, retry = self.scenarios[name]
        lost, tried, calls, k = {}, 0, 0, 1 + offset % every
        while True:
            self.prepare(template)
            code, output, calls = self.run_with_fault(what, k)
            if calls < k:
                return calls, tried, lost
            tried += 1
            if reason := self.check(name, code, output, retry):
                lost[k] = reason
                print(f"{name}, call {k}: LOST: {reason}", flush=True)
            k += every


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of bantam")
    parser.add_argument("library", help="path of the library made from faults.cpp")
    parser.add_argument("--every", type=int, default=1, help="tries every N-th call; default: 1")
    parser.add_argument("--offset", type=int, default=int(time.time() // 86400), help="with --every: which; default: by date")
    parser.add_argument("--error", default="ENOSPC", help="ENOSPC or EIO; default: ENOSPC")
    parser.add_argument("--scenario", help="new, resumed, replaced or earlier; default: all")
    options = parser.parse_args()
    failed = 0
    with trial_runs.scratch("bantam-faults-") as folder:
        trial = Trial(options.program, options.library, pathlib.Path(folder).resolve(), getattr(errno, options.error))
        for name in trial.scenarios if not options.scenario else [options.scenario]:
            calls, tried, lost = trial.scenario(name, options.every, options.offset)
            failed += len(lost)
            print(f"{name}: {options.error} at {tried} of {calls} calls "
                  f"(--every {options.every} --offset {options.offset}); lost: {len(lost)}", flush=True)
            if tried == 0:
                sys.exit("no call was tried: the library is not in the program")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
