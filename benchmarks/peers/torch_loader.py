#!/usr/bin/env python3
"""Images a second of PyTorch's DataLoader with torchvision on a folder of photographs: random_resized_crop 224, flip, normalise.

  benchmarks/peers/torch_loader.py DIR [--cores 2] [--decoder pillow|torchvision|both] [--seconds 10] [--batch-size 64]

DIR has class folders, or train/ with those. Pillow: torchvision's ImageFolder and transforms on PIL images, as its examples have them.
torchvision: files read and decoded by torchvision.io, transforms.v2 on uint8 tensors, normalised at the end. Workers are as many as --cores,
to which the process is pinned; several counts (2,8,16) are measured one after the other. Prints one JSON object a measurement.
"""
import argparse
import json
import os
import pathlib
import time

import torch
import torchvision
from torchvision import transforms
from torchvision.transforms import v2

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pillow_set(folder, size):
    """Each image by Pillow, as torchvision's reference training script does it."""
    return torchvision.datasets.ImageFolder(folder, transforms.Compose([
        transforms.RandomResizedCrop(size), transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]))


def tensor_set(folder, size):
    """Each image by torchvision.io, as uint8 tensors until the last step."""
    rgb = torchvision.io.ImageReadMode.RGB
    return torchvision.datasets.ImageFolder(
        folder, loader=lambda path: torchvision.io.decode_image(torchvision.io.read_file(path), mode=rgb),
        transform=v2.Compose([v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True),
                              v2.Normalize(MEAN, DEVIATION)]))


def measure(dataset, workers, options):
    """Images a second over whole batches, after a warm-up of two seconds; epochs follow one another."""
    loader = torch.utils.data.DataLoader(dataset, options.batch_size, shuffle=True, num_workers=workers, persistent_workers=True,
                                         prefetch_factor=options.prefetch, drop_last=len(dataset) >= options.batch_size)
    begin, images = time.perf_counter() + min(2.0, options.seconds / 2), 0
    while True:
        for batch, _ in loader:
            now = time.perf_counter()
            if now < begin:
                counted_from = now
                continue
            images += len(batch)
            if now - begin >= options.seconds:
                return images / (now - counted_from)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR")
    parser.add_argument("--cores", default=str(len(os.sched_getaffinity(0))), help="how many, or several counts: 2,8,16")
    parser.add_argument("--decoder", default="both", choices=["pillow", "torchvision", "both"])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--prefetch", type=int, default=4, help="batches made ahead by each worker")
    options = parser.parse_args()
    folder = pathlib.Path(options.folder)
    folder = folder / "train" if (folder / "train").is_dir() else folder
    torch.set_num_threads(1)  # as in the workers
    all_cores = sorted(os.sched_getaffinity(0))
    for cores in [int(text) for text in options.cores.split(",")]:
        if cores > len(all_cores):
            parser.error(f"--cores {cores}: this process has {len(all_cores)}")
        os.sched_setaffinity(0, all_cores[:cores])
        for name, make in (("pillow", pillow_set), ("torchvision", tensor_set)):
            if options.decoder in (name, "both"):
                rate = measure(make(folder, options.size), cores, options)
                print(json.dumps({"decoder": name, "cores": cores, "batch": options.batch_size, "images_per_s": rate,
                                  "torch": torch.__version__, "torchvision": torchvision.__version__}), flush=True)


if __name__ == "__main__":
    main()
