#!/usr/bin/env python3
"""Predicts training steps on GPUs of several hosts: a model, not a measurement.

    benchmarks/predict_scaling.py [--hosts 8] [--gpus 8] [--network-gbit 400] [--network-us 10]

Ranks exchange gradients as NcclLink (engine/comm/device/nccl_link.cpp) does: of a bucket each rank owns 1/N, receives the
other ranks' partial sums of it, and sends their root to all. Both ways are one group of messages each, which takes

    group + max(bytes within the host / link, latency + bytes between hosts / network)

Messages to all ranks leave at once, and each GPU has a port of the network of its own. `group` and `link` are fitted to
two H200 of one host (docs/BENCHMARKS.md, "Several GPUs"), and the first table holds the fit against what was measured.
Rate and latency of the network are assumptions, as is that nothing else uses it. A step is one GPU's plus what of the
exchange it waits for: all of it, or the last bucket alone, which no work of backward is left to hide.
"""
import argparse

GROUP_US = 7.3  # a group of two GPUs' messages without bytes: 256 bytes, whole to all, in one group
LINK_GB_S = 225.0  # fitted to 44.7 and 102 MB, additions included
SENT_WHOLE = 512 << 10  # bytes / ranks; what is not larger goes to all in one group
BUCKET = 8 << 20  # bytes of float32 (kBucketElements of engine/step/rank_exchange.cpp)
LAST = 512 << 10  # of the last bucket (kLastElements)

# Bytes, and us of an exchange alone over NCCL's send and receive, on two H200.
MEASURED = [(256, 7.3), (16384, 9.0), (262144, 11.0), (2781972, 34.5), (44695848, 213.0), (102228128, 469.0)]
# Network and batch a GPU: bytes of float32 gradients and of running statistics, ms of a step on one H200.
STEPS = [("resnet50 256", 102228128, 216064, 27.18), ("resnet18_cifar 512", 44695848, 40960, 5.079),
         ("mobilenet_v1 256", 16928160, 90112, 8.228), ("separable_cnn 1024", 2781972, 0, 0.1479)]


def group_us(sent, hosts, gpus, network):
    """One group, in which each rank sends `sent` bytes to each other rank."""
    within = sent * (gpus - 1) / (LINK_GB_S * 1e3)
    between = network["us"] + sent * gpus * (hosts - 1) / (network["gbit"] / 8 * 1e3) if hosts > 1 else 0.0
    return GROUP_US + max(within, between)


def exchange_us(size, hosts, gpus, network):
    """A bucket's exchange, alone."""
    ranks = hosts * gpus
    if ranks == 1:
        return 0.0
    if size <= SENT_WHOLE / ranks:
        return group_us(size, hosts, gpus, network)
    return 2 * group_us(size / ranks, hosts, gpus, network)


def buckets_of(size, narrow):
    """Bytes of each bucket as it travels."""
    whole = max(size - LAST, 0)
    count = max(round(whole / BUCKET), 1) if whole else 0
    return [part / (2 if narrow else 1) for part in [whole / count] * count + [min(size, LAST)]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=8, help="of each host")
    parser.add_argument("--network-gbit", type=float, default=400, help="Gb/s of each GPU's port (assumed)")
    parser.add_argument("--network-us", type=float, default=10, help="latency of a group of messages (assumed)")
    options = parser.parse_args()
    network = {"gbit": options.network_gbit, "us": options.network_us}

    print("the model beside what was measured: an exchange alone on two H200, over NCCL")
    print(f"{'bytes':>11} {'measured us':>12} {'model us':>9}")
    for size, measured in MEASURED:
        print(f"{size:>11,} {measured:>12.1f} {exchange_us(size, 1, 2, network):>9.1f}")

    ranks = options.hosts * options.gpus
    print(f"\nPREDICTION, not measured: {options.hosts} hosts x {options.gpus} GPUs, {options.network_gbit:g} Gb/s a GPU and"
          f" {options.network_us:g} us between hosts assumed")
    print(f"{'network, batch a GPU':<20} {'gradients':>9} {'exch. ms':>9} {'nothing hidden':>15} {'all but the last':>17}")
    for name, size, statistics, step_ms in STEPS:
        for narrow in (False, True):
            parts = [statistics] * (statistics > 0) + buckets_of(size, narrow)
            times = [exchange_us(part, options.hosts, options.gpus, network) for part in parts]
            alone, last = sum(times) / 1e3, times[-1] / 1e3
            worst, best = step_ms / (step_ms + alone), step_ms / (max(step_ms, alone - last) + last)
            print(f"{name:<20} {'float16' if narrow else 'float32':>9} {alone:>9.3f} {100 * worst:>13.1f} % {100 * best:>15.1f} %")
    print(f"efficiency: a step of one GPU over that of {ranks}")


if __name__ == "__main__":
    main()
