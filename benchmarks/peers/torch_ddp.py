#!/usr/bin/env python3
"""One data-parallel training step of Bantam's networks in PyTorch DDP over NCCL, one process a GPU.

Rank 0 prints one JSON object a case: model, batch (of one GPU), gpus, precision, mode, ms_per_step (median of windows, the slowest rank's),
images_per_s (of all GPUs), peak_bytes. `--allreduce` times NCCL's sums of float32 instead, called and captured.

  torchrun --standalone --nproc-per-node 2 benchmarks/peers/torch_ddp.py --model resnet50 --batch 256 --precision bf16 --mode graph

Modes:  eager    DDP as documented, channels_last, fused optimizer
        compile  torch.compile(DDP(model))
        graph    DDP(torch.compile(model)), the whole step captured in one CUDA graph, NCCL inside
"""
import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")  # needed where NCCL is captured

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from torch_step import AUTOCAST, optimizer_of
from torch_zoo import NETWORKS, make

SIZES = (64, 4096, 65536, 695493, 11173962, 25557032)  # floats: of small messages, and of three networks' gradients


def slowest(seconds, device):
    value = torch.tensor([seconds], device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return value.item()


def timed(run, seconds, device):
    """Median seconds of a call; all ranks make the same calls."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(10):
        run()
    torch.cuda.synchronize()
    calls = max(1, int(0.1 / (slowest(time.perf_counter() - begin, device) / 10)))
    windows = []
    for _ in range(max(5, int(seconds / 0.1))):
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        torch.cuda.synchronize()
        windows.append(slowest(time.perf_counter() - begin, device) / calls)
    return statistics.median(windows)


def make_step(name, batch, precision, mode, device):
    _, size, classes = NETWORKS[name]
    torch.manual_seed(0)
    network = make(name).to(device, memory_format=torch.channels_last)
    images = torch.rand(batch, 3, size, size, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), device=device)
    half = AUTOCAST[precision]
    inner = torch.compile(network) if mode == "graph" else network
    model = DistributedDataParallel(inner, device_ids=[device.index], gradient_as_bucket_view=True, static_graph=mode == "graph")
    if mode == "compile":
        model = torch.compile(model)
    optimizer = optimizer_of(name, network.parameters(), True)
    scaler = torch.amp.GradScaler("cuda", enabled=precision == "f16")

    def step():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", dtype=half or torch.bfloat16, enabled=half is not None):
            loss = functional.cross_entropy(model(images).float(), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


def measure(name, batch, precision, mode, seconds, device):
    torch.backends.cudnn.benchmark = True
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step = make_step(name, batch, precision, mode, device)
        for _ in range(12):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    dist.barrier()
    run, graph = step, None
    if mode == "graph":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            step()
        run = graph.replay
    took = timed(run, seconds, device)
    gpus = dist.get_world_size()
    if dist.get_rank() == 0:
        print(json.dumps({"peer": f"torch {torch.__version__} DDP, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}", "model": name, "batch": batch,
                          "gpus": gpus, "precision": precision, "mode": mode, "ms_per_step": round(took * 1e3, 4),
                          "images_per_s": round(batch * gpus / took), "peak_bytes": torch.cuda.max_memory_allocated()}), flush=True)
    if graph is not None:
        graph.reset()


def allreduce(seconds, device):
    gpus = dist.get_world_size()
    for count in SIZES:
        for captured in (False, True):
            values = torch.zeros(count, device=device)
            dist.all_reduce(values)
            torch.cuda.synchronize()
            run, calls = (lambda: dist.all_reduce(values)), 1
            if captured:
                graph, calls = torch.cuda.CUDAGraph(), 20
                with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                    for _ in range(calls):
                        dist.all_reduce(values)
                run = graph.replay
            took = timed(run, seconds, device) / calls
            if dist.get_rank() == 0:
                print(json.dumps({"allreduce_bytes": count * 4, "gpus": gpus, "captured": captured, "us": round(took * 1e6, 2),
                                  "bus_gb_s": round(count * 4 * 2 * (gpus - 1) / gpus / took / 1e9, 1)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=sorted(NETWORKS))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", default="bf16", choices=sorted(AUTOCAST))
    parser.add_argument("--mode", action="append", choices=["eager", "compile", "graph"])
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--allreduce", action="store_true")
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    if options.allreduce:
        allreduce(options.seconds / 3, device)
    for name in options.model or []:
        for mode in options.mode or ["graph"]:
            measure(name, options.batch, options.precision, mode, options.seconds, device)
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch._dynamo.reset()
    dist.barrier()
    torch.cuda.synchronize()
    os._exit(0)  # captured NCCL work and its watchdog do not always tear down


main()
