#!/usr/bin/env python3
"""PyTorch trains a small network inside a Bantam limit on a GPU: its memory comes from Bantam's pool and stands in Bantam's report.

    python3 benchmarks/peers/torch_in_bantam.py --library build/engine/libbantam_pool.so [--limit-mib 3072] [--updates 200]

The same training runs first in a process of its own with PyTorch's allocator: losses must be the same, and memory and time are printed
beside each other. Then, in the pool: what passes the limit is refused with Bantam's message and training goes on; a tensor of another
stream (record_stream) is not reused early; CuPy, where it is installed, allocates from the same pool. Exit code 1 where a check fails.
"""
import argparse
import ctypes
import gc
import json
import subprocess
import sys
import time

OUT_OF_MEMORY, IN_USE = 2, 3


class Pool:
    """bantam_pool_* of libbantam_pool.so (engine/interop/pool_functions.h)."""

    def __init__(self, path, device, limit_bytes, name):
        self.path = path
        self.library = library = ctypes.CDLL(path)
        pointer, size, text = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p
        for function, result, arguments in (
                ("last_error", text, []), ("open", ctypes.c_int, [text, size, text, ctypes.POINTER(pointer)]),
                ("close", ctypes.c_int, [pointer]), ("serve", ctypes.c_int, [pointer]),
                ("allocate", pointer, [pointer, ctypes.c_size_t, pointer]), ("free", ctypes.c_int, [pointer, pointer]),
                ("set_limit", ctypes.c_int, [pointer, size]), ("trim", size, [pointer]),
                ("reserve_for", ctypes.c_int, [pointer, text, size]), ("report", pointer, [pointer, ctypes.c_int]),
                ("free_text", None, [pointer])):
            entry = getattr(library, "bantam_pool_" + function)
            entry.restype, entry.argtypes = result, arguments
        self.handle = pointer()
        self.check(library.bantam_pool_open(device.encode(), limit_bytes, name.encode(), ctypes.byref(self.handle)))

    def error(self):
        return self.library.bantam_pool_last_error().decode()

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.error())

    def report(self, as_json=False):
        at = self.library.bantam_pool_report(self.handle, int(as_json))
        text = ctypes.string_at(at).decode()
        self.library.bantam_pool_free_text(at)
        return json.loads(text) if as_json else text

    def allocate(self, size, stream):
        address = self.library.bantam_pool_allocate(self.handle, size, stream)
        if not address and size:
            raise MemoryError(self.error())
        return address or 0

    def free(self, address):
        self.check(self.library.bantam_pool_free(self.handle, address))


def give_to_torch(pool):
    """PyTorch's tensors of CUDA devices are in the pool from here on: before the first of them."""
    import torch
    pool.check(pool.library.bantam_pool_serve(pool.handle))
    allocator = torch.cuda.memory.CUDAPluggableAllocator(pool.path, "bantam_torch_alloc", "bantam_torch_free")
    record = ctypes.cast(pool.library.bantam_torch_record_stream, ctypes.c_void_p).value
    allocator.allocator().set_record_stream_fn(record)
    torch.cuda.memory.change_current_allocator(allocator)


