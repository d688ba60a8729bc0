#!/usr/bin/env python3
"""What must not change while code moves: trains twenty small runs and plans every configuration, and prints a line for
each with the SHA-256 of the weights, of config.yaml, of metrics.jsonl and of `plan --json`, without times.

golden.py PROGRAM                 the lines of a program
golden.py PROGRAM --against FILE  compares them with lines kept before; exit code 1 where one differs
golden.py PROGRAM --against OTHER_PROGRAM
                                  likewise, with the lines of another program: the one from before a change

Bits are those of one machine: processors of other instruction sets, other compilers and other versions of oneDNN round
otherwise. So lines are compared where they were made, and none are kept in the repository.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Fields of a line of metrics.jsonl that tell the time.
TIMES = re.compile("seconds|per_s|_ms|time|wait")
TINY = ["train.epochs=1", "data.limit=640", "data.validation={split: 0.1}"]

# name: configuration and its overrides.
RUNS = {name: ["configs/quickstart.yaml", *TINY, *overrides] for name, overrides in {
    **{rule.split(":")[0]: ["train.optimizer={%s}" % rule] for rule in (
        "adam: {learning_rate: 0.002}", "adamw: {learning_rate: 0.002}", "sgd: {learning_rate: 0.05}",
        "rmsprop: {learning_rate: 0.001}", "lion: {learning_rate: 0.0003}", "lamb: {learning_rate: 0.003}",
        "muon: {learning_rate: 0.01}")},
    "nesterov_clip": ["train.optimizer={sgd: {learning_rate: 0.02, momentum: 0.9, nesterov: true}}", "train.clip_norm=1"],
    "float16": ["precision=float16"],
    "mixed_float16": ["precision=mixed_float16"],
    "accumulate": ["train.accumulate=2"],
    "replicas": ["train.replicas=4"],
    "on_plateau": ["train.optimizer={adam: {learning_rate: {schedule: on_plateau, peak: 0.002, patience: 1}}}", "train.epochs=3"],
    "ema_prune": ["train.ema={decay: 0.9}", "train.prune={final: 0.5, begin: 4updates, end: 16updates}"],
    "recompute_all": ["recompute=all"],
    "recompute_cheap": ["recompute=cheap"],
}.items()}
GENERATED = ["data={format: generated, limit: 128, pipeline: [shuffle: {}, random_crop: {padding: 4}, random_flip: {}, "
             "normalize: {scale: 0.0039}, batch: {size: 32}]}", "train.epochs=1"]
RUNS.update({
    "resnet18": ["configs/resnet18_cifar10.yaml", *GENERATED],
    "resnet18_recompute": ["configs/resnet18_cifar10.yaml", *GENERATED, "recompute=all"],
    "mobilenet": ["configs/resnet18_cifar10.yaml", *GENERATED, "model={zoo: mobilenet_v2, classes: 10, input: [32, 32, 3]}"],
    "convnext": ["configs/resnet18_cifar10.yaml", *GENERATED, "model={zoo: convnext_tiny, classes: 10, input: [32, 32, 3]}"],
})


def sha(data):
    return hashlib.sha256(data).hexdigest()[:16]


def without_times(text):
    lines = [json.loads(line) for line in text.splitlines()]
    return "\n".join(json.dumps({k: v for k, v in line.items() if not TIMES.search(k)}) for line in lines).encode()


def run_line(program, name, words):
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [program, "train", ROOT / words[0], *words[1:], "--run-dir", run, "--device", "cpu", "-q"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "2"})
        if done.returncode != 0:
            return f"{name} failed: {(done.stderr or done.stdout).strip()[:300]}"
        return " ".join([name, sha((run / "weights.safetensors").read_bytes()), sha((run / "config.yaml").read_bytes()),
                         sha(without_times((run / "metrics.jsonl").read_text()))])


def plan_line(program, config, flags):
    name = f"plan {config.relative_to(ROOT / 'configs')} {' '.join(flags)}".strip()
    done = subprocess.run([program, "plan", config, "--json", *flags], capture_output=True, text=True, cwd=ROOT)
    text = re.sub(r'"arena_seconds":[^,}]+', "", done.stdout)  # how long the planner took
    return f"{name} {sha(text.encode()) if done.returncode == 0 else done.stderr.strip()}"


def lines_of(program):
    configs = sorted((ROOT / "configs").rglob("*.yaml"))
    flags = [["--device", "cpu"], ["--device", "t4"], ["--device", "h200", "recompute=all"]]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:
        runs = [threads.submit(run_line, program, name, words) for name, words in RUNS.items()]
        plans = [threads.submit(plan_line, program, config, each) for config in configs for each in flags]
        return [each.result() for each in runs + plans]


def main():
    words = sys.argv[1:]
    if len(words) not in (1, 3) or len(words) == 3 and words[1] != "--against":
        sys.exit(__doc__)
    lines = lines_of(pathlib.Path(words[0]).resolve())
    print("\n".join(lines))
    if len(words) == 1:
        return 1 if any(" failed: " in line for line in lines) else 0
    before = pathlib.Path(words[2])
    known = lines_of(before.resolve()) if os.access(before, os.X_OK) else before.read_text().splitlines()
    differing = [line for line in lines if line not in known] + [line for line in known if line not in lines]
    print(f"golden: {len(lines)} lines, " + (f"{len(differing)} DIFFER:" if differing else "all as before"), file=sys.stderr)
    print("\n".join(differing), file=sys.stderr)
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
