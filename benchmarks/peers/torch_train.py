#!/usr/bin/env python3
"""Trains ResNet-18 on CIFAR-10 by the recipe of configs/cifar10_resnet18.yaml in PyTorch, and says accuracy and time.

  benchmarks/peers/torch_train.py --data DIR [--epochs 30] [--seeds 3] [--mode compile]

Modes: eager, graph and compile, as torch_step.py has them; the whole step, augmentation included, is one CUDA graph in the latter two. Images
lie on the device as uint8 and are cropped and flipped there. Prints one JSON object a seed: accuracy on the test images, seconds of training,
of evaluation, and of what comes before (compilation, capture). DIR holds data_batch_1.bin … test_batch.bin, each plain or .xz.
"""
import argparse
import json
import lzma
import math
import pathlib
import time

import numpy
import torch
from torch.nn import functional

import torch_step

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PADDING = 4


def read(folder, name, device):
    """Images (n, 3, 32, 32) uint8 and labels (n)."""
    path = pathlib.Path(folder) / f"{name}.bin"
    raw = path.read_bytes() if path.exists() else lzma.open(f"{path}.xz").read()
    rows = torch.from_numpy(numpy.frombuffer(raw, numpy.uint8).reshape(-1, 3073).copy()).to(device)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


def normalized(images):
    """To mean 0 and deviation 1 in each colour. By colour with plain numbers: a graph that is captured copies none from the host."""
    colours = [(images[:, c].float() / 255 - MEAN[c]) / DEVIATION[c] for c in range(3)]
    return torch.stack(colours, dim=1).contiguous(memory_format=torch.channels_last)


def augmented(images, rows, columns, flips):
    """Crops at (row, column) of the padded image, mirrored where flips says so; one gather."""
    base = torch.arange(32, device=images.device)
    y = base.view(1, 32, 1) + (rows - PADDING).view(-1, 1, 1)
    mirrored = torch.where(flips.view(-1, 1), 31 - base, base)
    x = mirrored.view(-1, 1, 32) + (columns - PADDING).view(-1, 1, 1)
    inside = (y >= 0) & (y < 32) & (x >= 0) & (x < 32)
    sample = torch.arange(images.shape[0], device=images.device).view(-1, 1, 1)
    cut = images.permute(0, 2, 3, 1)[sample, y.clamp(0, 31), x.clamp(0, 31)].permute(0, 3, 1, 2)
    return normalized(cut * inside.unsqueeze(1))


def learning_rate(update, updates, options):
    """Linear warm-up, then half a cosine to 0."""
    warmup = options.warmup * updates / options.epochs
    if update < warmup:
        return options.peak * (update + 1) / warmup
    return 0.5 * options.peak * (1 + math.cos(math.pi * (update - warmup) / (updates - warmup)))


class Training:
    def __init__(self, options, seed, data):
        torch.manual_seed(seed)
        self.options, self.device = options, data[0].device.type
        self.images, self.labels = data
        self.model = torch_step.resnet18_cifar().to(self.device, memory_format=torch.channels_last)
        self.rate = torch.tensor(0.0, device=self.device)
        weights = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.SGD(
            [{"params": weights, "weight_decay": 5e-4}, {"params": others, "weight_decay": 0.0}], lr=self.rate, momentum=0.9, nesterov=True,
            fused=self.device == "cuda" or None)
        self.half = torch_step.AUTOCAST[options.precision]
        self.scaler = torch.amp.GradScaler(self.device, enabled=options.precision == "f16")
        self.chosen = torch.zeros(options.batch, dtype=torch.long, device=self.device)
        self.loss_of = torch.compile(self.loss) if options.mode == "compile" else self.loss

    def loss(self, x, y):
        return functional.cross_entropy(self.model(x).float(), y, label_smoothing=self.options.smoothing)

    def step(self):
        batch = (self.options.batch,)
        rows, columns = (torch.randint(2 * PADDING + 1, batch, device=self.device) for _ in range(2))
        flips = torch.rand(batch, device=self.device) < 0.5
        x = augmented(self.images[self.chosen], rows, columns, flips)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=self.half or torch.bfloat16, enabled=self.half is not None):
            loss = self.loss_of(x, self.labels[self.chosen])
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def prepare(self):
        """The step to run; weights and state are as they were."""
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        run = torch_step.captured(self.step) if self.device == "cuda" and self.options.mode != "eager" else self.step
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(state[name])
            for moments in self.optimizer.state.values():
                for value in moments.values():
                    if torch.is_tensor(value):
                        value.zero_()
        return run

    def train(self, run):
        each = len(self.labels) // self.options.batch
        updates = each * self.options.epochs
        for epoch in range(self.options.epochs):
            order = torch.randperm(len(self.labels), device=self.device)
            for i in range(each):
                self.chosen.copy_(order[i * self.options.batch:(i + 1) * self.options.batch])
                self.rate.fill_(learning_rate(epoch * each + i, updates, self.options))
                run()
        self.wait()

    def accuracy(self, images, labels):
        self.model.eval()
        with torch.no_grad(), torch.autocast(self.device, dtype=self.half or torch.bfloat16, enabled=self.half is not None):
            right = sum((self.model(normalized(x)).argmax(1) == y).sum().item() for x, y in zip(images.split(1000), labels.split(1000)))
        return right / len(labels)

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--peak", type=float, default=0.2, help="largest learning rate")
    parser.add_argument("--warmup", type=float, default=5, help="epochs")
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--precision", default="f16", choices=torch_step.AUTOCAST)
    parser.add_argument("--mode", default="compile", choices=["eager", "graph", "compile"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--samples", type=int, default=50000, help="of training, the first")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parts = [read(options.data, f"data_batch_{i}", device) for i in range(1, 6)]
    data = tuple(torch.cat(part)[:options.samples] for part in zip(*parts))
    held_out = tuple(part[:options.samples] for part in read(options.data, "test_batch", device))
    for seed in range(options.seeds):
        times = [time.perf_counter()]
        training = Training(options, seed, data)
        run = training.prepare()
        training.wait()
        times.append(time.perf_counter())
        training.train(run)
        times.append(time.perf_counter())
        accuracy = training.accuracy(*held_out)
        times.append(time.perf_counter())
        before, training_seconds, evaluation = (round(b - a, 3) for a, b in zip(times, times[1:]))
        print(json.dumps({"peer": f"torch {torch.__version__}", "mode": options.mode, "precision": options.precision, "batch": options.batch,
                          "epochs": options.epochs, "seed": seed, "accuracy": round(accuracy, 4), "seconds": training_seconds,
                          "evaluation_seconds": evaluation, "seconds_before": before}), flush=True)


if __name__ == "__main__":
    main()