def train(updates):
    """Losses of a small convolutional network on images that are made here, and milliseconds an update."""
    import torch
    from torch import nn
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AvgPool2d(2),
                          nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.AvgPool2d(4),
                          nn.Flatten(), nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    labels = torch.randint(0, 10, (1024,))
    images = 0.3 * torch.randn(1024, 3, 32, 32)
    for index, label in enumerate(labels.tolist()):
        images[index, :, 3 * label, :] += 1.0
    images, labels = images.cuda(), labels.cuda()
    losses, start = [], None
    for update in range(updates):
        if update == updates // 2:
            torch.cuda.synchronize()
            start = time.perf_counter()
        batch = slice(update * 128 % 1024, update * 128 % 1024 + 128)
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    ms = 1e3 * (time.perf_counter() - start) / (updates - updates // 2)
    return [float(loss) for loss in losses], ms


def native(updates):
    import torch
    losses, ms = train(updates)
    print(json.dumps({"losses": losses, "ms": ms, "peak": torch.cuda.max_memory_allocated(),
                      "reserved": torch.cuda.max_memory_reserved()}))


def refused_and_then_works(pool, limit):
    """Whether a tensor beyond the limit is refused, and one within it is not."""
    import torch
    try:
        torch.empty(limit, dtype=torch.uint8, device="cuda")
        return False, "no error"
    except RuntimeError as error:  # PyTorch's name for an allocator's exception
        message = str(error)
    return bool((torch.ones(1024, device="cuda").sum() == 1024).item()), message


def record_stream_holds():
    """A block that another stream still reads is not overwritten by its next owner."""
    import torch
    side = torch.cuda.Stream()
    for _ in range(5):
        source = torch.ones(1 << 24, device="cuda")
        busy = torch.randn(4096, 4096, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            for _ in range(20):
                busy = busy @ busy * 1e-3
            copy = source.clone()
        source.record_stream(side)
        address = source.data_ptr()
        del source
        taken = [torch.zeros(1 << 24, device="cuda") for _ in range(2)]
        torch.cuda.synchronize()
        if float(copy.min()) != 1.0:
            return False, "overwritten"
        reused = any(tensor.data_ptr() == address for tensor in taken)
        del taken, copy, busy
    return True, "its memory was reused after the read" if reused else "its memory was not reused at once"


def cupy_in_pool(pool):
    try:
        import cupy
    except ImportError:
        return None, "CuPy is not installed"
    allocator = cupy.cuda.PythonFunctionAllocator(
        lambda size, device: pool.allocate(size, cupy.cuda.get_current_stream().ptr),
        lambda address, device: pool.free(address) if address else None)
    cupy.cuda.set_allocator(allocator.malloc)
    before = pool.report(True)["in_use_bytes"]
    values = cupy.arange(1 << 20, dtype=cupy.float32)
    used = pool.report(True)["in_use_bytes"] - before
    right = float(values.max()) == (1 << 20) - 1 and used >= 4 << 20
    del values
    cupy.cuda.set_allocator(None)
    return right, f"{used} bytes in the pool for an array of {4 << 20}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="build/engine/libbantam_pool.so")
    parser.add_argument("--limit-mib", type=int, default=3072)
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--native", action="store_true", help="only train with PyTorch's allocator, and print JSON")
    options = parser.parse_args()
    if options.native:
        return native(options.updates)
    beside = json.loads(subprocess.run([sys.executable, __file__, "--native", "--updates", str(options.updates)], check=True,
                                       capture_output=True, text=True).stdout.splitlines()[-1])
    limit = options.limit_mib << 20
    pool = Pool(options.library, "cuda:0", limit, "torch")
    give_to_torch(pool)
    import torch
    losses, ms = train(options.updates)
    report = pool.report(True)
    print(pool.report())
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}, {options.updates} updates of 128 images")
    print(f"{'':24}{'peak in use':>16}{'reserved':>16}{'ms/update':>12}{'last loss':>12}")
    print(f"{'PyTorch allocator':24}{beside['peak']:16}{beside['reserved']:16}{beside['ms']:12.3f}{beside['losses'][-1]:12.5f}")
    print(f"{'Bantam pool':24}{report['peak_bytes']:16}{report['peak_held_bytes']:16}{ms:12.3f}{losses[-1]:12.5f}")
    checks = {
        "losses have the same bits": (losses == beside["losses"], f"{sum(a == b for a, b in zip(losses, beside['losses']))} of {len(losses)}"),
        "the network learns": (losses[-1] < 0.5 * losses[0], f"{losses[0]:.4f} to {losses[-1]:.4f}"),
        "the process stays in the limit": (report["total_bytes"] <= limit, f"{report['total_bytes']} of {limit} bytes"),
        "PyTorch stands in the report": (any(h["layer"] == "torch" for h in report["holders"]), ""),
        "more than the limit is refused": refused_and_then_works(pool, limit),
        "record_stream holds": record_stream_holds(),
        "CuPy in the same pool": cupy_in_pool(pool),
    }
    status = pool.library.bantam_pool_reserve_for(pool.handle, b"another library", 64 << 20)
    lines = {line["name"]: line["bytes"] for line in pool.report(True)["overhead"]}
    checks["a reservation is a line of the report"] = (status == 0 and lines.get("another library") == 64 << 20, pool.error())
    gc.collect()
    status = pool.library.bantam_pool_close(pool.handle)
    checks["closing is refused while PyTorch has memory"] = (status in (0, IN_USE), pool.error() if status else "closed")
    for name, (right, what) in checks.items():
        print(f"{'skipped' if right is None else 'ok' if right else 'FAILED':8}{name}: {what}")
    return 0 if all(right is None or right for right, _ in checks.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
