#!/usr/bin/env python3
"""Trains CIFAR-10 to 94 % in 243 updates of 1,536 images in PyTorch: airbench's network with Hive's changes, the peer of configs/cifar10_94.yaml.

  benchmarks/peers/torch_cifar_94.py --data DIR [--runs 5] [--compile [MODE]] [--seed 0] [--updates 243]
  benchmarks/peers/torch_cifar_94.py --check
  benchmarks/peers/torch_cifar_94.py --data DIR --device cpu --images 512 --updates 4

Prints one JSON object a run, with test accuracy and seconds, then one with their means and deviations. Seconds count whitening, training with its
augmentation and the final evaluation with its views; not loading, bytes to float16, compilation, or one whole run on random images before the first.
DIR holds data_batch_1.bin … test_batch.bin, each plain or .xz. Weights, statistics and activations are float16 on a GPU, float32 on a CPU.

Single ingredients can be changed: --no-jitter, --head muon, --freeze-whiten-bias, --normalize every:N, --no-views, --gradient-norm off or momentum.
--check tests whitening, flips, crops, views and the Newton-Schulz iteration on random images, and prints groups of parameters with their rates.
"""
import argparse
import json
import math
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

import torch_train

EPSILON, WHITENED_IMAGES, WHITENED_EPSILON = 1e-12, 960, 5e-4
RATE, HEAD_RATE, MUON_RATE = 0.0573, 0.5415, 0.205  # of the loss summed over the batch
MOMENTUM, MUON_MOMENTUM, DECAY = 0.825, 0.655, 1.0418e-6  # decay: a sample of a batch
SMOOTHING, BRIGHTNESS, CONTRAST = 0.09, 0.1399, 0.1308
BIAS_EPOCHS, UNCERTAIN = 0.19, 0.25
COEFFICIENTS = (3.4576, -4.7391, 2.0843)
FIRST_NORM, LAST_NORM = 0.5012, 0.0786


# ---- network

