#!/usr/bin/env python3
"""signal_trial.py PROGRAM [--pairs 100] [--seed 1]: pairs of signals at random moments of `bantam train`.

Each pair is two of SIGINT, SIGTERM and SIGHUP, 0 to 100 ms apart, sent at a random moment of a short run: while it starts,
trains, evaluates or saves. A run that was stopped is resumed under the next pair, until it has finished; then its weights
must be, bit for bit, those of a run that nobody disturbed. After each pair:
  * exit code 75 or 130: stopped and saved; the state is whole and not behind the metrics
  * exit code 0: finished before the first signal counted
  * ended by the signal itself: allowed only before the training began, with nothing new in the folder
Exits with 0 where nothing was lost, else with 1.
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

CONFIG = """version: 1
seed: 7
device: cpu
data:
  format: generated
  train_samples: 1024
  test_samples: 512
  pipeline:
    - shuffle: {}
    - random_flip: {}
    - normalize: {scale: 0.00392156862745098}
    - batch: {size: 16}
    - prefetch: {depth: 2, workers: 1}
model:
  name: trial
  input: [32, 32, 3]
  layers:
    - conv2d: {filters: 8, kernel: 3, stride: 2, padding: same, bias: false}
    - batch_norm: {activation: relu}
    - dropout: {rate: 0.2}
    - flatten
    - dense: {units: 512, activation: relu}
    - dense: {units: 10}
train:
  epochs: 10
  optimizer: {adam: {learning_rate: 2.0e-3}}
"""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def default_signals():
    for number in SIGNALS:  # a shell's background job would hand down an ignored SIGINT
        signal.signal(number, signal.SIG_DFL)


def start(program, folder, arguments):
    return subprocess.Popen([program, "train", *arguments, "--threads", "1", "--progress", "none"], cwd=folder,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=default_signals)


def position(state):
    """(epoch, update) of a saved state."""
    with open(state, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.tell()

        def counter(name):
            file.seek(data + header[name]["data_offsets"][0])
            return struct.unpack("<q", file.read(8))[0]

        return counter("trainer/epoch"), counter("trainer/update")


def last_logged(metrics):
    """(epoch, update) of the last update that the metrics tell of; epochs count from 0."""
    last = (0, 0)
    if metrics.exists():
        for line in metrics.read_text().splitlines():
            entry = json.loads(line)  # a half line raises here
            if entry["kind"] == "update":
                last = max(last, (entry["epoch"] - 1, entry["update"]))
    return last


class Trial:
    def __init__(self, program, folder, seed):
        self.program, self.folder, self.random = program, folder, random.Random(seed)
        (folder / "trial.yaml").write_text(CONFIG)
        begin = time.monotonic()
        whole = start(program, folder, ["trial.yaml", "--run-dir", "whole"])
        output = whole.communicate()[0]
        if whole.returncode != 0:
            sys.exit(f"an undisturbed run fails: {output.decode(errors='replace')}")
        self.seconds = time.monotonic() - begin
        self.weights = (folder / "whole/weights.safetensors").read_bytes()
        self.run_dir = folder / "run"
        self.outcomes = {}

    def count(self, what):
        self.outcomes[what] = self.outcomes.get(what, 0) + 1

    def pair(self):
        """One disturbed start or resumption; the reason where something was lost."""
        state, metrics = self.run_dir / "state.safetensors", self.run_dir / "metrics.jsonl"
        resumes = state.exists()
        saved, logged = state.read_bytes() if resumes else b"", last_logged(metrics)
        moment, gap = self.random.uniform(0, self.seconds), self.random.uniform(0, 0.1)
        first, second = self.random.choice(SIGNALS), self.random.choice(SIGNALS)
        what = f"{first.name} after {moment * 1e3:.0f} ms, {second.name} {gap * 1e3:.0f} ms later"
        process = start(self.program, self.folder, ["--resume", "run"] if resumes else ["trial.yaml", "--run-dir", "run"])
        time.sleep(moment)
        process.send_signal(first)
        time.sleep(gap)
        process.send_signal(second)
        output = process.communicate()[0].decode(errors="replace")
        code = process.returncode
        if code < 0:
            self.count("ended before the training began")
            kept = state.read_bytes() if state.exists() else b""
            if kept != saved or last_logged(metrics) != logged:
                return f"{what}: ended by signal {-code} with work in the folder that is not in the state\n{output}"
            return None
        if code in (75, 130):
            self.count("stopped and saved")
            if not state.exists():
                return f"{what}: exit code {code}, and no state\n{output}"
            if position(state) < last_logged(metrics):
                return f"{what}: the state is at {position(state)}, the metrics at {last_logged(metrics)}\n{output}"
            return None
        if code != 0:
            return f"{what}: exit code {code}\n{output}"
        self.count("finished")
        return self.check_finished(what)

    def check_finished(self, what):
        same = (self.run_dir / "weights.safetensors").read_bytes() == self.weights
        shutil.rmtree(self.run_dir)
        return None if same else f"{what}: the finished run's weights are others than those of an undisturbed one"

    def finish(self):
        """The last run, to its end without signals."""
        if not (self.run_dir / "state.safetensors").exists():
            return None
        process = start(self.program, self.folder, ["--resume", "run"])
        output = process.communicate()[0].decode(errors="replace")
        return self.check_finished("at the end") if process.returncode == 0 else f"the last run fails: {output}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="path of bantam")
    parser.add_argument("--pairs", type=int, default=100, help="default: 100")
    parser.add_argument("--seed", type=int, default=1, help="of moments, gaps and kinds of signals; default: 1")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bantam-signals-") as folder:
        trial = Trial(os.path.abspath(options.program), pathlib.Path(folder), options.seed)
        lost = []
        for number in range(1, options.pairs + 1):
            reason = trial.pair()
            if reason:
                lost.append(reason)
                print(f"pair {number}: LOST: {reason}", flush=True)
                shutil.rmtree(trial.run_dir, ignore_errors=True)
        if reason := trial.finish():
            lost.append(reason)
            print(f"LOST: {reason}")
        told = ", ".join(f"{count} {what}" for what, count in sorted(trial.outcomes.items()))
        print(f"{options.pairs} pairs (seed {options.seed}, runs of {trial.seconds:.1f} s): {told}; lost: {len(lost)}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
