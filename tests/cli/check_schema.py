"""Checks `bantam schema` with Python's jsonschema: check_schema.py SCHEMA.json CONFIGS.

The schema is one of draft 2020-12; every configuration in the folder CONFIGS validates; and edits that a reader refuses
do not: an unknown key in any map, a value of another type, a number out of range, a key of another format."""
import copy
import json
import pathlib
import sys

import jsonschema
import yaml

schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)


class Loader(yaml.SafeLoader):
    """YAML 1.2's booleans: `on` and `off` are words."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in pairs if tag != "tag:yaml.org,2002:bool"]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", __import__("re").compile("^(true|false)$"), list("tf"))


def load(text):
    return yaml.load(text, Loader)


def maps_of(value, own=frozenset()):
    """All maps in a value, but those whose keys are names that a file defines (parameters, blocks, options of `own` blocks), and scheduled values,
    whose keys their schedule decides."""
    if isinstance(value, dict):
        if "schedule" not in value or "optimizer" in value:
            yield value
        for name, inner in value.items():
            if name not in own and name != "parameters":
                yield from list(maps_of(inner, own))[name == "blocks":]
    if isinstance(value, list):
        for inner in value:
            yield from maps_of(inner, own)


def own_blocks(config):
    return frozenset((config.get("model") or {}).get("blocks") or {})


def accept(config, what):
    errors = [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in validator.iter_errors(config)]
    assert not errors, f"{what}: {errors}"


def refuse(config, what):
    assert not validator.is_valid(config), f"{what} is accepted"


paths = sorted(pathlib.Path(sys.argv[2]).rglob("*.yaml"))
assert len(paths) >= 6, paths
for path in paths:
    config = load(path.read_text())
    accept(config, path)
    for number, _ in enumerate(maps_of(config, own_blocks(config))):
        edited = copy.deepcopy(config)
        list(maps_of(edited, own_blocks(edited)))[number]["no_such_key"] = 1
        refuse(edited, f"{path}: an unknown key in map {number}")

base = "model: {zoo: separable_cnn}\n"
for text in [
    base,
    "model: {zoo: mobilenet_v1, width: 0.5}",
    "model: {input: [784], layers: [dense: {units: 10}]}",
    "model: {input: [8, 8, 3], layers: [relu, residual: {body: [conv2d: {filters: 3, kernel: [3, 1], padding: same}]}, "
    "conv2d: {filters: 2, kernel: 3, padding: {top: 1}, activation: {leaky_relu: {slope: 0.2}}}, batch_norm: {rate: 0.1}]}",
    "model: {input: [784], layers: [block: {body: [block: {body: [relu]}]}]}",
    "model: {input: [784], blocks: {wide: {layers: [dense: {units: 9}]}}, layers: [wide, wide: {repeat: 2}]}",
    base + "fusion: off\nrecompute: [cheap, a..b]\nmemory: {limits: {cpu: 8GiB, 'cuda:0': 4096}, budget: 1.5GiB}",
    base + "data: {format: idx, path: x, classes: [a, b], image_size: 28, pipeline: [shuffle: , batch: {size: auto}]}",
    base + "data: {format: generated, seed: 3, limit: 5, pipeline: [cache: off, batch: {size: 4}, prefetch]}",
    base + "train: {loss: softmax_cross_entropy, label_smoothing: 0.1, log_every: 50updates, optimizer: adamw}",
    base + "train: {loss: {softmax_cross_entropy: {label_smoothing: 0.1}}, metrics: [], callbacks: []}",
]:
    accept(load(text), text)
for text in [
    "{}",
    "model: {zoo: separable_cnn, layers: [relu]}",
    "model: {zoo: separable_cnn, width: 0.5}",
    "model: {zoo: alexnet}",
    "model: {input: [784]}",
    "model: {input: [784], layers: [dense]}",
    "model: {input: [784], layers: [dense: {units: 0}]}",
    "model: {input: [784], layers: [dens: {units: 1}]}",
    "model: {input: [784], layers: [dens]}",
    "model: {input: [8, 8, 3], layers: [batch_norm: {rate: 0.1, momentum: 0.9}]}",
    base + "seed: -1",
    base + "seed: many",
    base + "fusion: true",
    base + "memory: {limits: {cpu: 4 gigs}}",
    base + "data: {format: idx, pipeline: [batch: {size: 4}]}",
    base + "data: {format: generated, path: x, pipeline: [batch: {size: 4}]}",
    base + "data: {format: cifar11, pipeline: [batch: {size: 4}]}",
    base + "data: {format: generated, pipeline: [cache, batch: {size: 4}]}",
    base + "data: {format: generated, pipeline: [batch]}",
    base + "train: {label_smoothing: 1}",
    base + "train: {log_every: 1h}",
    base + "train: {optimizer: {sgd: {momentum: 1}}}",
]:
    refuse(load(text), text)
print(f"{len(paths)} configurations are valid")
