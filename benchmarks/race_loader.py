#!/usr/bin/env python3
"""Bantam's training loader beside PyTorch's DataLoader with torchvision on the same folder of photographs and cores, in turn, in one call.

  benchmarks/race_loader.py DIR --bantam build/bantam [--cores 2,8,16] [--alternations 3] [--seconds 5] [--gpu]

DIR has class folders, or train/ and val/ with those (benchmarks/make_jpegs.py writes one). Each alternation runs `bantam bench data` (cache off,
random_resized_crop 224, flip, normalise, float32 batches in host memory) and benchmarks/peers/torch_loader.py with both decoders, all pinned to
the same cores. A line a count of cores: medians over the alternations, and the ratio of Bantam's to the faster peer's with its least and most.
--gpu adds batches that go to cuda:0, decoded by the CPU and by nvJPEG (data.decode).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

CONFIG = """
device: cpu
data:
  format: image_folder
  path: {folder}
  pipeline:
    - cache: off
    - shuffle
    - random_resized_crop: {{size: 224}}
    - random_flip
    - normalize: {{scale: 0.00392156862745098, mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}
    - batch: {{size: {batch}, drop_last: true}}
    - prefetch
model:
  input: [224, 224, 3]
  layers: [global_average_pool, dense: {{units: 10}}]
"""


def objects(command, cores):
    """Runs the command on the first `cores` processors of this process; its output, a JSON object a line."""
    chosen = sorted(os.sched_getaffinity(0))[:cores]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, check=False, preexec_fn=lambda: os.sched_setaffinity(0, chosen))
    if done.returncode != 0:
        raise SystemExit(f"{command[0]}: exit code {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def alternation(options, config, cores):
    """Images a second by program."""
    common = ["--seconds", str(options.seconds), "--batch-size", str(options.batch_size)]
    bench = [options.bantam, "bench", "data", config, "--json", "--threads", str(cores), *common]
    ours = {"bantam": objects(bench, cores)[0]["images_per_s"]}
    for decoder in ("cpu", "gpu") if options.gpu else ():
        ours[f"to the GPU, decode: {decoder}"] = objects([*bench, "device=cuda:0", f"data.decode={decoder}"], cores)[0]["images_per_s"]
    peer = str(pathlib.Path(__file__).parent / "peers" / "torch_loader.py")
    rates = {entry["decoder"]: entry["images_per_s"] for entry in objects([options.python, peer, options.folder, "--cores", str(cores), *common], cores)}
    return {**ours, **rates}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--bantam", required=True, help="the program")
    parser.add_argument("--python", default=sys.executable, help="with PyTorch and torchvision")
    parser.add_argument("--cores", default=str(len(os.sched_getaffinity(0))), help="how many, or several counts: 2,8,16")
    parser.add_argument("--alternations", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--gpu", action="store_true", help="also batches on cuda:0, decoded by the CPU and by nvJPEG")
    parser.add_argument("--json", action="store_true", help="one object a line")
    options = parser.parse_args()
    options.bantam = os.path.abspath(options.bantam)
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "race.yaml")
        pathlib.Path(config).write_text(CONFIG.format(folder=json.dumps(os.path.abspath(options.folder)), batch=options.batch_size), encoding="utf-8")
        for cores in [int(text) for text in options.cores.split(",")]:
            rows = [alternation(options, config, cores) for _ in range(options.alternations)]
            ratios = [row["bantam"] / max(row["pillow"], row["torchvision"]) for row in rows]
            medians = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
            if options.json:
                print(json.dumps({"cores": cores, **medians, "ratio": statistics.median(ratios), "ratios": ratios}), flush=True)
            else:
                rates = "  ".join(f"{name} {rate:8.0f}" for name, rate in medians.items())
                print(f"{cores:2} cores  {rates} images/s  ratio {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


if __name__ == "__main__":
    main()
