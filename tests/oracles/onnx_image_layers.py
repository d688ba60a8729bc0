#!/usr/bin/env python3
"""ONNX' node vectors of layers that change height and width (the onnx package's, any 1.x), as a C++ header:
onnx_image_layers.py > tests/engine/ops/onnx_vectors.h

Values are in the engine's order: images (batch, height, width, channels), ConvTranspose's weights (C_in, kH, kW, C_out/groups). Left out are the vectors of
what the engine does not have: one and three axes, SAME_LOWER, other roundings of nearest pixels, sizes that a scale does not divide."""
import warnings

import numpy as np

warnings.simplefilter("ignore")
from onnx.backend.test.case.node import collect_testcases  # noqa: E402

WANTED = {
    "test_convtranspose", "test_convtranspose_pad", "test_convtranspose_pads", "test_convtranspose_dilations", "test_convtranspose_autopad_same",
    "test_convtranspose_group_2", "test_convtranspose_group_2_image_3", "test_edge_pad", "test_reflect_pad", "test_wrap_pad",
    "test_resize_upsample_scales_nearest", "test_resize_upsample_scales_linear", "test_resize_upsample_scales_linear_align_corners",
    "test_depthtospace_example", "test_depthtospace_crd_mode_example",
    "test_averagepool_2d_precomputed_pads", "test_averagepool_2d_precomputed_pads_count_include_pad", "test_averagepool_2d_precomputed_strides",
    "test_averagepool_2d_precomputed_same_upper", "test_averagepool_2d_ceil", "test_averagepool_2d_ceil_last_window_starts_on_pad",
    "test_averagepool_2d_dilations", "test_maxpool_2d_precomputed_pads", "test_maxpool_2d_precomputed_strides", "test_maxpool_2d_precomputed_same_upper",
    "test_maxpool_2d_ceil", "test_maxpool_2d_ceil_output_size_reduce_by_one", "test_maxpool_2d_dilations"}


def literal(array):
    array = np.moveaxis(np.asarray(array, dtype=np.float32), 1, -1)
    values = ", ".join(f"{v:.9g}" for v in array.reshape(-1).tolist())
    return f"{{{', '.join(map(str, array.shape))}}}, {{{values}}}"


print("""// Written by tests/oracles/onnx_image_layers.py, which says what is left out. Do not edit.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bantam::testing {

struct OnnxTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};
struct OnnxVector {
  OnnxTensor x, y, w;  // w is empty where there is no weight
};

inline const std::map<std::string, OnnxVector>& onnx_image_vectors() {
  static const std::map<std::string, OnnxVector> all{""")
for case in collect_testcases(None):
    if case.name not in WANTED:
        continue
    WANTED.remove(case.name)
    inputs, outputs = case.data_sets[0]
    weight = literal(inputs[1]) if "convtranspose" in case.name else "{}, {}"
    print(f'      {{"{case.name.removeprefix("test_")}", {{{{{literal(inputs[0])}}}, {{{literal(outputs[0])}}}, {{{weight}}}}}}},')
assert not WANTED, WANTED
print("""  };
  return all;
}

}  // namespace bantam::testing""")
