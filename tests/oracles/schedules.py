"""Expected values of schedules (tests/engine/optimizers/schedule_values.h) from torch.optim.lr_scheduler. Needs PyPI's torch.

python tests/oracles/schedules.py > tests/engine/optimizers/schedule_values.h
"""
import math
import warnings

import torch
from torch.optim import lr_scheduler as torch_lr

warnings.filterwarnings("ignore")
PEAK, UPDATES, AN_EPOCH = 0.1, 40, 8  # of the run
ASKED = [0, 1, 2, 3, 7, 8, 9, 12, 15, 16, 17, 20, 24, 28, 31, 32, 38, 39]


def values(make, peak=PEAK, momentum=False):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=peak, momentum=0.9)
    schedule = make(optimizer)
    found = []
    for _ in range(UPDATES):
        found.append(optimizer.param_groups[0]["momentum" if momentum else "lr"])
        optimizer.step()
        if found[UPDATES - 1:]:
            break
        schedule.step()
    return [found[n] for n in ASKED]


def after_warm_up(make, updates, start):
    def sequence(optimizer):
        first = torch_lr.LinearLR(optimizer, start_factor=start, end_factor=1.0, total_iters=updates)
        return torch_lr.SequentialLR(optimizer, [first, make(optimizer)], milestones=[updates])
    return sequence


def plateau():
    """The rate after each of 12 evaluations whose losses are these."""
    losses = [1.0, 0.9, 0.8999, 0.95, 0.91, 0.7, 0.71, 0.72, 0.73, 0.74, 0.75, 0.6]
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=PEAK)
    schedule = torch_lr.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=1e-3, cooldown=1, min_lr=0.02)
    found = []
    for loss in losses:
        schedule.step(loss)
        found.append(optimizer.param_groups[0]["lr"])
    return losses, found


def array(name, found):
    numbers = ", ".join(f"{value:.9g}" for value in found)
    print(f"inline constexpr std::array<double, {len(found)}> {name} = {{{numbers}}};")


print("// Made by tests/oracles/schedules.py with torch %s: values of schedules at kAsked." % torch.__version__.split("+")[0])
print("#pragma once\n\n#include <array>\n\nnamespace bantam::testing {\n\n// clang-format off")
print("inline constexpr std::array kAsked = {%s};" % ", ".join(map(str, ASKED)))
array("kConstant", values(lambda o: torch_lr.ConstantLR(o, factor=1.0)))
array("kLinear", values(lambda o: torch_lr.LinearLR(o, start_factor=1.0, end_factor=0.1, total_iters=UPDATES)))
array("kCosine", values(lambda o: torch_lr.CosineAnnealingLR(o, T_max=UPDATES, eta_min=0.001)))
array("kWarmCosine", values(after_warm_up(lambda o: torch_lr.CosineAnnealingLR(o, T_max=UPDATES - 8), 8, 0.01)))
array("kPolynomial", values(lambda o: torch_lr.PolynomialLR(o, total_iters=24, power=0.9)))
array("kStep", values(lambda o: torch_lr.StepLR(o, step_size=12, gamma=0.3)))
array("kMultiStep", values(lambda o: torch_lr.MultiStepLR(o, milestones=[8, 20, 32], gamma=0.5)))
array("kExponential", values(lambda o: torch_lr.ExponentialLR(o, gamma=0.95)))
array("kWarmExponential", values(after_warm_up(lambda o: torch_lr.ExponentialLR(o, gamma=0.95), 4, 0.1)))
array("kInverseSqrt", values(lambda o: torch_lr.LambdaLR(
    o, lambda n: n / 9 if n < 9 else math.sqrt(9 / n))))
array("kOneCycle", values(lambda o: torch_lr.OneCycleLR(o, max_lr=PEAK, total_steps=UPDATES)))
array("kOneCycleLinear", values(lambda o: torch_lr.OneCycleLR(
    o, max_lr=PEAK, total_steps=UPDATES, pct_start=0.4, anneal_strategy="linear", div_factor=10, final_div_factor=100)))
array("kOneCycleMomentum", values(lambda o: torch_lr.OneCycleLR(o, max_lr=PEAK, total_steps=UPDATES), momentum=True))
array("kPiecewise", values(lambda o: torch_lr.LambdaLR(
    o, lambda n: n / 8 if n < 8 else 1 - (n - 8) / 24 if n < 32 else 0.0)))
losses, found = plateau()
array("kLosses", losses)
array("kOnPlateau", found)
print("// clang-format on\n\n}  // namespace bantam::testing")
