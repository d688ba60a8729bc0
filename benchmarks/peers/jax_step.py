#!/usr/bin/env python3
"""One training step of Bantam's networks in JAX, timed on one GPU or on the CPU.

A case is a model, a precision, a mode and a batch size; each option may be repeated, and all combinations run, each in a process of its own, so
that its peak is its own. Prints one JSON object a case: ms_per_step (median of windows), images_per_s, and on a GPU peak_bytes of XLA's allocator.

  benchmarks/peers/jax_step.py --model separable_cnn --batch 16 --batch 128 --precision f16 --mode scan

Modes:       jit   a jitted step a call
             scan  32 steps in one jitted lax.scan: no host work between them
Precisions:  f32 (no TF32), f16 (dynamic loss scale), bf16; weights and their update are float32

Images are NHWC and lie on the device; the optimizer is the one of Bantam's configuration for the model. Needs JAX alone.
"""
import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

SCAN_STEPS = 32
MODELS = ("separable_cnn", "resnet18_cifar", "mobilenet_v1", "resnet50")
PRECISIONS = ("f32", "f16", "bf16")


class Network:
    """What a network's function reads its variables from. The first call makes them; each later one is given them."""

    def __init__(self, dtype, weights=None, statistics_=None):
        self.dtype, self.making = dtype, weights is None
        self.weights = {} if weights is None else weights
        self.statistics = {} if statistics_ is None else dict(statistics_)
        self.count = 0

    def weight(self, shape, fan_in=0):
        """The next weight: normal with variance 2 / fan_in, or zeros; in the type that the network computes in."""
        self.count += 1
        name = f"weight{self.count}"
        if self.making:
            values = jax.random.normal(jax.random.key(self.count), shape) * (2.0 / fan_in) ** 0.5 if fan_in else jnp.zeros(shape)
            self.weights[name] = values
        return self.weights[name].astype(self.dtype)

    def conv(self, x, filters, kernel=3, stride=1, padding=None, groups=1):
        pad = kernel // 2 if padding is None else padding
        channels = x.shape[-1] // groups
        w = self.weight((kernel, kernel, channels, filters), kernel * kernel * channels)
        return lax.conv_general_dilated(x, w, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups)

    def norm(self, x):
        """Batch norm: statistics in float32; running ones move by a tenth."""
        channels = x.shape[-1]
        scale, shift = 1 + self.weight((channels,)).astype(jnp.float32), self.weight((channels,)).astype(jnp.float32)
        wide = x.astype(jnp.float32)
        mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
        name = f"norm{self.count}"
        before = self.statistics.get(name, (jnp.zeros(channels), jnp.ones(channels)))
        self.statistics[name] = tuple(0.9 * old + 0.1 * new for old, new in zip(before, (mean, variance)))
        return ((wide - mean) * (scale * lax.rsqrt(variance + 1e-5)) + shift).astype(x.dtype)

    def conv_norm(self, x, filters, kernel=3, stride=1, groups=1):
        return self.norm(self.conv(x, filters, kernel, stride, groups=groups))

    def dense(self, x, units):
        return x @ self.weight((x.shape[-1], units), x.shape[-1]) + self.weight((units,))


def max_pool(x, window, stride, pad):
    lowest = np.array(-np.inf, x.dtype)
    return lax.reduce_window(x, lowest, lax.max, (1, window, window, 1), (1, stride, stride, 1), [(0, 0), (pad, pad), (pad, pad), (0, 0)])


def separable_cnn(net, x):
    for filters in (32, 64):
        depthwise = net.conv(x, x.shape[-1], padding=0, groups=x.shape[-1])
        x = jax.nn.relu(net.conv(depthwise, filters, kernel=1) + net.weight((filters,)))
        if filters == 32:
            x = max_pool(x, 2, 2, 0)
    return net.dense(jax.nn.relu(net.dense(x.reshape(x.shape[0], -1), 64)), 10)


def mobilenet_v1(net, x):
    x = jax.nn.relu(net.conv_norm(x, 32, stride=2))
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    for width, stride in zip(widths, strides):
        x = jax.nn.relu(net.conv_norm(x, x.shape[-1], stride=stride, groups=x.shape[-1]))
        x = jax.nn.relu(net.conv_norm(x, width, kernel=1))
    return net.dense(x.mean((1, 2)), 1000)


def residual(net, x, body, filters, stride):
    shortcut = x if stride == 1 and x.shape[-1] == filters else net.conv_norm(x, filters, kernel=1, stride=stride)
    return jax.nn.relu(body + shortcut)


def basic_block(net, x, width, stride):
    body = net.conv_norm(jax.nn.relu(net.conv_norm(x, width, stride=stride)), width)
    return residual(net, x, body, width, stride)


def bottleneck_block(net, x, width, stride):
    narrow = jax.nn.relu(net.conv_norm(x, width, kernel=1))
    body = net.conv_norm(jax.nn.relu(net.conv_norm(narrow, width, stride=stride)), 4 * width, kernel=1)
    return residual(net, x, body, 4 * width, stride)


def stages(net, x, block, depths):
    for stage, depth in enumerate(depths):
        for i in range(depth):
            x = block(net, x, 64 << stage, 2 if i == 0 and stage > 0 else 1)
    return x.mean((1, 2))


def resnet18_cifar(net, x):
    return net.dense(stages(net, jax.nn.relu(net.conv_norm(x, 64)), basic_block, (2, 2, 2, 2)), 10)


