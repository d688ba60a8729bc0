#!/usr/bin/env python3
"""rank_kill_trial.py PROGRAM [--kills 50] [--seed 1] [--gpus 4]: kills random ranks of `bantam train --ranks N`, or --gpus, at random moments.

A short run of 4 replicas on 2, 3 or 4 ranks; one of its processes gets SIGKILL. All others must have ended within 5 s (and a
grace for busy machines), rank 0 with exit code 1 and a message that names the rank, and the run is resumed on another number
of ranks, and disturbed again, until it has finished. Then its weights, its newest checkpoint's state and its metrics must be,
bit for bit, those of a run on one rank that nobody disturbed. On GPUs no memory may be left in use on any card either, by
nvidia-smi's count, where nobody else uses them.
"""
import argparse
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import trial_runs  # noqa: E402

SECONDS = 5.0
OVERRIDES = ["train.replicas=4", "data.pipeline.batch.size=4", "train.epochs=12"]


def children_of(parent):
    """Process ids in the order of the ranks from 1 on; empty where the process has ended."""
    try:
        return [int(child) for child in pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()]
    except OSError:
        return []


def lives(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def used_memory():
    """MiB in use on each card; empty without nvidia-smi."""
    try:
        found = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                               capture_output=True, text=True, timeout=30, check=True)
        return [int(line) for line in found.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


class Trial:
    def __init__(self, options, folder):
        self.program, self.folder, self.random = os.path.abspath(options.program), folder, random.Random(options.seed)
        self.grace, self.kills, self.slowest = options.grace, 0, 0.0
        self.gpus, self.shared = options.gpus, options.shared
        device = "cuda" if self.on_gpus() else "cpu"
        (folder / "trial.yaml").write_text(trial_runs.CONFIG.replace("device: cpu", f"device: {device}"))
        self.run_dir = folder / "run"
        self.idle = used_memory() if self.on_gpus() else []
        begin = time.monotonic()
        self.whole = trial_runs.undisturbed(self.program, folder, "whole", OVERRIDES)
        self.seconds = time.monotonic() - begin

    def on_gpus(self):
        return self.gpus > 0 or self.shared

    def session(self):
        self.ranks = self.random.randint(2, self.gpus if self.gpus > 0 else 4)
        what = (["--resume", "run"] if (self.run_dir / "config.yaml").exists()
                else ["trial.yaml", "--run-dir", "run", *OVERRIDES])
        where = ["--ranks", str(self.ranks)]
        if self.on_gpus():
            where = ["--gpus", ",".join(["0"] * self.ranks) if self.shared else str(self.ranks)]
        return trial_runs.start(self.program, self.folder, [*what, *where])

    def memory_left(self):
        """What cards still hold, where that is more than before; a driver needs a moment."""
        for _ in range(30):
            now = used_memory()
            if all(after <= before + 8 for before, after in zip(self.idle, now)):
                return None
            time.sleep(0.1)
        return f"MiB in use on the cards: {self.idle} before, {now} after"

    def kill_one(self, process):
        """The reason where something is not as it should be."""
        time.sleep(self.random.uniform(0.05, self.seconds * 0.7))
        children = children_of(process.pid)
        rank = self.random.randrange(self.ranks)
        if process.poll() is not None or len(children) != self.ranks - 1:  # it has just begun, or ended
            output = process.communicate()[0].decode(errors="replace")
            return None if process.returncode == 0 else f"nobody was killed: exit code {process.returncode}\n{output}"
        os.kill(process.pid if rank == 0 else children[rank - 1], signal.SIGKILL)
        self.kills += 1
        begin = time.monotonic()
        output = process.communicate()[0].decode(errors="replace")  # until all ranks have closed it
        took = time.monotonic() - begin
        self.slowest = max(self.slowest, took)
        what = f"rank {rank} of {self.ranks} was killed: exit code {process.returncode} after {took:.2f} s\n{output}"
        if process.returncode == 0:
            return None  # all was saved before it counted
        if took > SECONDS + self.grace:
            return f"too late: {what}"
        while any(lives(child) for child in children) and time.monotonic() - begin < SECONDS + self.grace:
            time.sleep(0.01)  # they have closed their output, and end
        if any(lives(child) for child in children):
            return f"an orphan is left: {what}"
        if process.returncode != (-signal.SIGKILL if rank == 0 else 1):
            return f"another exit code was expected: {what}"
        if self.idle and (left := self.memory_left()):
            return f"{left}: {what}"
        named = rank == 0 or f"rank {rank}" in output  # of rank 0 nobody may know yet that it was there
        return None if named else f"the rank is not named: {what}"

    def one_run(self, most):
        shutil.rmtree(self.run_dir, ignore_errors=True)
        for _ in range(self.random.randint(1, 4)):
            if self.kills >= most:
                break
            process = self.session()
            if reason := self.kill_one(process):
                return reason
        process = self.session()
        output = process.communicate()[0].decode(errors="replace")
        if process.returncode != 0:
            return f"the last session, of {self.ranks} ranks, fails with exit code {process.returncode}\n{output}"
        if reason := trial_runs.differences(self.run_dir, self.whole):
            return f"{reason}\n{output}"
        left = trial_runs.half_written(self.run_dir)
        return f"at the end there are {', '.join(left)}" if left else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of bantam")
    parser.add_argument("--kills", type=int, default=50, help="default: 50")
    parser.add_argument("--seed", type=int, default=1, help="of moments and ranks; default: 1")
    parser.add_argument("--grace", type=float, default=3.0, help="seconds beyond 5 until all have ended; default: 3")
    parser.add_argument("--gpus", type=int, default=0, help="ranks are on 2 to so many GPUs, one each; default: on CPUs")
    parser.add_argument("--shared", action="store_true", help="2 to 4 ranks share GPU 0")
    options = parser.parse_args()
    lost = []
    with trial_runs.scratch("bantam-rank-kills-") as folder:
        trial = Trial(options, pathlib.Path(folder))
        for _ in range(1000):
            if trial.kills >= options.kills or lost:
                break
            if reason := trial.one_run(options.kills):
                lost.append(reason)
                print(f"LOST: {reason}", flush=True)
        print(f"{trial.kills} kills (seed {options.seed}); slowest end of all ranks {trial.slowest:.2f} s; lost: {len(lost)}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
