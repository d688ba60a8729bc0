#!/usr/bin/env python3
"""Trains ResNet-18 on CIFAR-10 by the recipe of configs/cifar10_resnet18.yaml in PyTorch, and says accuracy and time.

  benchmarks/peers/torch_train.py --data DIR [--epochs 30] [--seeds 3] [--mode compile]

Convolutions and the classifier follow Muon and the rest AdamW, whose rate is --rest times the schedule; --precision bf16 or f32 then, since the
gradient scaler cannot skip the update of an optimizer that PyTorch does not bring within a captured step. --optimizer sgd takes momentum alone.

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
import torch_zoo

MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
PADDING, ERASED = 4, 8
MEAN_BYTES = (125, 123, 114)


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


def augmented(images, rows, columns, flips, erased):
    """Crops at (row, column) of the padded image, mirrored where flips says so; one gather. A square at `erased` (rows, columns) gets the mean."""
    base = torch.arange(32, device=images.device)
    y = base.view(1, 32, 1) + (rows - PADDING).view(-1, 1, 1)
    mirrored = torch.where(flips.view(-1, 1), 31 - base, base)
    x = mirrored.view(-1, 1, 32) + (columns - PADDING).view(-1, 1, 1)
    inside = (y >= 0) & (y < 32) & (x >= 0) & (x < 32)
    sample = torch.arange(images.shape[0], device=images.device).view(-1, 1, 1)
    cut = images.permute(0, 2, 3, 1)[sample, y.clamp(0, 31), x.clamp(0, 31)].permute(0, 3, 1, 2)
    cut = cut * inside.unsqueeze(1)
    in_rows, in_columns = ((base >= start.view(-1, 1)) & (base < start.view(-1, 1) + ERASED) for start in erased)
    square = in_rows.unsqueeze(2) & in_columns.unsqueeze(1)
    for colour, mean in enumerate(MEAN_BYTES):
        cut[:, colour].masked_fill_(square, mean)
    return normalized(cut)


def learning_rate(update, updates, options):
    """Linear warm-up, then half a cosine to 0."""
    warmup = options.warmup * updates / options.epochs
    if update < warmup:
        return options.peak * (update + 1) / warmup
    return 0.5 * options.peak * (1 + math.cos(math.pi * (update - warmup) / (updates - warmup)))


def orthogonalized(matrix):
    """Nearly the orthogonal factor of a matrix, by five Newton-Schulz iterations in bfloat16 (Jordan 2024), as torch.optim.Muon computes it."""
    x = matrix.bfloat16()
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x if wide else x.T


class Muon(torch.optim.Optimizer):
    """torch.optim.Muon takes matrices alone: this one takes convolutions too, as matrices of a row an output channel."""

    def __init__(self, weights, lr, momentum, weight_decay):
        super().__init__(weights, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            rate, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
            weights = [w for w in group["params"] if w.grad is not None]
            for weight in weights:
                if "velocity" not in self.state[weight]:
                    self.state[weight]["velocity"] = torch.zeros_like(weight)
            gradients = [w.grad for w in weights]
            velocities = [self.state[w]["velocity"] for w in weights]
            torch._foreach_mul_(velocities, momentum)
            torch._foreach_add_(velocities, gradients)
            ahead = torch._foreach_add(gradients, velocities, alpha=momentum)
            torch._foreach_mul_(weights, 1 - rate * decay)
            for weight, direction in zip(weights, ahead):
                rows = len(weight)
                matrix = orthogonalized(direction.reshape(rows, -1))
                longer = max(1, rows / matrix.shape[1]) ** 0.5
                weight.sub_((matrix.reshape(direction.shape) * longer) * rate)


class Training:
    def __init__(self, options, seed, data):
        torch.manual_seed(seed)
        self.options, self.device = options, data[0].device.type
        self.images, self.labels = data
        self.model = torch_zoo.make("resnet18_cifar").to(self.device, memory_format=torch.channels_last)
        self.rate = torch.tensor(0.0, device=self.device)
        weights = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        fused = self.device == "cuda" or None
        if options.optimizer == "muon":
            self.rest_rate = torch.tensor(0.0, device=self.device)
            self.optimizers = [Muon(weights, self.rate, options.momentum, options.weight_decay),
                               torch.optim.AdamW(others, lr=self.rest_rate, weight_decay=0.0, fused=fused, capturable=self.device == "cuda")]
        else:
            groups = [{"params": weights, "weight_decay": options.weight_decay}, {"params": others, "weight_decay": 0.0}]
            self.optimizers = [torch.optim.SGD(groups, lr=self.rate, momentum=options.momentum, nesterov=True, fused=fused)]
        self.half = torch_step.AUTOCAST[options.precision]
        self.scaler = torch.amp.GradScaler(self.device, enabled=options.precision == "f16" and options.optimizer == "sgd")
        self.chosen = torch.zeros(options.batch, dtype=torch.long, device=self.device)
        self.loss_of = torch.compile(self.loss) if options.mode == "compile" else self.loss

    def loss(self, x, y):
        return functional.cross_entropy(self.model(x).float(), y, label_smoothing=self.options.smoothing)

    def step(self):
        batch = (self.options.batch,)
        rows, columns = (torch.randint(2 * PADDING + 1, batch, device=self.device) for _ in range(2))
        flips = torch.rand(batch, device=self.device) < 0.5
        erased = [torch.randint(32 - ERASED + 1, batch, device=self.device) for _ in range(2)]
        x = augmented(self.images[self.chosen], rows, columns, flips, erased)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device, dtype=self.half or torch.bfloat16, enabled=self.half is not None):
            loss = self.loss_of(x, self.labels[self.chosen])
        self.scaler.scale(loss).backward()
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()

    def prepare(self):
        """The step to run; weights and state are as they were."""
        state = {name: value.clone() for name, value in self.model.state_dict().items()}
        run = torch_step.captured(self.step) if self.device == "cuda" and self.options.mode != "eager" else self.step
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(state[name])
            for moments in [state for optimizer in self.optimizers for state in optimizer.state.values()]:
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
                rate = learning_rate(epoch * each + i, updates, self.options)
                self.rate.fill_(rate)
                if self.options.optimizer == "muon":
                    self.rest_rate.fill_(rate / self.options.peak * self.options.rest)
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
    parser.add_argument("--peak", type=float, default=0.1, help="largest learning rate")
    parser.add_argument("--warmup", type=float, default=2, help="epochs")
    parser.add_argument("--optimizer", default="muon", choices=["sgd", "muon"])
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=0.02, help="of weights alone")
    parser.add_argument("--rest", type=float, default=2e-3, help="AdamW's largest rate with muon")
    parser.add_argument("--smoothing", type=float, default=0.1)
    parser.add_argument("--precision", default="bf16", choices=torch_step.AUTOCAST)
    parser.add_argument("--mode", default="compile", choices=["eager", "graph", "compile"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--samples", type=int, default=50000, help="of training, the first")
    options = parser.parse_args()
    if options.optimizer == "muon" and options.precision == "f16":
        parser.error("muon runs with --precision bf16 or f32")
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
        print(json.dumps({"peer": f"torch {torch.__version__}", "mode": options.mode, "precision": options.precision, "optimizer": options.optimizer, "batch": options.batch,
                          "epochs": options.epochs, "seed": seed, "accuracy": round(accuracy, 4), "seconds": training_seconds,
                          "evaluation_seconds": evaluation, "seconds_before": before}), flush=True)


if __name__ == "__main__":
    main()
