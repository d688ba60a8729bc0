#!/usr/bin/env python3
"""One training step of Bantam's networks in PyTorch, timed on one GPU or on the CPU.

A case is a model, a precision, a mode and a batch size; each option may be repeated, and all combinations run. Prints one JSON object a case:
ms_per_step (median of windows), images_per_s, on a GPU peak_bytes and reserved_bytes of PyTorch's allocator.

  benchmarks/peers/torch_step.py --model separable_cnn --batch 16 --batch 128 --precision f16 --mode compile

Modes:       eager    kernels as PyTorch calls them
             graph    the whole step, update included, in one CUDA graph
             compile  torch.compile of model and loss, then the whole step in one CUDA graph (on the CPU without graph)
Precisions:  f32 (no TF32), f16 (autocast, dynamic loss scale), bf16 (autocast)

Images are channels_last and lie on the device; the optimizer is the one of Bantam's configuration for the model. With --library the network is the one
of timm or torchvision, where they have vision transformers. Needs PyTorch 2.5 or later.
"""
import argparse
import gc
import itertools
import json
import statistics
import time

import torch
from torch.nn import functional

import torch_vit
import torch_zoo

AUTOCAST = {"f32": None, "f16": torch.float16, "bf16": torch.bfloat16}


def optimizer_of(name, parameters, on_gpu):
    """As in configs/: SGD with Nesterov momentum for resnet18_cifar, AdamW for vision transformers, Adam for the others. Fused kernels on a GPU."""
    if name in torch_vit.NETWORKS:
        return torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05, fused=on_gpu or None, capturable=on_gpu)
    if name == "resnet18_cifar":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=on_gpu or None)
    return torch.optim.Adam(parameters, lr=1e-3, eps=1e-7, fused=on_gpu or None, capturable=on_gpu)


def make_model(name, library):
    """The model, the size of its images and its classes."""
    if library:
        return torch_vit.make(name, library), torch_vit.NETWORKS[name][0], torch_vit.CLASSES
    _, size, classes = torch_zoo.NETWORKS[name]
    return torch_zoo.make(name), size, classes


def make_step(name, batch, precision, mode, device, library=""):
    """The step as a function without arguments, not captured."""
    torch.manual_seed(1)
    model, size, classes = make_model(name, library)
    model = model.to(device, memory_format=torch.channels_last)
    images = torch.rand(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch, size, size) if name == "unet" else (batch,), device=device)
    optimizer = optimizer_of(name, model.parameters(), device == "cuda")
    scaler = torch.amp.GradScaler(device, enabled=precision == "f16")
    half = AUTOCAST[precision]

    def loss_of(x, y):
        return functional.cross_entropy(model(x).float(), y)

    compute_loss = torch.compile(loss_of) if mode == "compile" else loss_of

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=half or torch.bfloat16, enabled=half is not None):
            loss = compute_loss(images, labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def captured(step):
    """The step as one CUDA graph, after warm-up steps on a stream of their own, as PyTorch's notes on graphs ask for."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(4):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def seconds_per_step(run, wait, seconds):
    """Median over windows of at least 50 ms each, for `seconds` in all."""
    def window(steps):
        begin = time.perf_counter()
        for _ in range(steps):
            run()
        wait()
        return time.perf_counter() - begin

    steps = 1
    while (last := window(steps)) < 0.05:
        steps = max(2 * steps, int(steps * 0.06 / max(last, 1e-6)))
    end, windows = time.perf_counter() + seconds, []
    while len(windows) < 3 or time.perf_counter() < end:
        windows.append(window(steps) / steps)
    return statistics.median(windows)


def measure(name, precision, mode, batch, options):
    on_gpu = torch.cuda.is_available()
    step = make_step(name, batch, precision, mode, "cuda" if on_gpu else "cpu", options.library)
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    if on_gpu and mode != "eager":
        run = captured(step)
    else:
        for _ in range(4):
            step()
        run = step
        if on_gpu:
            wait()
            torch.cuda.reset_peak_memory_stats()
    per_step = seconds_per_step(run, wait, options.seconds)
    row = {"peer": f"{options.library or 'torch'} {torch.__version__}", "model": name, "batch": batch, "precision": precision, "mode": mode,
           "ms_per_step": round(1e3 * per_step, 4), "images_per_s": round(batch / per_step)}
    if on_gpu:
        row |= {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=sorted(torch_zoo.NETWORKS.keys() | torch_vit.NETWORKS))
    parser.add_argument("--library", choices=["timm", "torchvision"], default="", help="whose model it is; without it that of torch_zoo.py")
    parser.add_argument("--precision", action="append", choices=AUTOCAST)
    parser.add_argument("--mode", action="append", choices=["eager", "graph", "compile"])
    parser.add_argument("--batch", action="append", type=int)
    parser.add_argument("--seconds", type=float, default=1.5, help="measuring time a case")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU; 0: PyTorch's choice")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    if options.threads:
        torch.set_num_threads(options.threads)
    cases = itertools.product(options.model or ["separable_cnn"], options.precision or ["f32"], options.mode or ["eager"], options.batch or [16])
    for name, precision, mode, batch in cases:
        try:
            row = measure(name, precision, mode, batch, options)
        except torch.OutOfMemoryError as error:
            row = {"model": name, "batch": batch, "precision": precision, "mode": mode, "error": str(error)}
        print(json.dumps(row), flush=True)
        torch.compiler.reset()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
