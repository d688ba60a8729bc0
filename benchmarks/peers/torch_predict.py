#!/usr/bin/env python3
"""Inference of Bantam's networks in PyTorch, timed on one GPU or on the CPU.

  benchmarks/peers/torch_predict.py --model resnet50 --precision f16 --mode compile --batch 1 --batch 32 --batch 256

Prints one JSON object a case: ms (median of calls, from numpy arrays to numpy arrays, through page-locked memory on a GPU), resident_ms (without the
copies between host and GPU), images_per_s.

Modes:       eager    kernels as PyTorch calls them
             graph    the pass in one CUDA graph
             compile  torch.compile, with batch norms folded (freezing), then the pass in one CUDA graph (on the CPU without graph)
Precisions:  f32 (no TF32), f16, bf16: weights and activations in that type

Images are channels_last; weights are random. Needs PyTorch 2.5 or later.
"""
import argparse
import itertools
import json

import numpy
import torch
import torch._inductor.config

from timing import median_ms
from torch_zoo import NETWORKS, make

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def make_pass(name, batch, precision, mode, device):
    """The pass as a function of nothing, on an input that lies on the device, and that input."""
    _, size, _ = NETWORKS[name]
    torch.manual_seed(1)
    model = make(name).eval().to(device, TYPES[precision], memory_format=torch.channels_last)
    images = torch.zeros(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)

    def forward(x):
        return model(x.to(TYPES[precision])).float()

    function = torch.compile(forward) if mode == "compile" else forward
    with torch.inference_mode() if mode != "compile" else torch.no_grad():
        if device == "cpu" or mode == "eager":
            return lambda: function(images), images
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(4):
                function(images)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = function(images)

    def replay():
        graph.replay()
        return result

    return replay, images


def measure(name, precision, mode, batch, options):
    on_gpu = torch.cuda.is_available()
    run, images = make_pass(name, batch, precision, mode, "cuda" if on_gpu else "cpu")
    host = torch.from_numpy(numpy.random.default_rng(1).random(tuple(images.shape), dtype=numpy.float32)).to(memory_format=torch.channels_last)
    staging = host.pin_memory() if on_gpu else host

    def call():
        if on_gpu:
            staging.copy_(host)
        images.copy_(staging, non_blocking=True)
        return run().cpu().numpy()

    def resident():
        run()
        torch.cuda.synchronize()

    with torch.no_grad():
        ms = median_ms(call, options.seconds)
        row = {"peer": f"torch {torch.__version__}", "model": name, "batch": batch, "precision": precision, "mode": mode, "ms": round(ms, 4),
               "images_per_s": round(1e3 * batch / ms, 1)}
        if on_gpu:
            row["resident_ms"] = round(median_ms(resident, options.seconds), 4)
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=NETWORKS)
    parser.add_argument("--precision", action="append", choices=TYPES)
    parser.add_argument("--mode", action="append", choices=["eager", "graph", "compile"])
    parser.add_argument("--batch", action="append", type=int)
    parser.add_argument("--seconds", type=float, default=1.5, help="measuring time a case")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: PyTorch's choice")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    torch._inductor.config.freezing = True
    if options.threads:
        torch.set_num_threads(options.threads)
    cases = itertools.product(options.model or ["mobilenet_v1"], options.precision or ["f32"], options.mode or ["eager"], options.batch or [1])
    for name, precision, mode, batch in cases:
        try:
            row = measure(name, precision, mode, batch, options)
        except torch.OutOfMemoryError as error:
            row = {"model": name, "batch": batch, "precision": precision, "mode": mode, "error": str(error)}
        print(json.dumps(row), flush=True)
        torch.compiler.reset()


if __name__ == "__main__":
    main()
