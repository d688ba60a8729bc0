#!/usr/bin/env python3
"""Bantam beside its peers: the same training step, in turn, in one call.

Each alternation runs `bantam bench step` and the peer programs one after the other on the same machine; a case's time is the median over the
alternations, and its ratio is the best peer's time over Bantam's (above 1: Bantam is faster). The spread is that of the alternations' own ratios.

  benchmarks/race.py --bantam build/bantam separable_cnn:16,128,1024,4096 resnet50:256
  benchmarks/race.py --bantam build/bantam --precision float32 separable_cnn:128,1024
  benchmarks/race.py --bantam build/bantam --cpu --threads 2 separable_cnn:64 mobilenet_v1:8

The peers are benchmarks/peers/torch_step.py and, on a GPU, jax_step.py. A peer that fails is named, and the race goes on without it. With --cpu, pin the call:
`taskset -c 0,1 benchmarks/race.py …`. Needs Python 3.9; PyTorch and JAX only where the peers run.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "peers"))
from torch_vit import NETWORKS as VISION_TRANSFORMERS  # noqa: E402

# Configurations of networks that are trained otherwise than by Adam, or have a file already; any other name is one of the zoo.
CONFIGS = {
    "separable_cnn": "cifar10_separable.yaml",
    "resnet18_cifar": "resnet18_cifar10.yaml",
    "mobilenet_v1": "mobilenet_v1.yaml",
    "resnet50": "resnet50.yaml",
}
PEER_PRECISIONS = {"mixed_float16": ["f16", "bf16"], "mixed_bfloat16": ["bf16"], "float32": ["f32"]}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="+", metavar="MODEL:BATCH[,BATCH…]", help="a network of the zoo")
    parser.add_argument("--bantam", required=True, help="the program")
    parser.add_argument("--configs", default=os.path.join(os.path.dirname(__file__), "..", "configs"))
    parser.add_argument("--peers", default=os.path.join(os.path.dirname(__file__), "peers"), help="folder of torch_step.py and jax_step.py")
    parser.add_argument("--precision", default="mixed_float16", choices=sorted(PEER_PRECISIONS))
    parser.add_argument("--mode", default="captured", help="of bantam bench step")
    parser.add_argument("--torch-mode", default="compile", help="of torch_step.py, or none to leave it out; eager with --cpu")
    parser.add_argument("--no-jax", action="store_true")
    parser.add_argument("--alternations", type=int, default=5)
    parser.add_argument("--drop-slower", type=float, default=0, metavar="R",
                        help="after the first alternation, leave out the peers that took over R times the best peer's time in every batch size of a model")
    parser.add_argument("--seconds", type=float, default=0.5, help="measuring time for each row")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--threads", type=int, default=0, help="on the CPU")
    parser.add_argument("--library-path", default="", help="LD_LIBRARY_PATH of bantam alone")
    parser.add_argument("--json", action="store_true", help="one object a case")
    options = parser.parse_args()
    options.cases = [parse_case(parser, text) for text in options.cases]
    return options


def parse_case(parser, text):
    model, _, batches = text.partition(":")
    if not re.fullmatch(r"\w+", model) or not batches:
        parser.error(f"expected MODEL:BATCH[,BATCH…] with a model of the zoo; got '{text}'")
    return model, [int(batch) for batch in batches.split(",")]


def rows(command, environment=None):
    """The JSON lines that a program prints; where it fails, the end of its stderr is printed."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0:
        print(f"{command[0]} {command[1]}: exit code {done.returncode}: {done.stderr.strip()[-400:]}", file=sys.stderr)
    return [row for row in found if "ms_per_step" in row]


def config_of(options, model):
    """The configuration's path; written anew for a network that has none."""
    if model in CONFIGS:
        return os.path.join(options.configs, CONFIGS[model])
    path = os.path.join(options.scratch, f"{model}.yaml")
    with open(path, "w", encoding="utf-8") as file:
        optimizer = "{adamw: {weight_decay: 0.05}}" if model in VISION_TRANSFORMERS else "adam"
        file.write(f"version: 1\nmodel: {{zoo: {model}}}\ntrain: {{optimizer: {optimizer}}}\n")
    return path


def bantam_rows(options, model, batches, _dropped):
    environment = dict(os.environ)
    if options.library_path:
        environment["LD_LIBRARY_PATH"] = options.library_path
    command = [options.bantam, "bench", "step", config_of(options, model), "--json", "--precision", options.precision,
               "--batch-sizes", ",".join(map(str, batches)), "--seconds", str(options.seconds)]
    if options.cpu:
        command += ["--device", "cpu"] + (["--threads", str(options.threads)] if options.threads else [])
    else:
        command += ["--mode", options.mode]
    return [("bantam", row) for row in rows(command, environment)]


def torch_rows(options, model, batches, dropped):
    """PyTorch's; of a vision transformer timm's and torchvision's."""
    if model not in VISION_TRANSFORMERS:
        return peer_rows(options, model, batches, dropped, "torch", [])
    return [row for name in ("timm", "torchvision") for row in peer_rows(options, model, batches, dropped, name, ["--library", name])]


