#!/usr/bin/env python3
"""ONNX' node vectors of activations, PReLU and softmax (the onnx package's, any 1.x), as a C++ header:
onnx_activations.py > tests/engine/ops/onnx_activations.h

Left out are the vectors of what the engine does not have: other constants of selu and hard_sigmoid, slopes of PReLU that are no vector of channels,
softmax over other axes than the last. Of mish's 10,000 values, every 97th is there."""
import warnings

import numpy as np

warnings.simplefilter("ignore")
from onnx.backend.test.case.node import collect_testcases  # noqa: E402

WANTED = {
    "test_elu", "test_elu_default", "test_elu_example", "test_selu_default", "test_mish", "test_hardswish", "test_softplus", "test_softplus_example",
    "test_prelu_broadcast", "test_softmax_axis_2", "test_softmax_default_axis", "test_softmax_example", "test_softmax_large_number"}


def literal(array):
    array = np.asarray(array, dtype=np.float32)
    if array.size > 1000:
        array = array[::97]
    values = ", ".join(f"{v:.9g}" for v in array.reshape(-1).tolist())
    return f"{{{', '.join(map(str, array.shape))}}}, {{{values}}}"


print("// Written by tests/oracles/onnx_activations.py, which says what is left out. Do not edit.")
print("#pragma once\n\n#include <map>\n#include <string>\n#include <vector>\n\n#include \"bantam/base/shape.h\"\n")
print("namespace bantam::testing {\n\nstruct OnnxArray {\n  Shape shape;\n  std::vector<float> values;\n};")
print("struct OnnxActivation {\n  std::vector<OnnxArray> inputs;\n  OnnxArray output;\n};\n")
print("// clang-format off\ninline const std::map<std::string, OnnxActivation>& onnx_activations() {")
print("  static const std::map<std::string, OnnxActivation> all = {")
for case in sorted(collect_testcases(None), key=lambda case: case.name):
    if case.name not in WANTED:
        continue
    WANTED.remove(case.name)
    inputs, outputs = case.data_sets[0]
    arrays = ", ".join("{" + literal(a) + "}" for a in inputs)
    name = case.name.removeprefix("test_")
    print(f'      {{"{name}", {{{{{arrays}}}, {{{literal(outputs[0])}}}}}}},')
print("  };\n  return all;\n}\n// clang-format on\n\n}  // namespace bantam::testing")
assert not WANTED, WANTED
