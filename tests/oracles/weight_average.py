"""Expected values of tests/engine/optimizers/ema_test.cpp: averages of eight weights under SGD, as timm's ModelEmaV3 moves them.

Run with PyTorch: python weight_average.py
"""
import math
import torch


def decay_of(step, decay, warmup):
    """timm.utils.ModelEmaV3.get_decay with its defaults; step counts averagings from 1."""
    step = max(0, step - 1)
    if step <= 0:
        return 0.0
    return max(min(1 - (1 + step) ** -(2 / 3), decay), 0.0) if warmup else decay


def run(decay, warmup, every, updates=20):
    w = torch.ones(8, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    average = w.detach().clone()
    for t in range(1, updates + 1):
        w.grad = torch.tensor([math.sin(0.7 * t + i) for i in range(8)])
        optimizer.step()
        if t % every == 0:
            average.lerp_(w.detach(), weight=1.0 - decay_of(t // every, decay, warmup))
    return average


for case in [(0.9, False, 1), (0.95, True, 1), (0.8, False, 3)]:
    print(case, "{" + ", ".join(f"{v:.9g}f" for v in run(*case).tolist()) + "}")