def resnet50(net, x):
    x = max_pool(jax.nn.relu(net.conv_norm(x, 64, kernel=7, stride=2)), 3, 2, 1)
    return net.dense(stages(net, x, bottleneck_block, (3, 4, 6, 3)), 1000)


def adam(weights, slots, gradients, count):
    """lr 0.001, epsilon 1e-7."""
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, slots[0], gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, slots[1], gradients)
    rate = 1e-3 * jnp.sqrt(1 - 0.999**count) / (1 - 0.9**count)
    return jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + 1e-7), weights, first, second), (first, second)


def nesterov(weights, slots, gradients, _count):
    """lr 0.05, momentum 0.9, weight decay 5e-4."""
    decayed = jax.tree.map(lambda g, w: g + 5e-4 * w, gradients, weights)
    moment = jax.tree.map(lambda m, g: 0.9 * m + g, slots[0], decayed)
    return jax.tree.map(lambda w, m, g: w - 0.05 * (g + 0.9 * m), weights, moment, decayed), (moment,)


def make_step(name, precision, images, labels):
    """(state) -> state, and the first state."""
    network = globals()[name]
    dtype = {"f32": jnp.float32, "f16": jnp.float16, "bf16": jnp.bfloat16}[precision]
    update, slots = (nesterov, 1) if name == "resnet18_cifar" else (adam, 2)
    first = Network(dtype)
    network(first, images[:1].astype(dtype))
    zeros = jax.tree.map(jnp.zeros_like, first.weights)
    state = (first.weights, tuple(jax.tree.map(jnp.copy, zeros) for _ in range(slots)), first.statistics, jnp.float32(0),
             jnp.float32(32768 if precision == "f16" else 1), images, labels)  # images too: as constants they would be folded

    def scaled_loss(weights, running, scale, images, labels):
        net = Network(dtype, weights, running)
        logits = network(net, images.astype(dtype)).astype(jnp.float32)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -chosen.mean() * scale, net.statistics

    def step(state):
        weights, moments, running, count, scale, *data = state
        gradients, new_running = jax.grad(scaled_loss, has_aux=True)(weights, running, scale, *data)
        gradients = jax.tree.map(lambda g: g / scale, gradients)
        new = (*update(weights, moments, gradients, count + 1), new_running, count + 1)
        if precision != "f16":
            return (*new, scale, *data)
        finite = jnp.all(jnp.stack([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        kept = jax.tree.map(lambda done, before: jnp.where(finite, done, before), new, state[:4])
        grown = jnp.where((count + 1) % 2000 == 0, 2 * scale, scale)
        return (*kept, jnp.where(finite, grown, scale / 2), *data)

    return step, state


def measure(name, precision, mode, batch, seconds):
    jax.config.update("jax_default_matmul_precision", "highest" if precision == "f32" else "default")
    size, classes = (224, 1000) if name in ("mobilenet_v1", "resnet50") else (32, 10)
    images = jax.random.uniform(jax.random.key(1), (batch, size, size, 3))
    labels = jax.random.randint(jax.random.key(2), (batch,), 0, classes)
    step, state = make_step(name, precision, images, labels)
    steps = SCAN_STEPS if mode == "scan" else 1
    if mode == "scan":
        run = jax.jit(lambda s: lax.scan(lambda c, _: (step(c), None), s, length=steps)[0], donate_argnums=0)
    else:
        run = jax.jit(step, donate_argnums=0)

    def window(calls):
        nonlocal state
        begin = time.perf_counter()
        for _ in range(calls):
            state = run(state)
        jax.block_until_ready(state)
        return time.perf_counter() - begin

    window(3)
    calls = 1
    while window(calls) < 0.05:
        calls *= 2
    end, windows = time.perf_counter() + seconds, []
    while len(windows) < 3 or time.perf_counter() < end:
        windows.append(window(calls) / calls / steps)
    per_step = statistics.median(windows)
    row = {"peer": f"jax {jax.__version__}", "model": name, "batch": batch, "precision": precision, "mode": mode,
           "ms_per_step": round(1e3 * per_step, 4), "images_per_s": round(batch / per_step)}
    memory = jax.local_devices()[0].memory_stats()
    if memory:
        row["peak_bytes"] = memory["peak_bytes_in_use"]
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=MODELS)
    parser.add_argument("--precision", action="append", choices=PRECISIONS)
    parser.add_argument("--mode", action="append", choices=["jit", "scan"])
    parser.add_argument("--batch", action="append", type=int)
    parser.add_argument("--seconds", type=float, default=1.5, help="measuring time a case")
    options = parser.parse_args()
    cases = list(itertools.product(options.model or ["separable_cnn"], options.precision or ["f32"], options.mode or ["scan"], options.batch or [16]))
    if len(cases) == 1:
        load_jax()
        print(json.dumps(measure(*cases[0], options.seconds)), flush=True)
        return 0
    failed = 0
    for name, precision, mode, batch in cases:
        command = [sys.executable, __file__, "--model", name, "--precision", precision, "--mode", mode, "--batch", str(batch), "--seconds", str(options.seconds)]
        failed += subprocess.run(command, check=False).returncode != 0
    return 1 if failed else 0


def load_jax():
    """Not in the process that only starts others: JAX reserves the GPU's memory as it is loaded."""
    global jax, jnp, lax, np
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax


if __name__ == "__main__":
    sys.exit(main())