def peer_rows(options, model, batches, dropped, peer, more):
    precisions = [p for p in PEER_PRECISIONS[options.precision] if f"{peer} {p}" not in dropped]
    if (options.torch_mode == "none" and not options.cpu) or not precisions:
        return []
    command = [sys.executable, os.path.join(options.peers, "torch_step.py"), "--model", model, "--seconds", str(options.seconds)] + more
    command += ["--mode", "eager" if options.cpu else options.torch_mode]
    if options.cpu and options.threads:
        command += ["--threads", str(options.threads)]
    for precision in precisions:
        command += ["--precision", precision]
    for batch in batches:
        command += ["--batch", str(batch)]
    environment = dict(os.environ)
    if options.cpu:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    return [(f"{peer} {row['precision']}", row) for row in rows(command, environment)]


def jax_rows(options, model, batches, dropped):
    precisions = [p for p in PEER_PRECISIONS[options.precision] if f"jax {p}" not in dropped]
    if options.cpu or options.no_jax or not precisions or model in VISION_TRANSFORMERS:
        return []
    command = [sys.executable, os.path.join(options.peers, "jax_step.py"), "--model", model, "--mode", "scan", "--seconds", str(options.seconds)]
    for precision in precisions:
        command += ["--precision", precision]
    for batch in batches:
        command += ["--batch", str(batch)]
    return [(f"jax {row['precision']}", row) for row in rows(command)]


def best_peer(times):
    """Name and median of the fastest peer."""
    return min(((name, statistics.median(ms)) for name, ms in times.items() if name != "bantam"), key=lambda pair: pair[1],
               default=(None, None))


def result(model, batch, times, peaks):
    ours = times.get("bantam", [])
    peer, peer_ms = best_peer(times)
    row = {"model": model, "batch": batch, "alternations": len(ours), "bantam_ms": round(statistics.median(ours), 4) if ours else None,
           "peer": peer, "peer_ms": peer_ms, "ratio": None, "least": None, "most": None, "peak_mib": peaks.get("bantam"),
           "peer_peak_mib": peaks.get(peer), "all_ms": times}
    if ours and peer:
        ratios = [p / b for p, b in zip(times[peer], ours)]
        row |= {"ratio": round(peer_ms / statistics.median(ours), 3), "least": round(min(ratios), 3), "most": round(max(ratios), 3)}
    return row


def slower_peers(times, model, ratio):
    """The peers of `model` that are more than `ratio` times slower than the best one at every batch size so far."""
    cases = [case for (of, _), case in times.items() if of == model]
    names = {name for case in cases for name in case if name != "bantam"}
    near = {name for case in cases for name, ms in case.items() if name != "bantam" and statistics.median(ms) <= ratio * best_peer(case)[1]}
    return names - near


def run_all(options, times, peaks):
    """All alternations, each row told to stderr as it comes; an interrupt ends them, and what was measured counts."""
    for alternation in range(options.alternations):
        for model, batches in options.cases:
            dropped = slower_peers(times, model, options.drop_slower) if options.drop_slower else set()
            for run in (bantam_rows, torch_rows, jax_rows):
                for name, row in run(options, model, batches, dropped):
                    case = (model, row["batch"])
                    times.setdefault(case, {}).setdefault(name, []).append(row["ms_per_step"])
                    peak = row["peak_bytes"] / 2**20 if "peak_bytes" in row else None
                    peaks.setdefault(case, {})[name] = peak
                    print(f"{alternation + 1}/{options.alternations} {model} {row['batch']} {name}: {row['ms_per_step']} ms", file=sys.stderr, flush=True)


def stop(*_):
    raise KeyboardInterrupt


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, stop)
    times, peaks = {}, {}
    with tempfile.TemporaryDirectory() as options.scratch:
        try:
            run_all(options, times, peaks)
        except KeyboardInterrupt:
            print("interrupted: what was measured until then", file=sys.stderr)
    if not options.json:
        print(f"{'model':18} {'batch':>5} {'bantam ms':>10} {'best peer':>11} {'ms':>8} {'ratio':>6} {'(least–most)':>14} {'MiB':>7} {'peer':>7}")
    for (model, batch), case in times.items():
        row = result(model, batch, case, peaks[(model, batch)])
        if options.json:
            print(json.dumps(row))
            continue
        shown = {key: "-" if value is None else value for key, value in row.items()}
        spread = f"({shown['least']}–{shown['most']})"
        mib = [f"{row[key]:.0f}" if row[key] is not None else "-" for key in ("peak_mib", "peer_peak_mib")]
        print(f"{model:18} {batch:>5} {shown['bantam_ms']:>10} {shown['peer']:>11} {shown['peer_ms']:>8} {shown['ratio']:>6} {spread:>14} {mib[0]:>7} {mib[1]:>7}")


if __name__ == "__main__":
    main()
