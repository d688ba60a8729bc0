#!/usr/bin/env python3
"""Losses and their gradients by PyTorch (CPU, any 2.x), and ten updates by SGD of a layer without bias with each loss, as a C++ header:
losses.py > tests/kernels/loss/loss_oracle.h, then clang-format.

Operands are formulas that the tests repeat: logits 2·sin(0.7·i + 0.3), labels (7·i + 3) mod classes (every fifth is 255 where labels are ignored),
float targets (1 + sin(1.3·i))/2, which are normalised to probabilities of a position for soft targets and compared with 1/2 for binary ones,
class weights 0.5 + 0.25·c. A sample's loss is the mean of its positions that count; the loss is the mean over samples. Sums are PyTorch's own."""
import math
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
BATCH, CLASSES = 3, 4


def logits(positions):
    i = torch.arange(BATCH * positions * CLASSES)
    return (2 * torch.sin(0.7 * i + 0.3)).float().double().reshape(BATCH, positions, CLASSES).requires_grad_()


def labels(positions, ignored=False):
    i = torch.arange(BATCH * positions)
    wanted = (7 * i + 3) % CLASSES
    return torch.where(i % 5 == 0, 255, wanted).reshape(BATCH, positions) if ignored else wanted.reshape(BATCH, positions)


def floats(positions):
    i = torch.arange(BATCH * positions * CLASSES)
    return ((1 + torch.sin(1.3 * i)) / 2).float().double().reshape(BATCH, positions, CLASSES)


def soft(positions):
    t = floats(positions)
    return (t / t.sum(-1, keepdim=True)).float().double()


def binary(positions):
    return (floats(positions) >= 0.5).double()


WEIGHTS = 0.5 + 0.25 * torch.arange(CLASSES)


def flat(x, y):
    return x.reshape(-1, CLASSES), y.reshape(-1, CLASSES) if y.dim() == 3 else y.reshape(-1)


def mean_of_positions(terms, counted):
    """terms (batch, positions): the mean over the positions that count, then over samples."""
    return (terms.sum(1) / counted.sum(1).clamp(min=1)).mean()


def cross_entropy(positions, target, mean=True, ignored=False, **options):
    x = logits(positions)
    a, b = flat(x, target)
    options |= {"ignore_index": 255} if ignored else {}
    if not mean:
        return x, F.cross_entropy(a, b, reduction="sum", **options)
    terms = F.cross_entropy(a, b, reduction="none", **options).reshape(BATCH, positions)
    counted = target != 255 if ignored else torch.ones(BATCH, positions)
    return x, mean_of_positions(terms, counted)


def poly1(positions, target, epsilon, smoothing=0.0, weight=torch.ones(CLASSES), ignored=False):
    """Cross-entropy and epsilon·(1 - p) of smoothed targets, as the listings of Leng et al. 2022."""
    x = logits(positions)
    one_hot = F.one_hot(torch.where(target == 255, 0, target), CLASSES).double() if target.dim() == 2 else target
    q = weight * ((1 - smoothing) * one_hot + smoothing / CLASSES)
    counted = target != 255 if ignored else torch.ones(BATCH, positions)
    terms = counted * ((q * -F.log_softmax(x, -1)).sum(-1) + epsilon * (q * (1 - torch.softmax(x, -1))).sum(-1))
    return x, mean_of_positions(terms, counted)


def focal(positions, gamma):
    x, y = logits(positions), labels(positions)
    log_p = F.log_softmax(x, -1).gather(2, y[..., None])[..., 0]
    terms = -WEIGHTS[y] * (1 - log_p.exp()) ** gamma * log_p
    return x, mean_of_positions(terms, torch.ones_like(terms))


def values(loss):
    x = logits(2)
    return x, loss(x)


