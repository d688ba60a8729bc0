#!/usr/bin/env python3
"""kill_trial.py PROGRAM [--moments 200] [--seed 1] [--device cpu|cuda:0]: kills `bantam train` at random moments.

A short run gets SIGINT, SIGTERM twice, SIGUSR1 or SIGKILL while it starts, trains, evaluates or saves; it is resumed, and
disturbed again, until it has finished. Then its weights, its newest checkpoint's state, its metrics and its histograms must be, bit for bit,
those of a run that nobody disturbed, with nothing half-written. After each signal:
  * SIGINT: exit code 130, SIGTERM and SIGUSR1: 75, each within 2 s (and a grace for busy machines); nothing half-written
  * 0: it had finished before the signal counted
  * ended by the signal itself: SIGKILL, or before the program had installed its handlers or after it had removed them
Prints how many signals of each kind fell in which phase. Exits with 0 where nothing was lost, else with 1.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import time

import trial_runs

PHASES = ["start", "training", "evaluation", "saving"]
KINDS = {"SIGINT": [signal.SIGINT], "SIGTERM twice": [signal.SIGTERM] * 2, "SIGUSR1": [signal.SIGUSR1],
         "SIGKILL": [signal.SIGKILL]}
CODES = {signal.SIGINT: 130, signal.SIGTERM: 75, signal.SIGUSR1: 75}
SECONDS = 2.0
DISTURBANCES_A_RUN = 6
# Each on top of trial_runs.CONFIG; {epochs} make a run of a second or so.
VARIANTS = {
    "plain": [],
    "accumulate": ["train.accumulate=3", "checkpoint.every=[2updates, 1epoch]"],
    "mixed_float16": ["precision=mixed_float16", "train.loss_scale.growth_interval=7"],
    "log_every": ["train.log_every=5", "checkpoint.every=4updates"],
    "logged": ["log={tensorboard: true, histograms: 3, images: 2}", "checkpoint.every=4updates", "train.log_every=3"],
    "planned": ["train.mode=planned", "checkpoint.every=1updates", "checkpoint.keep_last=1"],
    "eager": ["train.mode=eager", "checkpoint.best=off"],
    "max_updates": ["train.max_updates=91", "train.log_every=4", "checkpoint.every=7updates"],
    "max_updates_at_an_epoch's_end": ["train.max_updates=96", "checkpoint.every=16updates"],
}
ON_GPU = {"captured": ["train.mode=captured"], "captured_accumulate": ["train.mode=captured", "train.accumulate=2"]}


def last_entry(metrics):
    try:
        with open(metrics, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
            return json.loads(file.read().splitlines()[-1])
    except (OSError, ValueError, IndexError):
        return {}


class Trial:
    def __init__(self, options, folder):
        self.program, self.folder, self.random = os.path.abspath(options.program), folder, random.Random(options.seed)
        self.grace, self.device, self.epochs = options.grace, options.device, options.epochs
        self.table, self.ends = collections.Counter(), collections.Counter()
        self.moments, self.slowest, self.runs, self.lost = 0, 0.0, 0, []
        (folder / "trial.yaml").write_text(trial_runs.CONFIG)
        self.run_dir = folder / "run"
        self.whole = {}

    def overrides(self, variant):
        own = {**VARIANTS, **ON_GPU}[variant]
        updates = trial_runs.UPDATES_AN_EPOCH
        self.last_update = -(-updates // 3) if variant == "accumulate" else updates // 2 if "_accum" in variant else updates
        return [f"device={self.device}", f"train.epochs={self.epochs}", *own]

    def reference(self, variant):
        """(seconds, digests) of an undisturbed run."""
        if variant not in self.whole:
            begin = time.monotonic()
            found = trial_runs.undisturbed(self.program, self.folder, f"whole-{variant}", self.overrides(variant))
            self.whole[variant] = (time.monotonic() - begin, found)
        return self.whole[variant]

    def staged(self):
        """Checkpoints that are not whole: one that is being saved, or that a session which was killed has left."""
        try:
            return {name for name in os.listdir(self.run_dir / "checkpoints") if name.startswith(".update-")}
        except OSError:
            return set()

    def phase(self, size_before):
        """Where the run is, from what it has written."""
        if self.staged() - self.staged_before:
            return "saving"
        metrics = self.run_dir / "metrics.jsonl"
        size = metrics.stat().st_size if metrics.exists() else 0
        if size == size_before:
            return "start"
        last = last_entry(metrics)
        return "evaluation" if last.get("kind") == "update" and last.get("update") == self.last_update else "training"

    def wait_for_moment(self, process, wanted, seconds, size_before):
        """Until a random moment of the wanted phase; the phase then, nothing where the process has ended."""
        if wanted == "start":
            time.sleep(self.random.uniform(0, 0.06))
        else:
            time.sleep(self.random.uniform(0.02, max(0.03, seconds * 0.8)))
            end = time.monotonic() + seconds + 5
            while process.poll() is None and self.phase(size_before) != wanted and time.monotonic() < end:
                time.sleep(0.0002)
        phase = self.phase(size_before)
        return phase if process.poll() is None else None

    def disturb(self, process, seconds, size_before):
        """Sends a signal, waits for the end and returns the reason where something is not as it should be."""
        phase = self.wait_for_moment(process, self.random.choice(PHASES), seconds, size_before)
        kind = self.random.choice(list(KINDS))
        gap = self.random.uniform(0, 0.1)
        if phase is not None:
            for number in KINDS[kind]:
                process.send_signal(number)  # nothing where the process has ended
                if len(KINDS[kind]) > 1:
                    time.sleep(gap)
            self.moments += 1
            self.table[kind, phase] += 1
        begin = time.monotonic()
        output = process.communicate()[0].decode(errors="replace")
        took = time.monotonic() - begin
        code = process.returncode
        what = f"{kind} in {phase}: exit code {code} after {took:.2f} s"
        if phase is None or code == 0:
            self.ends["finished before the signal counted"] += 1
            return None if code == 0 else f"no signal: exit code {code}\n{output}"
        first = KINDS[kind][0]
        self.ends[f"exit code {code}" if code > 0 else f"ended by {signal.Signals(-code).name}"] += 1
        if first == signal.SIGKILL:
            return None if code == -signal.SIGKILL else f"{what}\n{output}"
        self.slowest = max(self.slowest, took)
        if took > SECONDS + self.grace:
            return f"{what}: too late\n{output}"
        if code == -first and (phase == "start" or "files" in output):  # before its handlers, or after its summary
            return None
        if code != CODES[first]:
            return f"{what}: expected {CODES[first]}\n{output}"
        left = trial_runs.half_written(self.run_dir) if self.run_dir.exists() else []
        return f"{what}: it leaves {', '.join(left)}\n{output}" if left else None

    def session(self, variant):
        what = (["--resume", "run"] if (self.run_dir / "config.yaml").exists()
                else ["trial.yaml", "--run-dir", "run", *self.overrides(variant)])
        return trial_runs.start(self.program, self.folder, what)

    def one_run(self, variant, most):
        """One run, disturbed until it has finished; the reason where something was lost."""
        seconds, expected = self.reference(variant)
        self.overrides(variant)
        shutil.rmtree(self.run_dir, ignore_errors=True)
        self.runs += 1
        for _ in range(self.random.randint(2, DISTURBANCES_A_RUN)):
            if self.moments >= most:
                break
            metrics = self.run_dir / "metrics.jsonl"
            size_before = metrics.stat().st_size if metrics.exists() else 0
            self.staged_before = self.staged()
            process = self.session(variant)
            if reason := self.disturb(process, seconds, size_before):
                return reason
            if process.returncode == 0:
                break
        process = self.session(variant)
        output = process.communicate()[0].decode(errors="replace")
        if process.returncode != 0:
            return f"the last session fails with exit code {process.returncode}\n{output}"
        if reason := trial_runs.differences(self.run_dir, expected):
            return f"{reason}\n{output}"
        left = trial_runs.half_written(self.run_dir)
        return f"at the end there are {', '.join(left)}" if left else None

    def print_table(self):
        print(f"{'':16}" + "".join(f"{phase:>12}" for phase in PHASES) + f"{'all':>12}")
        for kind in KINDS:
            counts = [self.table[kind, phase] for phase in PHASES]
            print(f"{kind:16}" + "".join(f"{count:12}" for count in [*counts, sum(counts)]))
        counts = [sum(self.table[kind, phase] for kind in KINDS) for phase in PHASES]
        print(f"{'all':16}" + "".join(f"{count:12}" for count in [*counts, sum(counts)]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of bantam")
    parser.add_argument("--moments", type=int, default=200, help="default: 200")
    parser.add_argument("--seed", type=int, default=1, help="of moments, phases and kinds of signals; default: 1")
    parser.add_argument("--device", default="cpu", help="cpu or cuda:N; default: cpu")
    parser.add_argument("--epochs", type=int, default=12, help="of a run; default: 12")
    parser.add_argument("--grace", type=float, default=3.0, help="seconds beyond 2 until the exit; default: 3")
    parser.add_argument("--keep", help="folder that a lost run is moved to")
    options = parser.parse_args()
    variants = list(VARIANTS) + (list(ON_GPU) if options.device != "cpu" else [])
    with trial_runs.scratch("bantam-kills-") as folder:
        trial = Trial(options, pathlib.Path(folder))
        for number in range(1_000_000):
            if trial.moments >= options.moments:
                break
            variant = variants[number % len(variants)]
            if reason := trial.one_run(variant, options.moments):
                trial.lost.append(reason)
                print(f"{variant}: LOST: {reason}", flush=True)
                if options.keep and trial.run_dir.exists():
                    shutil.copytree(trial.run_dir, pathlib.Path(options.keep) / f"run-{number}-{variant}")
        trial.print_table()
        print(f"ends: {', '.join(f'{count} {what}' for what, count in sorted(trial.ends.items()))}")
        print(f"{trial.moments} moments (seed {options.seed}, {options.device}) in {trial.runs} runs of "
              f"{', '.join(trial.whole)}; slowest exit {trial.slowest:.2f} s (at most {SECONDS:g} s, and a grace of "
              f"{trial.grace:g} s); lost: {len(trial.lost)}")
    return 1 if trial.lost else 0


if __name__ == "__main__":
    sys.exit(main())