class Group(nn.Module):
    """conv, pool, norm, SiLU; conv, norm, SiLU."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs, eps=EPSILON, momentum=1 - 0.5566)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs, eps=EPSILON, momentum=1 - 0.5566)

    def forward(self, x):  # (batch, inputs, h, w) to (batch, outputs, h / 2, w / 2)
        x = functional.silu(self.norm1(functional.max_pool2d(self.conv1(x), 2)))
        return functional.silu(self.norm2(self.conv2(x)))


class Network(nn.Module):
    def __init__(self, logits_scale):
        super().__init__()
        self.logits_scale = logits_scale
        self.whiten = nn.Conv2d(3, 24, 2)
        self.groups = nn.Sequential(Group(24, 64), Group(64, 256), Group(256, 256))
        self.head = nn.Linear(256, 10, bias=False)
        self.whiten.weight.requires_grad_(False)
        for norm in self.modules_of(nn.BatchNorm2d):
            norm.weight.requires_grad_(False)

    def modules_of(self, kind):
        return [module for module in self.modules() if isinstance(module, kind)]

    def forward(self, x, whiten_bias_trains=False):  # (batch, 3, 32, 32) to (batch, 10)
        bias = self.whiten.bias if whiten_bias_trains else self.whiten.bias.detach()
        x = functional.gelu(functional.conv2d(x, self.whiten.weight, bias))
        x = functional.max_pool2d(self.groups(x), 3).flatten(1)
        return self.head(x * self.logits_scale)

    @torch.no_grad()
    def reset(self, head_deviation):
        """First values, in place: compiled graphs keep their addresses. Filters are identities for the first input channels, uniform after."""
        for group in self.groups:
            for conv in (group.conv1, group.conv2):
                outputs, inputs = conv.weight.shape[:2]
                conv.weight.uniform_(-1, 1).div_(math.sqrt(9 * inputs))
                conv.weight[:inputs] = 0
                conv.weight[:inputs, :, 1, 1] = torch.eye(min(inputs, outputs), inputs, device=conv.weight.device, dtype=conv.weight.dtype)
        for norm in self.modules_of(nn.BatchNorm2d):
            norm.reset_parameters()
        self.whiten.bias.zero_()
        first = torch.empty(self.head.weight.shape, device=self.head.weight.device).uniform_(-1, 1)
        self.head.weight.copy_(first * (head_deviation / first.std()))


def patches_of(images):
    """All patches of 2 x 2, (n * 31 * 31, 12) in float64: in float32 the smallest eigenvalues may come out negative."""
    return images.double().unfold(2, 2, 1).unfold(3, 2, 1).permute(0, 2, 3, 1, 4, 5).reshape(-1, 12)


def whitening(images):
    """Filters (24, 3, 2, 2) whose outputs on these images have covariance I, but for the epsilon; then their negatives."""
    patches = patches_of(images)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + WHITENED_EPSILON).sqrt()).T.flip(0).reshape(12, 3, 2, 2)
    return torch.cat([filters, -filters])


# ---- images

def normalized(images):
    """Of (n, 3, 32, 32) in [0, 1], to mean 0 and deviation 1 in each colour."""
    mean, deviation = (torch.tensor(v, device=images.device, dtype=images.dtype).view(3, 1, 1) for v in (torch_train.MEAN, torch_train.DEVIATION))
    return (images - mean) / deviation


def padded_once(images):
    """Each image flipped or not, once for all epochs, and padded by 2 with its reflection: (n, 3, 36, 36)."""
    flips = torch.rand(len(images), 1, 1, 1, device=images.device) < 0.5
    return functional.pad(torch.where(flips, images.flip(3), images), (2, 2, 2, 2), mode="reflect")


def augmented(padded, chosen, epoch, jitter):
    """The chosen images of an epoch: a crop of each, all flipped in odd epochs, then brightness and contrast an image."""
    rows, columns = (torch.randint(5, chosen.shape, device=padded.device) for _ in range(2))
    images = padded.unfold(2, 32, 1).unfold(3, 32, 1)[chosen, :, rows, columns]  # of (n, 3, 5, 5, 32, 32)
    if epoch % 2:
        images = images.flip(3)
    if jitter:
        brightness, contrast = (torch.rand(2, len(chosen), 1, 1, 1, device=padded.device) * 2 - 1).to(padded.dtype)
        images = (images + brightness * BRIGHTNESS) * (1 + contrast * CONTRAST)
    return images.contiguous(memory_format=torch.channels_last)


def batches(images, labels, options):
    """(images, labels) of each update. What does not fill a batch at the end of an epoch is dropped."""
    padded, each = padded_once(images), len(labels) // options.batch
    for epoch in range(math.ceil(options.updates / each)):
        count = min(each, options.updates - epoch * each) * options.batch
        chosen = torch.randperm(len(labels), device=images.device)[:count]
        yield from zip(augmented(padded, chosen, epoch, options.jitter).split(options.batch), labels[chosen].split(options.batch))


def other_views(images):
    """Five views beside the image itself: its mirror image; two crops of the image padded by 1, and their mirror images."""
    padded = functional.pad(images, (1, 1, 1, 1), mode="reflect")
    crops = [padded[:, :, :32, :32], padded[:, :, 2:, 2:]]
    return [images.flip(3)] + crops + [crop.flip(3) for crop in crops]


# ---- optimizers

def matrix_of(weight):
    """(outputs, inputs * 9), a view of a channels_last filter."""
    return weight.permute(0, 2, 3, 1).flatten(1) if weight.dim() == 4 else weight


def norms_of(matrices):
    return torch.linalg.vector_norm(matrices, dim=(1, 2), keepdim=True, dtype=torch.float32) + 1e-7


def orthogonalized(matrices, first_norm):
    """Nearly the orthogonal factors of matrices (count, rows, columns), by three Newton-Schulz iterations; scaled to `first_norm` (or None), then 1."""
    a, b, c = COEFFICIENTS
    if first_norm is not None:
        matrices = (matrices * (first_norm / norms_of(matrices))).to(matrices.dtype)
    x = (matrices / norms_of(matrices)).to(torch.float16 if matrices.is_cuda else matrices.dtype)
    tall = x.shape[1] > x.shape[2]
    x = x.mT.contiguous() if tall else x
    for _ in range(3):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon:
    """Momentum, then an orthogonal direction, of all weights of one shape at once. Weights are scaled to norm sqrt(outputs) now and then."""

    def __init__(self, weights, options, decay, orthogonalize):
        self.options, self.decay, self.orthogonalize, self.all = options, decay, orthogonalize, weights
        self.norms = [math.sqrt(len(w)) for w in weights]
        self.shapes = [[w for w in weights if w.shape == shape] for shape in dict.fromkeys(w.shape for w in weights)]
        self.velocities = [torch.zeros_like(torch.stack([matrix_of(w) for w in same])) for same in self.shapes]
        span = (LAST_NORM - FIRST_NORM) / options.updates
        self.gradient_norms = torch.tensor([FIRST_NORM + span * t for t in range(options.updates)], device=weights[0].device)

    def normalizes(self, update):
        if self.options.normalize == "schedule":
            return update % (2 + 15 * update // self.options.updates) == 0
        return update % int(self.options.normalize.split(":")[1]) == 0

    @torch.no_grad()
    def step(self, update):
        rate = MUON_RATE * (1 - update / self.options.updates)
        norm = self.gradient_norms[update]
        if self.normalizes(update):
            found = torch._foreach_norm(self.all, dtype=torch.float32)
            torch._foreach_mul_(self.all, [(wanted / n).to(w.dtype) for wanted, n, w in zip(self.norms, found, self.all)])
        for same, velocity in zip(self.shapes, self.velocities):
            gradients = torch.stack([matrix_of(w.grad) for w in same])
            if self.options.gradient_norm == "momentum":
                gradients = (gradients * (norm / norms_of(gradients))).to(gradients.dtype)
            velocity.mul_(MUON_MOMENTUM).add_(gradients)
            ahead = gradients.add_(velocity, alpha=MUON_MOMENTUM)
            directions = self.orthogonalize(ahead, norm if self.options.gradient_norm == "on" else None)
            for weight, direction in zip(same, directions.to(velocity.dtype)):
                matrix_of(weight).view(direction.shape).add_(direction, alpha=-rate)
        torch._foreach_mul_(self.all, 1 - rate * self.decay)


def sgd_groups(network, options, bias_updates):
    """Groups of SGD: name, parameters, first rate, the update at which the rate is 0, and a decay that the rate multiplies to one constant."""
    decay = DECAY * options.batch
    groups = [{"name": "norm shifts", "params": [norm.bias for norm in network.modules_of(nn.BatchNorm2d)], "lr": RATE, "ends": options.updates}]
    if not options.freeze_whiten_bias:
        groups.append({"name": "whitening bias", "params": [network.whiten.bias], "lr": RATE, "ends": bias_updates})
    if options.head == "sgd":
        groups.append({"name": "head", "params": [network.head.weight], "lr": HEAD_RATE, "ends": options.updates})
    return [{**group, "first": group["lr"], "weight_decay": decay / group["lr"]} for group in groups]


def muon_weights(network, options):
    filters = [conv.weight for group in network.groups for conv in (group.conv1, group.conv2)]
    return filters + ([network.head.weight] if options.head == "muon" else [])


# ---- a run

class Training:
    """One network for all runs, so that it is compiled once."""

    def __init__(self, options):
        self.options = options
        muon_head = options.head == "muon"  # its weight is scaled to norm sqrt(10), a 16th of deviation 1
        self.network = Network(1 / 16 if muon_head else 1 / 256).to(options.device, options.dtype, memory_format=torch.channels_last)
        self.head_deviation = 1 / 16 if muon_head else 1.0
        self.forward, self.orthogonalize = self.network, orthogonalized
        if options.compile:
            self.forward = torch.compile(self.network, mode=options.compile, dynamic=False)
            self.orthogonalize = torch.compile(orthogonalized, dynamic=False)

    def run(self, train, test):
        """(accuracy, seconds) of one run; train and test are (images in [0, 1], labels)."""
        self.wait()
        begin = time.perf_counter()
        images, test_images = normalized(train[0]), normalized(test[0]).contiguous(memory_format=torch.channels_last)
        self.train(images, train[1])
        right = (self.logits(test_images).argmax(1) == test[1]).float().mean().item()
        self.wait()
        return right, time.perf_counter() - begin

    def train(self, images, labels):
        options, network = self.options, self.network.train()
        network.reset(self.head_deviation)
        with torch.no_grad():
            network.whiten.weight.copy_(whitening(images[:WHITENED_IMAGES]))
        bias_updates = 0 if options.freeze_whiten_bias else math.ceil(BIAS_EPOCHS * (len(labels) // options.batch))
        sgd = torch.optim.SGD(sgd_groups(network, options, bias_updates), lr=RATE, momentum=MOMENTUM, nesterov=True, fused=options.device == "cuda")
        muon = Muon(muon_weights(network, options), options, DECAY * options.batch, self.orthogonalize)
        for update, (x, y) in enumerate(batches(images, labels, options)):
            self.begin_step()
            logits = self.forward(x, update < bias_updates)
            functional.cross_entropy(logits.float(), y, label_smoothing=SMOOTHING, reduction="sum").backward()
            for group in sgd.param_groups:
                group["lr"] = group["first"] * max(0.0, 1 - update / group["ends"])
            sgd.step()
            muon.step(update)
            network.zero_grad(set_to_none=True)  # the bias without a gradient is left alone

    @torch.no_grad()
    def forward_all(self, images):
        """Logits of any number of images, in batches of one size: the last is filled up with zeros."""
        size, logits = self.options.evaluation_batch, []
        for x in images.split(size):
            self.begin_step()
            x = functional.pad(x, (0, 0, 0, 0, 0, 0, 0, size - len(x))) if len(x) < size else x
            logits.append(self.forward(x.contiguous(memory_format=torch.channels_last)).float().clone())
        return torch.cat(logits)[:len(images)]

    def logits(self, images):
        """Logits of the test images. The quarter with the least certain prediction has the mean over six views."""
        self.network.eval()
        logits = self.forward_all(images)
        if self.options.views:
            uncertain = logits.softmax(1).amax(1).argsort()[:int(UNCERTAIN * len(images))]
            others = self.forward_all(torch.cat(other_views(images[uncertain])))
            logits[uncertain] = (logits[uncertain] + others.view(5, -1, 10).sum(0)) / 6
        return logits

    def begin_step(self):
        if self.options.compile:
            torch.compiler.cudagraph_mark_step_begin()

    def wait(self):
        if self.options.device == "cuda":
            torch.cuda.synchronize()


# ---- the program

def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data")
    parser.add_argument("--check", action="store_true", help="test the ingredients, on the CPU, and end")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the first run")
    parser.add_argument("--compile", nargs="?", const="max-autotune", metavar="MODE", help="torch.compile the network: max-autotune or reduce-overhead")
    parser.add_argument("--updates", "--steps", type=int, default=243)
    parser.add_argument("--batch", type=int, default=1536)
    parser.add_argument("--evaluation-batch", type=int, default=2500, help="divides 10,000 images and 12,500 views")
    parser.add_argument("--images", type=int, default=50000, help="of training, and of test at most, the first")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cuda", "cpu"])
    parser.add_argument("--dtype", choices=["float16", "bfloat16", "float32"], help="of weights and activations; default float16 on a GPU")
    parser.add_argument("--head", default="sgd", choices=["sgd", "muon"])
    parser.add_argument("--freeze-whiten-bias", action="store_true")
    parser.add_argument("--normalize", default="schedule", help="schedule, or every:N updates")
    parser.add_argument("--gradient-norm", default="on", choices=["on", "off", "momentum"],
                        help="before the Newton-Schulz iterations; off; or of each gradient, before momentum adds it")
    parser.add_argument("--no-jitter", dest="jitter", action="store_false")
    parser.add_argument("--no-views", dest="views", action="store_false")
    options = parser.parse_args()
    if not options.check and not options.data:
        parser.error("--data DIR is needed, a folder of CIFAR-10's binary files")
    if options.normalize != "schedule" and not (options.normalize.startswith("every:") and options.normalize[6:].isdigit() and int(options.normalize[6:])):
        parser.error(f"--normalize is schedule or every:N, not {options.normalize}")
    options.device = "cpu" if options.check else options.device
    options.dtype = getattr(torch, options.dtype or ("float16" if options.device == "cuda" else "float32"))
    options.batch = min(options.batch, options.images)
    options.evaluation_batch = min(options.evaluation_batch, options.images)
    return options


def read_data(options):
    """((images in [0, 1], labels) of training, the same of test)."""
    def read(*names):
        images, labels = (torch.cat(part)[:options.images] for part in zip(*(torch_train.read(options.data, name, options.device) for name in names)))
        return images.to(options.dtype) / 255, labels
    return read(*(f"data_batch_{i}" for i in range(1, 6))), read("test_batch")


def main():
    options = read_options()
    if options.check:
        import torch_cifar_94_check  # which imports this file
        torch_cifar_94_check.check(options)
        return
    torch.backends.cudnn.benchmark = True
    train, test = read_data(options)
    training = Training(options)
    torch.manual_seed(options.seed)
    begin = time.perf_counter()
    training.run(*((torch.rand_like(images), torch.randint_like(labels, 10)) for images, labels in (train, test)))
    named = {"peer": f"torch {torch.__version__}", "compile": options.compile, "batch": options.batch, "updates": options.updates}
    print(json.dumps({**named, "seconds_before": round(time.perf_counter() - begin, 3)}), flush=True)
    accuracies, seconds = [], []
    for seed in range(options.seed, options.seed + options.runs):
        torch.manual_seed(seed)
        accuracy, taken = training.run(train, test)
        accuracies, seconds = accuracies + [accuracy], seconds + [taken]
        print(json.dumps({"seed": seed, "accuracy": round(accuracy, 4), "seconds": round(taken, 4)}), flush=True)
    deviation = [statistics.stdev(values) if len(values) > 1 else None for values in (accuracies, seconds)]
    print(json.dumps({"runs": options.runs, "accuracy": round(statistics.mean(accuracies), 5), "accuracy_deviation": deviation[0] and round(deviation[0], 5),
                      "seconds": round(statistics.mean(seconds), 4), "seconds_deviation": deviation[1] and round(deviation[1], 4)}), flush=True)


if __name__ == "__main__":
    main()