def binary_focal(x, t, gamma, alpha):  # as torchvision.ops.sigmoid_focal_loss
    p, entropy = torch.sigmoid(x), F.binary_cross_entropy_with_logits(x, t, reduction="none")
    return ((alpha * t + (1 - alpha) * (1 - t)) * entropy * (1 - (p * t + (1 - p) * (1 - t))) ** gamma).mean()


def dice(positions, smooth, target, p, counted=None):
    p, target = (p, target) if counted is None else (p * counted[..., None], target * counted[..., None])
    both, sums = (p * target).sum(1), p.sum(1) + target.sum(1)
    return (1 - (2 * both + smooth) / (sums + smooth)).mean()


def labelled_dice():
    x, y = logits(6), labels(6, ignored=True)
    t = F.one_hot(torch.where(y == 255, 0, y), CLASSES).double()
    return x, dice(6, 1.0, t, torch.softmax(x, -1), (y != 255).double())


def sigmoid_dice():
    x = logits(6)
    return x, dice(6, 0.5, binary(6), torch.sigmoid(x))


CASES = {
    "kPlain": lambda: cross_entropy(1, labels(1)),
    "kWeighted": lambda: cross_entropy(1, labels(1), weight=WEIGHTS, label_smoothing=0.1),
    "kWeightedSum": lambda: cross_entropy(6, labels(6, True), mean=False, ignored=True, weight=WEIGHTS),
    "kPixels": lambda: cross_entropy(6, labels(6, True), ignored=True),
    "kSoft": lambda: cross_entropy(1, soft(1), weight=WEIGHTS, label_smoothing=0.2),
    "kSoftPixels": lambda: cross_entropy(6, soft(6)),
    "kPoly1": lambda: poly1(1, labels(1), 1.0),
    "kPoly1Weighted": lambda: poly1(6, labels(6, True), -0.5, 0.1, WEIGHTS, ignored=True),
    "kPoly1Soft": lambda: poly1(6, soft(6), 2.0),
    "kFocal": lambda: focal(6, 2.0),
    "kFocalRoot": lambda: focal(1, 0.5),
    "kSquared": lambda: values(lambda x: F.mse_loss(x, floats(2))),
    "kSquaredSum": lambda: values(lambda x: F.mse_loss(x, floats(2), reduction="sum")),
    "kAbsolute": lambda: values(lambda x: F.l1_loss(x, floats(2))),
    "kHuber": lambda: values(lambda x: F.huber_loss(x, floats(2), delta=0.75)),
    "kBinary": lambda: values(lambda x: F.binary_cross_entropy_with_logits(x, binary(2))),
    "kBinaryWeighted": lambda: values(
        lambda x: F.binary_cross_entropy_with_logits(x, 0.9 * binary(2) + 0.05, pos_weight=WEIGHTS)),
    "kBinaryFocal": lambda: values(lambda x: binary_focal(x, binary(2), 2.0, 0.25)),
    "kDice": labelled_dice,
    "kSigmoidDice": sigmoid_dice,
}


UPDATES, SAMPLES, RATE = 10, 6, 0.05


def trained(per_pixel, loss_of):
    """Losses of ten updates, and the last weights (4, 12), or (4, 3) of a 1x1 convolution of images (2, 2, 3)."""
    positions, inputs = (4, 3) if per_pixel else (1, 12)
    x = torch.sin(0.37 * torch.arange(SAMPLES * 12)).float().double().reshape(SAMPLES, positions, inputs)
    weight = (0.3 * torch.cos(0.9 * torch.arange(CLASSES * inputs))).float().double().reshape(CLASSES, inputs).requires_grad_()
    optimizer, losses = torch.optim.SGD([weight], lr=RATE), []
    for _ in range(UPDATES):
        optimizer.zero_grad()
        loss = loss_of(x @ weight.T)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, weight.detach().reshape(-1).tolist()


def of_samples(make):
    """The operands' formulas for SAMPLES samples."""
    global BATCH
    kept, BATCH = BATCH, SAMPLES
    made = make()
    BATCH = kept
    return made


