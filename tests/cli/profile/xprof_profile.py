#!/usr/bin/env python3
"""XProf, TensorBoard's profile plugin, reads what `bantam profile step --tensorboard` wrote.

    xprof_profile.py PROGRAM [DEVICE]

Its tools must find the recorded steps, the network's operations and, on a GPU, kernels. Without the package xprof it says so and is skipped.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from xprof.convert.raw_to_tool_data import xspace_to_tool_data
except ImportError:
    print("no xprof: skipped")
    sys.exit(0)

CONFIG = """
model:
  name: tiny
  input: [32, 32, 3]
  layers: [conv2d: {name: stem, filters: 8, kernel: 3, stride: 2}, batch_norm: {activation: relu}, global_average_pool, dense: {name: head, units: 10}]
"""
STEPS = ["2", "3", "4"]


def tables(file, tool):
    """The rows of each of a tool's tables, as objects by column."""
    data, _ = xspace_to_tool_data([str(file)], tool, {"use_saved_result": False})
    data = json.loads(data)
    return [[{column["id"]: cell.get("v") for column, cell in zip(table.get("cols", []), row["c"])} for row in table.get("rows", [])]
            for table in (data if isinstance(data, list) else [data])]


def events(file):
    """Names and durations of the trace viewer's events by the names of their rows."""
    data, _ = xspace_to_tool_data([str(file)], "trace_viewer@", {"trace_viewer_options": {}, "use_saved_result": False})
    rows, found = {}, {}
    for event in json.loads(data)["traceEvents"]:
        if event.get("name") == "thread_name":
            rows[event["pid"], event["tid"]] = event["args"]["name"]
    for event in json.loads(data)["traceEvents"]:
        if event.get("ph") == "X":
            found.setdefault(rows[event["pid"], event["tid"]], []).append((event["name"], event["dur"]))
    return found


def check(file, profile, is_gpu):
    wrong = []
    rows = events(file)
    steps = next((row for name, row in rows.items() if name.startswith("steps")), [])
    if [name for name, _ in steps if name.startswith("step ")] != ["step " + step for step in STEPS]:
        wrong.append(f"the trace viewer has the steps {steps}")
    operations = {row["operation"]: row for row in tables(file, "framework_op_stats")[1]}
    for name in ("stem", "head", "loss"):
        ours = next(row["us"] for row in profile["operations"] if row["name"] == name)
        theirs = sum(row["total_time"] for row in tables(file, "framework_op_stats")[1] if row["operation"] == name)
        if name not in operations or not 0.2 * ours * len(STEPS) < theirs < 5 * ours * len(STEPS):
            wrong.append(f"operation {name}: {theirs} us in {len(STEPS)} steps, {ours} us a step by bantam")
    times = [row for table in tables(file, "overview_page") for row in table if "stepTimeMs" in row]
    if len(times) != len(STEPS) or any(float(row["stepTimeMs"]) <= 0 for row in times):
        wrong.append(f"the overview has the steps {times}")
    if is_gpu and not tables(file, "kernel_stats")[0]:
        wrong.append("no kernels")
    return wrong


def main(arguments):
    program, device = str(Path(arguments[0]).resolve()), arguments[1] if len(arguments) > 1 else "cpu"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tiny.yaml").write_text(CONFIG)
        done = subprocess.run([program, "profile", "step", "tiny.yaml", "--device", device, "--steps", f"{STEPS[0]}-{STEPS[-1]}", "--threads", "2",
                               "--tensorboard", "logs", "--json"], cwd=folder, check=True, capture_output=True, text=True)
        files = list(Path(folder).glob("logs/plugins/profile/*/*.xplane.pb"))
        wrong = check(files[0], json.loads(done.stdout), device != "cpu") if len(files) == 1 else [f"files: {files}"]
    print("\n".join(wrong) or "xprof reads the profile")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
