#!/usr/bin/env python3
"""Inference of Bantam's networks in onnxruntime, timed on the CPU or a GPU.

  benchmarks/peers/onnxruntime_predict.py --model mobilenet_v1 --batch 1 --batch 32 --threads 2
  benchmarks/peers/onnxruntime_predict.py --model resnet50 --batch 1 --threads 2 --bantam build/bantam --rounds 7

The network is PyTorch's (torch_zoo.py), in evaluation, with random weights, exported to ONNX; onnxruntime folds its batch norms and fuses as it does
by default (all optimisations). Prints one JSON object a case: ms (median of calls, from numpy to numpy), images_per_s. With --bantam, the program of
Bantam runs in turn with it, so that a busy machine is busy for both: one object more has the median of the rounds' ratios of Bantam's speed to
onnxruntime's. Needs torch, onnx and onnxruntime.
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import tempfile

import numpy
import onnxruntime
import torch

from timing import median_ms
from torch_zoo import NETWORKS, make

CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs")


def exported(name, folder):
    """The ONNX file of a network, its batch size free."""
    _, size, _ = NETWORKS[name]
    torch.manual_seed(1)
    model = make(name).eval()
    path = os.path.join(folder, name + ".onnx")
    torch.onnx.export(model, torch.rand(1, 3, size, size), path, opset_version=17, input_names=["images"], output_names=["logits"],
                      dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}}, dynamo=False)
    return path


def session_of(path, threads, provider):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=[provider])


def bantam_ms(options, name, batch):
    """Milliseconds of a call of Bantam's Predictor, from its own program."""
    config = os.path.join(CONFIGS, name + ".yaml")
    command = [options.bantam, "bench", "predict", config, "--batch-sizes", str(batch), "--precision", "float32", "--device", "cpu",
               "--threads", str(options.threads), "--seconds", str(options.seconds), "--json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=NETWORKS)
    parser.add_argument("--batch", action="append", type=int)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.5, help="measuring time a case and round")
    parser.add_argument("--provider", default="CPUExecutionProvider")
    parser.add_argument("--bantam", help="Bantam's program: it and onnxruntime run in turn")
    parser.add_argument("--rounds", type=int, default=5, help="with --bantam")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, batch in itertools.product(options.model or ["mobilenet_v1"], options.batch or [1]):
            session = session_of(exported(name, folder), options.threads, options.provider)
            _, size, _ = NETWORKS[name]
            images = numpy.random.default_rng(1).random((batch, 3, size, size), dtype=numpy.float32)
            theirs, ours = [], []
            for _ in range(options.rounds if options.bantam else 1):
                theirs.append(median_ms(lambda: session.run(None, {"images": images}), options.seconds))
                if options.bantam:
                    ours.append(bantam_ms(options, name, batch))
            row = {"peer": f"onnxruntime {onnxruntime.__version__}", "model": name, "batch": batch, "threads": options.threads,
                   "ms": round(statistics.median(theirs), 4), "images_per_s": round(1e3 * batch / statistics.median(theirs), 1)}
            print(json.dumps(row), flush=True)
            if options.bantam:
                ratios = sorted(peer / own for peer, own in zip(theirs, ours))
                print(json.dumps({"model": name, "batch": batch, "bantam_ms": round(statistics.median(ours), 4),
                                  "ratio": round(statistics.median(ratios), 3), "ratios": [round(ratio, 3) for ratio in ratios]}), flush=True)


if __name__ == "__main__":
    main()
