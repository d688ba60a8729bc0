#!/usr/bin/env python3
"""Predicted beside measured: a step's time, and what the recompute that a budget asks for adds to it.

For each case `bantam plan` predicts the step (engine/plan/kernel_cost.cpp holds the fitted constants) and `bantam bench step` measures it. For each
share of the planned peak a budget is set, the policy is chosen, and what it adds is predicted and measured in one call.

  benchmarks/predicted.py --bantam build/bantam
  benchmarks/predicted.py --bantam build/bantam --device cuda:0 resnet50:256:0.55,0.35 mobilenet_v1:256:0.6

Exits with 1 where what a budget adds is predicted further off than --points. Needs Python 3.9 and the device.
"""
import argparse
import json
import os
import subprocess
import sys

CONFIGS = {
    "separable_cnn": "cifar10_separable.yaml",
    "resnet18_cifar": "resnet18_cifar10.yaml",
    "mobilenet_v1": "mobilenet_v1.yaml",
    "resnet50": "resnet50.yaml",
}
DOES_NOT_FIT = 4  # bantam's exit code
CASES = ["resnet50:256:0.55,0.35", "mobilenet_v1:256:0.6", "resnet18_cifar:512:0.6", "separable_cnn:16", "separable_cnn:128", "separable_cnn:1024"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="MODEL:BATCH[:SHARE[,SHARE…]]", default=CASES, help=", ".join(CONFIGS))
    parser.add_argument("--bantam", required=True, help="the program")
    parser.add_argument("--configs", default=os.path.join(os.path.dirname(__file__), "..", "configs"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--precision", default="mixed_float16")
    parser.add_argument("--points", type=float, default=3.0, help="percentage points that a budget's prediction may be off")
    return parser.parse_args()


def rows(args, verb, config, batch, *more):
    """The JSON objects that `bantam VERB` prints for one configuration."""
    command = [args.bantam, *verb, os.path.join(args.configs, config), "--device", args.device, "--precision", args.precision,
               "--batch-sizes", batch, "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == DOES_NOT_FIT:
        return []
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def run_case(args, case):
    """Prints a case's lines; returns how far off its budgets were predicted, in percentage points."""
    model, batch, *shares = case.split(":")
    plan = rows(args, ["plan"], CONFIGS[model], batch, "--recompute", "none")[0]
    measured = rows(args, ["bench", "step"], CONFIGS[model], batch, "--recompute", "none")[0]["ms_per_step"]
    predicted = plan["predicted_ms"]
    print(f"{model} {batch}: {predicted:.4g} ms predicted, {measured:.4g} measured ({100 * (predicted / measured - 1):+.1f} %)", flush=True)
    off = []
    for share in shares[0].split(",") if shares else []:
        budget = int(float(share) * plan["peak_bytes"])
        found = rows(args, ["bench", "step"], CONFIGS[model], batch, "--recompute", "auto", f"memory.budget={budget}")
        row = found[0] if found else {}
        if "measured_extra_percent" not in row:
            print(f"  {share} x {plan['peak_bytes'] / 2**20:,.0f} MiB: no policy fits, or none is needed")
            continue
        extra, real = row["predicted_extra_percent"], row["measured_extra_percent"]
        off.append(abs(extra - real))
        print(f"  {share} x {plan['peak_bytes'] / 2**20:,.0f} MiB: {extra:+.1f} % predicted, {real:+.1f} % measured", flush=True)
    return off


def main():
    args = arguments()
    off = [points for case in args.cases for points in run_case(args, case)]
    if off:
        print(f"budgets: at most {max(off):.1f} percentage points off, {args.points} allowed")
    sys.exit(1 if off and max(off) > args.points else 0)


if __name__ == "__main__":
    main()
