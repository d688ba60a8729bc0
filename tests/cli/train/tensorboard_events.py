#!/usr/bin/env python3
"""TensorBoard's own EventAccumulator reads what a run wrote, stopped and resumed on its way.

    tensorboard_events.py PROGRAM

Every number of metrics.jsonl is there bit for bit as float32, once; histograms are those of histograms.jsonl; pictures, matrices, hyperparameters
and the graph are what the configuration says. Without the package tensorboard it says so and is skipped.
"""
import json
import math
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import plugin_data_pb2
except ImportError:
    print("no tensorboard: skipped")
    sys.exit(0)

CONFIG = """
seed: 7
device: cpu
data:
  format: generated
  train_samples: 96
  test_samples: 20
  pipeline: [shuffle: {}, random_flip: {}, normalize: {scale: 0.0039}, batch: {size: 16}]
model:
  name: tiny
  input: [32, 32, 3]
  layers:
    - conv2d: {name: stem, filters: 4, kernel: 3, stride: 4}
    - batch_norm: {activation: relu}
    - global_average_pool
    - dense: {name: head, units: 10}
train:
  epochs: 3
  metrics: [accuracy, f1, confusion_matrix]
  evaluate: {every: 4updates}
  log_every: 4
  optimizer: {sgd: {learning_rate: 0.05}}
log: {tensorboard: true, histograms: 5, images: 3}
"""
UPDATES_AN_EPOCH = 6


def bits(value):
    """Of a float32; all NaN are one."""
    return "nan" if value is None or math.isnan(value) else struct.pack("<f", value)


def expected_scalars(lines):
    """By folder: tag → [(step, bits)]."""
    scalars = {"train": {}, "validation": {}}
    for line in lines:
        if "updates" in line:
            step = line["updates"]
        elif "update" in line:
            step = (line["epoch"] - 1) * UPDATES_AN_EPOCH + line["update"]
        else:
            step = line["epoch"] * UPDATES_AN_EPOCH
        for key, value in line.items():
            if key in ("epoch", "update", "updates"):
                continue
            folder, tag = "train", f"{line['kind']}/{key.removeprefix('test_')}"
            if key.startswith("validation_") or line["kind"] == "evaluation":
                folder, tag = "validation", f"epoch/{key.removeprefix('validation_')}"
            if isinstance(value, str) or (isinstance(value, list) and isinstance(value[0], list)):
                continue
            values = {f"{tag}/{i}": v for i, v in enumerate(value)} if isinstance(value, list) else {tag: value}
            for name, number in values.items():
                scalars[folder].setdefault(name, []).append((step, bits(number)))
    return scalars


def check_histograms(events, run):
    lines = [json.loads(line) for line in (run / "histograms.jsonl").read_text().splitlines()]
    assert len(lines) == 3 * 12, f"3 updates of 6 weights and their gradients, got {len(lines)}"
    steps = {}
    for line in lines:
        tag = ("gradients/" if line["kind"] == "gradient" else "weights/") + line["tensor"]
        found = [event for event in events.Histograms(tag) if event.step == line["update"]]
        assert len(found) == 1, f"{tag} at {line['update']}: {len(found)} histograms"
        histogram = found[0].histogram_value
        assert histogram.bucket == line["counts"], tag
        assert [bits(x) for x in histogram.bucket_limit] == [bits(x) for x in line["edges"][1:]], tag
        assert histogram.num == sum(line["counts"]) and math.isclose(histogram.sum, line["mean"] * histogram.num), tag
        steps.setdefault(tag, []).append(line["update"])
    assert sorted(events.Tags()["histograms"]) == sorted(steps)
    assert all(at == [5, 10, 15] for at in steps.values()), steps


