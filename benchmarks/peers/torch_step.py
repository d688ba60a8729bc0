#!/usr/bin/env python3
"""One training step of Bantam's networks in PyTorch, timed on one GPU or on the CPU.

A case is a model, a precision, a mode and a batch size; each option may be repeated, and all combinations run. Prints one JSON object a case:
ms_per_step (median of windows), images_per_s, on a GPU peak_bytes and reserved_bytes of PyTorch's allocator.

  benchmarks/peers/torch_step.py --model separable_cnn --batch 16 --batch 128 --precision f16 --mode compile

Modes:       eager    kernels as PyTorch calls them
             graph    the whole step, update included, in one CUDA graph
             compile  torch.compile of model and loss, then the whole step in one CUDA graph (on the CPU without graph)
Precisions:  f32 (no TF32), f16 (autocast, dynamic loss scale), bf16 (autocast)

Images are channels_last and lie on the device; the optimizer is the one of Bantam's configuration for the model. Needs PyTorch 2.5 or later.
"""
import argparse
import gc
import itertools
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

AUTOCAST = {"f32": None, "f16": torch.float16, "bf16": torch.bfloat16}


def conv_norm(channels, filters, kernel=3, stride=1, groups=1, relu=True):
    """Convolution without bias, batch norm, ReLU."""
    layers = [nn.Conv2d(channels, filters, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(filters)]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if relu else []))


def classifier(channels, classes):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Residual(nn.Module):
    """ReLU(body(x) + shortcut(x)); the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, body, channels, filters, stride):
        super().__init__()
        self.body = body
        same = stride == 1 and channels == filters
        self.shortcut = nn.Identity() if same else conv_norm(channels, filters, 1, stride, relu=False)

    def forward(self, x):
        return functional.relu(self.body(x) + self.shortcut(x))


def basic_block(channels, width, stride):
    body = nn.Sequential(conv_norm(channels, width, 3, stride), conv_norm(width, width, relu=False))
    return Residual(body, channels, width, stride), width


def bottleneck_block(channels, width, stride):
    body = nn.Sequential(conv_norm(channels, width, 1), conv_norm(width, width, 3, stride), conv_norm(width, 4 * width, 1, relu=False))
    return Residual(body, channels, 4 * width, stride), 4 * width


def resnet(stem, make_block, depths, classes):
    layers, channels = list(stem), 64
    for stage, depth in enumerate(depths):
        for i in range(depth):
            block, channels = make_block(channels, 64 << stage, 2 if i == 0 and stage > 0 else 1)
            layers.append(block)
    return nn.Sequential(*layers, classifier(channels, classes))


def resnet18_cifar():
    return resnet([conv_norm(3, 64)], basic_block, (2, 2, 2, 2), 10)


def resnet50():
    return resnet([conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], bottleneck_block, (3, 4, 6, 3), 1000)


def mobilenet_v1():
    layers, channels = [conv_norm(3, 32, 3, 2)], 32
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    for width, stride in zip(widths, strides):
        layers += [conv_norm(channels, channels, 3, stride, groups=channels), conv_norm(channels, width, 1)]
        channels = width
    return nn.Sequential(*layers, classifier(channels, 1000))


def separable(channels, filters):
    """Keras' SeparableConv2D: depthwise without bias, pointwise with bias, ReLU."""
    return [nn.Conv2d(channels, channels, 3, groups=channels, bias=False), nn.Conv2d(channels, filters, 1), nn.ReLU(inplace=True)]


def separable_cnn():
    head = [nn.Flatten(), nn.Linear(13 * 13 * 64, 64), nn.ReLU(inplace=True), nn.Linear(64, 10)]
    return nn.Sequential(*separable(3, 32), nn.MaxPool2d(2), *separable(32, 64), *head)


# Model, height and width of its images, classes.
MODELS = {"separable_cnn": (separable_cnn, 32, 10), "resnet18_cifar": (resnet18_cifar, 32, 10),
          "mobilenet_v1": (mobilenet_v1, 224, 1000), "resnet50": (resnet50, 224, 1000)}


def optimizer_of(name, parameters, on_gpu):
    """As in configs/: SGD with Nesterov momentum for resnet18_cifar, Adam for the others. Fused kernels on a GPU."""
    if name == "resnet18_cifar":
        return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4, fused=on_gpu or None)
    return torch.optim.Adam(parameters, lr=1e-3, eps=1e-7, fused=on_gpu or None, capturable=on_gpu)


def make_step(name, batch, precision, mode, device):
    """The step as a function without arguments, not captured."""
    make_model, size, classes = MODELS[name]
    torch.manual_seed(1)
    model = make_model().to(device, memory_format=torch.channels_last)
    images = torch.rand(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), device=device)
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
    step = make_step(name, batch, precision, mode, "cuda" if on_gpu else "cpu")
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
    row = {"peer": f"torch {torch.__version__}", "model": name, "batch": batch, "precision": precision, "mode": mode,
           "ms_per_step": round(1e3 * per_step, 4), "images_per_s": round(batch / per_step)}
    if on_gpu:
        row |= {"peak_bytes": torch.cuda.max_memory_allocated(), "reserved_bytes": torch.cuda.max_memory_reserved()}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=MODELS)
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
