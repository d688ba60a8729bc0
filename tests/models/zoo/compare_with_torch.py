#!/usr/bin/env python3
"""One training step of the networks of the zoo beside the same network in PyTorch: loss, gradients, running statistics.

  compare_with_torch.py ZOO_GRADIENTS [--device cuda:0] [--precision mixed_bfloat16] [NETWORK …]

PyTorch's step runs in float64 on the CPU and is the truth: weights, images and labels are float32 numbers. Distances are relative: the norm of the
difference over the norm of the true value; gradients are taken together, as one vector, so that small ones do not count more than they do in an
update.

How far a right step may be. Every node of a network rounds what it computes. A float32 has the unit roundoff u = 2^-24; a sum of n products in blocked
or vectorised order is off by a few u of the root mean square of its output, whatever n. So a float32 step is the true step with noise at every node, in
the output on the way forward and in its gradient on the way back. What that does to loss and gradients depends on the network: depth and
normalisations amplify it, and where a ReLU's input or two candidates of a max-pool are closer together than the noise, the derivative jumps, so that a
single pixel may change the gradient by a thousandth. This noise is added in float64: Gaussian of deviation NOISE·u times each channel's root mean
square (8 u: the few u of a sum, and so many more jumps than a step has that a jump of a real step has its like here). A distance may be MARGIN times
the largest of SAMPLES such disturbed steps. In mixed precision u is that of the type that nodes compute in.

The gradients of the last layer depend on the way forward alone, where nothing jumps: they are compared by themselves as well, as is the loss, and find
an epsilon, a padding or a rounding of channels that is not the same. For each network a line: the four distances, and after each what it may be.
"""
import argparse
import math
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "benchmarks/peers"))
try:
    import torch
except ImportError:
    print("no PyTorch: skipped")
    sys.exit(0)
import safetensors_file
import torch_gradients
import torch_zoo

ROUNDOFF = {"float32": 2.0**-24, "mixed_float16": 2.0**-11, "mixed_bfloat16": 2.0**-8}
NOISE, SAMPLES, MARGIN = 8, 3, 4
STATISTICS = ("/running_mean", "/running_variance")
BATCH, CLASSES = 4, 10
# Larger networks of the same code as others: compared where they are named.
LARGER = ("convnextv2_tiny", "vit_base_16", "vit_large_16", "deit3_base_16")


def disturbed(tensor, scale):
    """With noise of `scale` times the root mean square of each channel (of all, where there are no images)."""
    axes = (0, 2, 3) if tensor.dim() == 4 else tuple(range(tensor.dim()))
    size = tensor.detach().pow(2).mean(axes, keepdim=True).sqrt()
    return tensor + scale * size * torch.randn_like(tensor)


def add_noise(model, scale):
    """Hooks that disturb each node's output, and its gradient."""
    def hook(_module, _inputs, output):
        output = disturbed(output, scale)
        output.register_hook(lambda gradient: disturbed(gradient, scale))
        return output
    return [module.register_forward_hook(hook) for module in model.modules_by_name.children()]


def disturbed_steps(model, images, labels, scale):
    hooks = add_noise(model, scale)
    steps = []
    for sample in range(SAMPLES):
        torch.manual_seed(sample)
        steps.append(torch_gradients.step(model, disturbed(images.double(), scale), labels))
        reset_statistics(model)
    for hook in hooks:
        hook.remove()
    return steps


def reset_statistics(model):
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.reset_running_stats()


def parts(step):
    """What is compared: name and one vector."""
    def vector(names):
        return torch.cat([step[name].double().flatten() for name in names]) if names else torch.zeros(0).double()
    gradients = [name for name in sorted(step) if name != "loss" and not name.endswith(STATISTICS)]
    last = [name for name in gradients if name.startswith(("classifier/", "dense_2/"))]
    return {"loss": step["loss"].double(), "gradients": vector(gradients), "last layer": vector(last),
            "statistics": vector([name for name in sorted(step) if name.endswith(STATISTICS)])}


def distance(vector, truth):
    return 0.0 if truth.numel() == 0 else (vector - truth).norm().item() / truth.norm().item()


def bantam_step(options, text, model, images, labels):
    with tempfile.TemporaryDirectory() as folder:
        given, found = f"{folder}/input.safetensors", f"{folder}/output.safetensors"
        safetensors_file.write(given, torch_gradients.tensors_of_case(model, images, labels))
        command = [options.program, text, given, found, options.device, options.precision]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{text}: exit code {done.returncode}: {done.stderr.strip()}")
        return safetensors_file.read(found)


def compare(options, name):
    """Whether the network's step is as near as it must be; prints its line."""
    small = torch_zoo.NETWORKS[name][1] == 32 or name == "unet"
    size = 32 if small else 64
    has_width = name in ("wide_resnet28_10", "unet") or name.startswith(("mobilenet", "efficientnet"))
    width = 0.25 if has_width else 1.0
    model, images, labels = torch_gradients.case(name, size, CLASSES, width, BATCH, seed=1)
    text = f"{{zoo: {name}, classes: {CLASSES}, input: [{size}, {size}, 3]{f', width: {width}' if has_width else ''}}}"
    found = bantam_step(options, text, model, images, labels)
    truth = torch_gradients.step(model, images, labels)
    reset_statistics(model)
    if set(found) != set(truth):
        raise RuntimeError(f"{name}: tensors of one side alone: {sorted(set(found) ^ set(truth))}")
    truth, found = parts(truth), parts(found)
    steps = [parts(step) for step in disturbed_steps(model, images, labels, NOISE * ROUNDOFF[options.precision])]
    passed, line = True, []
    for part, vector in truth.items():
        # Loss and statistics are stored in float32, too.
        bound = MARGIN * max(2.0**-24, *(distance(step[part], vector) for step in steps))
        gap = distance(found[part], vector)
        near = math.isfinite(gap) and gap <= bound
        passed = passed and near
        line.append(f"{part} {gap:.1e} {'<=' if near else '>'} {bound:.1e}")
    print(f"{'ok  ' if passed else 'FAIL'} {name:20} {', '.join(line)}", flush=True)
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="zoo_gradients")
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32", choices=ROUNDOFF)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch")
    options = parser.parse_intermixed_args()
    torch.set_num_threads(options.threads)
    failed = [name for name in options.networks or sorted(set(torch_zoo.NETWORKS) - set(LARGER)) if not compare(options, name)]
    if failed:
        sys.exit(f"not near PyTorch's step: {', '.join(failed)}")


if __name__ == "__main__":
    main()
