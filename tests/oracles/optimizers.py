#!/usr/bin/env python3
"""Weights after 20 updates by PyTorch's optimizers, and by Lion, LAMB, Muon and Adan as their papers have them, in float64.

Writes tests/engine/optimizers/optimizer_oracles.h:  python3 tests/oracles/optimizers.py > tests/engine/optimizers/optimizer_oracles.h
Needs torch from PyPI. Start values and gradients come from a hash of their index, which the test repeats.
`optimizers.py NAME` prints one case that is plain Python (PLAIN), without torch.
"""
import math
import sys

SHAPES = [("conv/weight", (4, 3, 3, 2)), ("norm/scale", (4,)), ("head/weight", (5, 16)), ("head/bias", (5,))]
UPDATES = 20


def hashed(index):
    """In [-0.5, 0.5), exact in float32: the upper 24 bits of a mixed 32-bit number."""
    u = index * 2654435761 % 2**32
    u = (u ^ u >> 15) * 2246822519 % 2**32
    u ^= u >> 13
    return (u >> 8) / 2**24 - 0.5


class Adan:
    """Xie et al. 2022, algorithm 1 with the paper's betas as 1 - those here, as the authors' code has them; proximal decay."""

    def __init__(self, lr, betas=(0.98, 0.92, 0.99), eps=1e-8, weight_decay=0.0):
        self.lr, self.betas, self.eps, self.weight_decay, self.t, self.states = lr, betas, eps, weight_decay, 0, {}

    def step(self, weights, gradients):
        self.t += 1
        beta1, beta2, beta3 = self.betas
        corrections = [1 - beta ** self.t for beta in self.betas]
        for i, g in enumerate(gradients):
            m, v, n, before = self.states.get(i, (0, 0, 0, g))
            m = beta1 * m + (1 - beta1) * g
            v = beta2 * v + (1 - beta2) * (g - before)
            n = beta3 * n + (1 - beta3) * (g + beta2 * (g - before)) ** 2
            self.states[i] = m, v, n, g
            step = (m / corrections[0] + beta2 * v / corrections[1]) / (math.sqrt(n / corrections[2]) + self.eps)
            weights[i] = (weights[i] - self.lr * step) / (1 + self.lr * self.weight_decay)


# By case: the optimizer in a configuration's words, and the same in plain Python.
PLAIN = {
    "adan": ("{adan: {learning_rate: 0.01, beta1: 0.9, beta2: 0.8, weight_decay: 0.1}}",
             lambda: Adan(lr=0.01, betas=(0.9, 0.8, 0.99), weight_decay=0.1)),
}


def run_plain(make):
    def values(first):
        return [hashed(first + 1000 * k + i) for k, (_, shape) in enumerate(SHAPES) for i in range(math.prod(shape))]

    weights, optimizer = values(0), make()
    for update in range(1, UPDATES + 1):
        optimizer.step(weights, values(100000 * update))
    return weights


def print_case(name, options, clip, values):
    numbers = [f"{v:.9g}" for v in values]
    clips = ", ".join(f"{clip[k]}f" if k in clip else "0" for k in ("norm", "value"))
    print(f'    {{"{name}", {{"{options}", {clips}, {{')
    for i in range(0, len(numbers), 10):
        print("      " + ", ".join(numbers[i:i + 10]) + ("," if i + 10 < len(numbers) else "}}},"))


if sys.argv[1:]:
    for name in sys.argv[1:]:
        options, make = PLAIN[name]
        print_case(name, options, {}, run_plain(make))
    sys.exit()

import torch  # noqa: E402


def tensor(shape, first):
    count = torch.Size(shape).numel()
    return torch.tensor([hashed(first + i) for i in range(count)], dtype=torch.float64).reshape(shape)


