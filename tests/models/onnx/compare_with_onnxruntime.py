#!/usr/bin/env python3
"""Networks as ONNX files: onnx's checker, and ONNX Runtime's outputs beside ours.

  compare_with_onnxruntime.py ONNX_OUTPUTS [zoo|layers|forms] [NETWORK …]

zoo: every network of the zoo, also with batch norms folded. layers: every kind of layer on odd shapes, in the lowest, the default and the highest opset. forms: channels last, a fixed
batch, preprocessing and float16, for some networks. Weights are those of a network that was trained: running statistics are not 0 and 1.

float32 outputs may differ by 1e-4. Of float16 ones the bound is measured: the float32 file
with every weight and every node's output rounded to float16 is what a perfect float16 computation does; the distance of its outputs from the float32
ones, times four since other roundings fall otherwise, is what a float16 file may be off.
"""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
    import onnx
    import onnxruntime
except ImportError:
    print("no onnxruntime: skipped")
    sys.exit(0)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from onnx_cases import LAYERS, ZOO, chain  # noqa: E402

BOUND, HALF_MARGIN = 1e-4, 4
FORM_NETWORKS = ("resnet20", "separable_cnn", "vgg11", "mobilenet_v3_small", "convnext_tiny", "unet")


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    return {name: numpy.frombuffer(data[begin + row["data_offsets"][0]:begin + row["data_offsets"][1]], dtype=numpy.float32).reshape(row["shape"])
            for name, row in json.loads(data[8:begin]).items() if name != "__metadata__"}


def session_of(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    if any(tensor.data_type == onnx.TensorProto.FLOAT16 for tensor in model.graph.initializer):
        # Its fusion of convolutions with batch norms computes in float16, and is off by five times what the file is.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(model, images):
    """Outputs for images (batch, height, width, channels), and whether they come with channels first."""
    wanted = session_of(model)
    first = images.ndim == 4 and list(wanted.get_inputs()[0].shape[1:]) != list(images.shape[1:])
    inputs = numpy.ascontiguousarray(images.transpose(0, 3, 1, 2)) if first else images
    if wanted.get_inputs()[0].type == "tensor(uint8)":
        inputs = inputs.astype(numpy.uint8)
    outputs = wanted.run(None, {"input": inputs})[0]
    return outputs.transpose(0, 2, 3, 1) if first and outputs.ndim == 4 else outputs


def with_half_values(model):
    """The float32 model whose weights and values are rounded to float16."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for tensor in result.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor).astype(numpy.float16).astype(numpy.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    nodes = []
    for node in result.graph.node:
        nodes.append(node)
        for i, name in enumerate(node.output):
            node.output[i] = name + "/exact"
            nodes += [onnx.helper.make_node("Cast", [name + "/exact"], [name + "/half"], to=onnx.TensorProto.FLOAT16),
                      onnx.helper.make_node("Cast", [name + "/half"], [name], to=onnx.TensorProto.FLOAT)]
    del result.graph.node[:]
    result.graph.node.extend(nodes)
    return result


class Comparison:
    def __init__(self, program, folder):
        self.program, self.prefix, self.failures, self.count = program, f"{folder}/case", 0, 0

    def export(self, model, words):
        written = subprocess.run([self.program, self.prefix, model, *words], capture_output=True, text=True, check=False)
        if written.returncode != 0:
            raise RuntimeError(written.stderr.strip())
        proto = onnx.load(self.prefix + ".onnx")
        onnx.checker.check_model(proto, full_check=True)
        return proto, read_safetensors(self.prefix + ".safetensors")

    def bound(self, model, words, images, ours):
        if "float16" not in words:
            return BOUND
        exact, _ = self.export(model, [word for word in words if word != "float16"])
        return HALF_MARGIN * float(numpy.abs(run(with_half_values(exact), images) - ours).max())

    def compare(self, name, model, *words):
        self.count += 1
        try:
            proto, tensors = self.export(model, words)
            images, ours = tensors["images"], tensors["outputs"]
            theirs = run(proto, images)
            if theirs.shape != ours.shape:
                raise RuntimeError(f"shape {theirs.shape}, expected {ours.shape}")
            difference, allowed = float(numpy.abs(theirs - ours).max()), self.bound(model, words, images, ours)
            spread = float(numpy.abs(ours - ours.mean()).max())
            if not any(word.startswith("batch=") for word in words):
                difference = max(difference, float(numpy.abs(run(proto, images[:1]) - ours[:1]).max()))
            if not difference <= allowed:
                raise RuntimeError(f"outputs differ by {difference:.3g}, {allowed:.3g} is allowed")
            if spread < 3 * allowed:
                raise RuntimeError(f"a constant were as near: the outputs' spread is {spread:.3g}, and {allowed:.3g} is allowed")
            print(f"{name} {' '.join(words)}: {difference:.2g} of {allowed:.2g}, outputs have a spread of {spread:.2g}", flush=True)
        except Exception as error:  # what libraries throw has no common type
            self.failures += 1
            print(f"FAILED {name} {' '.join(words)}: {error}", flush=True)


def compare_forms(comparison, networks):
    for name in networks or FORM_NETWORKS:
        for words in (["nhwc"], ["nhwc", "opset=13", "batch=3"], ["opset=13"], ["opset=24"], ["batch=3", "preprocessing"], ["nhwc", "preprocessing"],
                      ["float16"], ["float16", "nhwc", "opset=13"], ["float16", "fold", "opset=23", "preprocessing"]):
            comparison.compare(name, ZOO[name], *words)


def main():
    program, what, networks = sys.argv[1], sys.argv[2:3] or ["zoo", "layers", "forms"], sys.argv[3:]
    with tempfile.TemporaryDirectory() as folder:
        comparison = Comparison(program, folder)
        if "zoo" in what:
            for name in networks or ZOO:
                comparison.compare(name, ZOO[name])
                comparison.compare(name, ZOO[name], "fold")
        if "layers" in what:
            for model in LAYERS:
                for words in ([], ["nhwc", "opset=13"], ["opset=21"], ["opset=24"], ["float16"], ["float16", "opset=13"]):
                    comparison.compare(model, model, *words)
        if "forms" in what:
            compare_forms(comparison, networks)
        print(f"{comparison.count} comparisons, {comparison.failures} failed")
        return 1 if comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
