#!/usr/bin/env python3
"""One training step of a network of the zoo in PyTorch, without dropout: `case` makes random weights, images and labels by Bantam's names; `step`
returns the loss, the gradients and the running statistics after the step by the same names, in float64 or float32.

  benchmarks/peers/torch_gradients.py resnet18 --size 64 --classes 10 --input in.safetensors --output out.safetensors
"""
import argparse

import torch
from torch.nn import functional

import safetensors_file
import torch_zoo


def case(name, size, classes, width, batch, seed):
    """The model, images and labels. Images have mean 0 and variance 1."""
    model = torch_zoo.randomise(torch_zoo.without_drops(torch_zoo.make(name, size, classes, width)), seed)
    generator = torch.Generator().manual_seed(seed + 1)
    images = torch.randn(batch, 3, size, size, generator=generator)
    labels = torch.randint(classes, (batch, size, size) if name == "unet" else (batch,), generator=generator)
    return model, images, labels


def tensors_of_case(model, images, labels):
    found = {name: tensor.contiguous() for name, tensor in torch_zoo.bantam_tensors(model).items()}
    return found | {"images": images.permute(0, 2, 3, 1).contiguous(), "labels": labels.int()}


def step(model, images, labels, dtype=torch.float64):
    """The model's weights are left as they are; its type becomes `dtype`, its running statistics move."""
    model.to(dtype).train()
    model.zero_grad(set_to_none=True)
    loss = functional.cross_entropy(model(images.to(dtype)), labels.long())
    loss.backward()
    return {"loss": loss.detach().reshape(1)} | {name: tensor.clone() for name, tensor in torch_zoo.bantam_tensors(model, gradients=True).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", choices=torch_zoo.NETWORKS)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", required=True, help="file for weights, images and labels")
    parser.add_argument("--output", required=True, help="file for loss, gradients and running statistics")
    options = parser.parse_args()
    model, images, labels = case(options.network, options.size, options.classes, options.width, options.batch, options.seed)
    safetensors_file.write(options.input, tensors_of_case(model, images, labels))
    safetensors_file.write(options.output, {name: tensor.float() for name, tensor in step(model, images, labels).items()})


if __name__ == "__main__":
    main()