class Lion(torch.optim.Optimizer):
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                c = beta1 * m + (1 - beta1) * p.grad
                p.sub_(group["lr"] * (c.sign() + group["weight_decay"] * p))
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2, with phi(x) = x."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(m=torch.zeros_like(p), v=torch.zeros_like(p), t=0)
                state["t"] += 1
                m = state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v = state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                r = m / (1 - beta1 ** state["t"]) / ((v / (1 - beta2 ** state["t"])).sqrt() + group["eps"])
                u = r + group["weight_decay"] * p
                ratio = p.norm() / u.norm() if p.norm() > 0 and u.norm() > 0 else 1.0
                p.sub_(group["lr"] * ratio * u)


def newton_schulz(g, steps=5):
    """Jordan 2024: zeropower_via_newtonschulz5, without the cast to bfloat16."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.mT if g.size(0) > g.size(1) else g
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if g.size(0) > g.size(1) else x


class Muon(torch.optim.Optimizer):
    """Jordan 2024, of all parameters that it gets, as matrices of a row an output."""

    def __init__(self, params, lr, momentum=0.95, nesterov=True, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p)).lerp_(p.grad, 1 - group["momentum"])
                u = p.grad.lerp(m, group["momentum"]) if group["nesterov"] else m
                u = newton_schulz(u.reshape(len(u), -1))
                u = u * max(1, u.size(0) / u.size(1)) ** 0.5
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * u.reshape(p.shape))


class Both:
    def __init__(self, params, matrices, rest):
        self.both = [matrices([p for p in params if p.ndim > 1]), rest([p for p in params if p.ndim == 1])]

    def step(self):
        for optimizer in self.both:
            optimizer.step()


def made(cls, **options):
    return lambda params: cls(params, **options)


def muon(rest, **options):
    return lambda params: Both(params, made(Muon, **options), rest)


T = torch.optim
# By case: the optimizer in a configuration's words, the same of PyTorch or above, and clipping.
CASES = {
    "sgd": ("{sgd: {learning_rate: 0.05, weight_decay: 0.02}}",
        made(T.SGD, lr=0.05, weight_decay=0.02), {}),
    "sgd_momentum": ("{sgd: {learning_rate: 0.05, momentum: 0.9, weight_decay: 0.02}}",
        made(T.SGD, lr=0.05, momentum=0.9, weight_decay=0.02), {}),
    "sgd_dampened": ("{sgd: {learning_rate: 0.05, momentum: 0.9, dampening: 0.3}}",
        made(T.SGD, lr=0.05, momentum=0.9, dampening=0.3), {}),
    "sgd_nesterov": ("{sgd: {learning_rate: 0.05, momentum: 0.9, nesterov: true, weight_decay: 0.02}}",
        made(T.SGD, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.02), {}),
    "adam": ("{adam: {learning_rate: 0.01, weight_decay: 0.02}}",
        made(T.Adam, lr=0.01, weight_decay=0.02, eps=1e-7), {}),
    "adamw": ("{adamw: {learning_rate: 0.01, beta1: 0.8, beta2: 0.99, weight_decay: 0.1}}",
        made(T.AdamW, lr=0.01, betas=(0.8, 0.99), weight_decay=0.1, eps=1e-7), {}),
    "rmsprop": ("{rmsprop: {learning_rate: 0.005, alpha: 0.95, epsilon: 1.0e-6, weight_decay: 0.02}}",
        made(T.RMSprop, lr=0.005, alpha=0.95, eps=1e-6, weight_decay=0.02), {}),
    "rmsprop_momentum": ("{rmsprop: {learning_rate: 0.002, alpha: 0.95, momentum: 0.8, epsilon: 1.0e-6}}",
        made(T.RMSprop, lr=0.002, alpha=0.95, eps=1e-6, momentum=0.8), {}),
    "rmsprop_centered": ("{rmsprop: {learning_rate: 0.005, alpha: 0.95, centered: true, epsilon: 1.0e-6}}",
        made(T.RMSprop, lr=0.005, alpha=0.95, eps=1e-6, centered=True), {}),
    "rmsprop_centered_momentum": ("{rmsprop: {learning_rate: 0.002, alpha: 0.95, momentum: 0.8, centered: true, epsilon: 1.0e-6, weight_decay: 0.02}}",
        made(T.RMSprop, lr=0.002, alpha=0.95, eps=1e-6, momentum=0.8, centered=True,
                                       weight_decay=0.02), {}),
    "lion": ("{lion: {learning_rate: 0.003, weight_decay: 0.3}}",
        made(Lion, lr=0.003, weight_decay=0.3), {}),
    "lamb": ("{lamb: {learning_rate: 0.02, weight_decay: 0.05}}",
        made(Lamb, lr=0.02, weight_decay=0.05), {}),
    "muon": ("{muon: {rest: {adamw: {learning_rate: 0.01, weight_decay: 0.1}}}}",
        muon(made(T.AdamW, lr=0.01, weight_decay=0.1, eps=1e-7), lr=0.02, momentum=0.95), {}),
    "muon_plain": ("{muon: {momentum: 0.9, nesterov: false, weight_decay: 0.1, rest: {sgd: {learning_rate: 0.05}}}}",
        muon(made(T.SGD, lr=0.05), lr=0.02, momentum=0.9, nesterov=False, weight_decay=0.1), {}),
    "muon_lamb": ("{muon: {rest: {lamb: {learning_rate: 0.02, weight_decay: 0.05}}}}",
        muon(made(Lamb, lr=0.02, weight_decay=0.05), lr=0.02, momentum=0.95), {}),
    "clip_norm": ("{sgd: {learning_rate: 0.05}}",
        made(T.SGD, lr=0.05), {"norm": 1.5}),
    "clip_value": ("{adam: {learning_rate: 0.01}}",
        made(T.Adam, lr=0.01, eps=1e-7), {"value": 0.2}),
    "clip_both": ("{sgd: {learning_rate: 0.05, momentum: 0.9}}",
        made(T.SGD, lr=0.05, momentum=0.9), {"norm": 2.0, "value": 0.1}),
}


def run(make, clip):
    params = [torch.nn.Parameter(tensor(shape, 1000 * k)) for k, (_, shape) in enumerate(SHAPES)]
    optimizer = make(params)
    for update in range(1, UPDATES + 1):
        for k, (_, shape) in enumerate(SHAPES):
            params[k].grad = tensor(shape, 100000 * update + 1000 * k)
        if "norm" in clip:  # torch adds 1e-6 to the norm that it divides by
            norm = torch.stack([p.grad.norm() for p in params]).norm()
            for p in params:
                p.grad.mul_(min(1.0, clip["norm"] / norm))
        if "value" in clip:
            torch.nn.utils.clip_grad_value_(params, clip["value"])
        optimizer.step()
    return [value for p in params for value in p.detach().flatten().tolist()]


def main():
    print("// Weights after 20 updates, by PyTorch and the papers, in float64. Written by tests/oracles/optimizers.py.")
    print("#pragma once\n\n#include <map>\n#include <string>\n#include <vector>\n\nnamespace bantam::testing {\n")
    print("// clang-format off")
    print("struct OptimizerOracle {\n  const char* optimizer;  // in a configuration's words")
    print("  float clip_norm, clip_value;\n  std::vector<double> weights;  // the tensors' elements one after another, in the"
          " order of the test\n};\n")
    print("/// By case.")
    print("inline const std::map<std::string, OptimizerOracle>& optimizer_oracles() {")
    print("  static const std::map<std::string, OptimizerOracle> values = {")
    for name, (options, make, clip) in CASES.items():
        print_case(name, options, clip, run(make, clip))
    for name, (options, make) in PLAIN.items():
        print_case(name, options, {}, run_plain(make))
    print("  };\n  return values;\n}\n// clang-format on\n\n}  // namespace bantam::testing")


main()
