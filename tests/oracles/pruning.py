"""Expected values of tests/engine/optimizers/pruned_weights_test.cpp: 96 weights under SGD with momentum, pruned after updates
as TensorFlow Model Optimization prunes (pruning_impl.Pruning and pruning_schedule), to ranks that torch.topk finds.

Run with PyTorch: python pruning.py
"""
import math
import torch


def polynomial(step, initial, final, begin, end):
    p = min(1.0, max(0.0, (step - begin) / (end - begin)))
    return (initial - final) * (1 - p) ** 3 + final


def mask_of(w, sparsity):
    magnitudes = w.abs().flatten()
    k = round(magnitudes.numel() * (1 - sparsity))
    threshold = torch.topk(magnitudes, k).values[-1]
    return (w.abs() >= threshold).float()


def two_of_four(w):
    groups = w.reshape(-1, 4)
    kept = torch.topk(groups.abs(), 2, dim=1).indices
    return torch.zeros_like(groups).scatter_(1, kept, 1.0).reshape(w.shape)


def run(kind, updates=20, begin=2, end=14, frequency=4):
    w = torch.tensor([[math.sin(1.3 * o + 0.7 * i) for i in range(8)] for o in range(12)], requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.05, momentum=0.9)
    mask = torch.ones_like(w)
    for t in range(1, updates + 1):
        w.grad = torch.tensor([[math.cos(0.3 * t + 0.9 * o - 1.1 * i) for i in range(8)] for o in range(12)])
        optimizer.step()
        if begin <= t <= end and ((t - begin) % frequency == 0 or t == end):
            values = w.detach()
            mask = two_of_four(values) if kind == "2:4" else mask_of(
                values, polynomial(t, 0.2, 0.8, begin, end) if kind == "polynomial" else 0.5)
        w.data.mul_(mask)
    return w.detach()


for kind in ["polynomial", "constant", "2:4"]:
    w = run(kind).flatten()
    print(kind, int((w == 0).sum()), "zeros; the sum", f"{w.double().sum().item():.9g}", "and the others by place:")
    print("{" + ", ".join(f"{{{i}, {v:.9g}f}}" for i, v in enumerate(w.tolist()) if v != 0) + "}")