def update_cases():
    y, pixels = of_samples(lambda: labels(1)), of_samples(lambda: labels(4, True))
    t, masks, shares = of_samples(lambda: floats(1)), of_samples(lambda: binary(1)), of_samples(lambda: soft(1))
    row = lambda x: x.reshape(-1, CLASSES)
    counted = (pixels != 255).double()
    one_hot = F.one_hot(torch.where(pixels == 255, 0, pixels), CLASSES).double()

    def of_pixels(x):
        terms = F.cross_entropy(row(x), pixels.reshape(-1), reduction="none", ignore_index=255).reshape(SAMPLES, 4)
        return mean_of_positions(terms, counted)

    def poly1_of(x):  # the smoothed targets are 0.9 at the label, and 0.1 / CLASSES everywhere
        p = torch.softmax(row(x), -1).gather(1, y)[:, 0]
        entropy = F.cross_entropy(row(x), y.reshape(-1), label_smoothing=0.1, reduction="none")
        return (entropy + 2 * (1 - 0.9 * p - 0.1 / CLASSES)).mean()

    def focal_of(x):
        log_p = F.log_softmax(row(x), -1).gather(1, y)[:, 0]
        return (-(1 - log_p.exp()) ** 2 * log_p).mean()

    def dice_of(x):
        return dice(4, 1.0, one_hot, torch.softmax(x, -1), counted)

    weighted = lambda x: F.cross_entropy(row(x), y.reshape(-1), weight=WEIGHTS, reduction="none", label_smoothing=0.1).mean()
    return {
        "kWeighted": (False, lambda x: weighted(x)),
        "kSoft": (False, lambda x: F.cross_entropy(row(x), row(shares))),
        "kPixels": (True, lambda x: of_pixels(x)),
        "kSum": (False, lambda x: F.cross_entropy(row(x), y.reshape(-1), weight=WEIGHTS, reduction="sum")),
        "kPoly1": (False, lambda x: poly1_of(x)),
        "kFocal": (False, lambda x: focal_of(x)),
        "kBinary": (False, lambda x: F.binary_cross_entropy_with_logits(x, masks, pos_weight=WEIGHTS)),
        "kBinaryFocal": (False, lambda x: binary_focal(x, masks, 2.0, 0.25)),
        "kSquared": (False, lambda x: F.mse_loss(x, t)),
        "kAbsolute": (False, lambda x: F.l1_loss(x, t)),
        "kHuber": (False, lambda x: F.huber_loss(x, t, delta=0.25)),
        "kDice": (True, lambda x: dice_of(x)),
    }


def print_cases():
    for name, case in CASES.items():
        x, loss = case()
        loss.backward()
        numbers = ", ".join(f"{g:.9g}" for g in x.grad.reshape(-1).tolist())
        assert math.isfinite(loss.item()) and x.grad.abs().max() > 1e-3, name
        print(f"inline const LossCase {name} = {{{loss.item():.12g}, {{{numbers}}}}};")


def print_updates():
    text = lambda numbers: "{" + ", ".join(f"{n:.9g}" for n in numbers) + "}"
    for name, (per_pixel, loss_of) in update_cases().items():
        losses, weights = trained(per_pixel, loss_of)
        assert losses[-1] < losses[0], name
        print(f"inline const Updates {name} = {{{text(losses)}, {text(weights)}}};")


def main():
    print("// Written by tests/oracles/losses.py, which says what the operands are. Do not edit.\n#pragma once\n\n#include <vector>\n")
    print("namespace bantam::testing::oracle {\n\nstruct LossCase {\n  double loss;\n  std::vector<double> gradient;\n};\n")
    print_cases()
    print("\nstruct Updates {\n  std::vector<double> losses, weights;\n};\n\nnamespace updates {\n")
    print_updates()
    print("\n}  // namespace updates\n}  // namespace bantam::testing::oracle")


if __name__ == "__main__":
    main()