def check_pictures(events, validation, lines):
    for split in ("held_out", "training"):
        tags = sorted(tag for tag in events.Tags()["images"] if tag.startswith(f"samples/{split}/"))
        assert len(tags) == 3 and all(len(tag.split(" ", 1)) == 2 for tag in tags), tags
        for tag in tags:
            (image,) = events.Images(tag)
            assert (image.width, image.height) == (32, 32) and image.encoded_image_string[:4] == b"\x89PNG"
    matrices = [line for line in lines if line["kind"] == "epoch" and "validation_confusion_matrix" in line]
    assert matrices, "epochs have a matrix"
    pictures = validation.Images("epoch/confusion_matrix")
    matrices = [line for line in lines if "validation_confusion_matrix" in line]
    assert len(pictures) == len(matrices) and pictures[0].width == 10 * 26
    table = validation.Tensors("epoch/confusion_matrix/table")[-1].tensor_proto.string_val[0].decode()
    last = matrices[-1]["validation_confusion_matrix"]
    assert [[float(cell) for cell in row.split("|")[2:-1]] for row in table.splitlines()[2:]] == last, table


def check_rest(events, run):
    nodes = {node.name: node for node in events.Graph().node}
    (last,) = nodes["training/loss"].input
    assert last in nodes and ("head" == last or b"head" in nodes[last].attr["layers"].s), nodes.keys()
    assert list(nodes["stem"].input) == ["input"], nodes["stem"]
    assert all(name in nodes for node in nodes.values() for name in node.input)
    shape = nodes["stem"].attr["_output_shapes"].list.shape[0]
    assert [dimension.size for dimension in shape.dim][0] == -1 and shape.dim[3].size == 4
    data = {}
    for tag in ("experiment", "session_start_info", "session_end_info"):
        metadata = events.SummaryMetadata("_hparams_/" + tag)
        data[tag] = plugin_data_pb2.HParamsPluginData.FromString(metadata.plugin_data.content)
    start = data["session_start_info"].session_start_info
    assert start.hparams["train.epochs"].number_value == 3
    assert start.hparams["train.optimizer.sgd.learning_rate"].number_value == 0.05
    assert start.hparams["data.pipeline.batch.size"].number_value == 16
    assert start.group_name == "r"
    assert data["session_end_info"].session_end_info.status == 1, "the run has ended well"
    tags = [(info.name.group, info.name.tag) for info in data["experiment"].experiment.metric_infos]
    assert tags == [("../validation", "epoch/accuracy"), ("../validation", "epoch/loss"), ("", "epoch/loss")], tags
    text = events.Tensors("config")[0].tensor_proto.string_val[0].decode()
    assert (run / "config.yaml").read_text().split("train:")[0] in text


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        config, run = Path(folder) / "tiny.yaml", Path(folder) / "r"
        config.write_text(CONFIG)

        def train(*arguments):
            subprocess.run([program, "train", *arguments, "--threads", "1"], check=True, capture_output=True, cwd=folder)

        train(str(config), "--run-dir", "r", "train.max_updates=10")
        train("--resume", "r", "train.max_updates=0")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        everything = {"scalars": 0, "images": 0, "histograms": 0, "tensors": 0}
        folders = {
            name: EventAccumulator(str(run / "tensorboard" / name), size_guidance=everything).Reload()
            for name in ("train", "validation")
        }
        events = folders["train"]
        by_folder = expected_scalars(lines)
        for folder, expected in by_folder.items():
            assert sorted(folders[folder].Tags()["scalars"]) == sorted(expected), folder
            for tag, values in expected.items():
                found = [(event.step, bits(event.value)) for event in folders[folder].Scalars(tag)]
                assert found == values, f"{folder}: {tag}: {found}, expected {values}"
        assert "epoch/loss" in by_folder["train"] and "epoch/loss" in by_folder["validation"]
        check_histograms(events, run)
        check_pictures(events, folders["validation"], lines)
        check_rest(events, run)
        numbers = [values for expected in by_folder.values() for values in expected.values()]
        print(f"{sum(map(len, numbers))} scalars of {len(numbers)} curves, bit for bit")


if __name__ == "__main__":
    main()
