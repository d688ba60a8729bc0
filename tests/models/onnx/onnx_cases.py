"""Models that compare_with_onnxruntime.py compares, as a configuration's `model` in one line."""

CIFAR = ("separable_cnn", "resnet18_cifar", "resnet20", "resnet56")
# Other networks' images are neither square nor of 224 pixels: half the memory, and transposed axes are found.
ZOO = {name: "{zoo: %s, classes: 10, input: [32, 40, 3]}" % name for name in CIFAR}
ZOO["wide_resnet28_10"] = "{zoo: wide_resnet28_10, classes: 10, width: 0.2, input: [32, 40, 3]}"
ZOO |= {name: "{zoo: %s, classes: 10, input: [64, 96, 3]}" % name for name in (
    "vgg11", "vgg16", "resnet18", "resnet34", "resnet50", "resnet101", "densenet121", "mobilenet_v1", "mobilenet_v2", "mobilenet_v3_small",
    "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny", "convnextv2_atto", "shufflenet_v2_x1_0", "vit_tiny_16", "vit_base_32",
    "deit3_small_16")}
ZOO["unet"] = "{zoo: unet, classes: 3, input: [48, 64, 3]}"


def chain(*layers, shape="[9, 7, 4]"):
    return "{input: %s, layers: [%s]}" % (shape, ", ".join(layers))


ACTIVATIONS = ("relu", "relu6", "leaky_relu: {slope: 0.2}", "gelu", "silu", "sigmoid", "tanh", "elu: {alpha: 0.7}", "selu", "mish", "hard_swish",
               "hard_sigmoid", "softplus")
ONE_LAYER = ACTIVATIONS + (
    "conv2d: {filters: 6, kernel: 3}",
    "conv2d: {filters: 6, kernel: [3, 2], stride: 2, padding: same, activation: relu}",
    "conv2d: {filters: 6, kernel: 4, stride: [3, 2], padding: same, bias: false}",
    "conv2d: {filters: 6, kernel: 3, dilation: 2, groups: 2, padding: {top: 0, bottom: 3, left: 2, right: 1}}",
    "conv2d: {filters: 6, kernel: 3, padding: 2, padding_mode: reflect, activation: silu}",
    "conv2d: {filters: 6, kernel: 3, padding: {top: 2, bottom: 1, left: 0, right: 3}, padding_mode: circular}",
    "conv2d: {filters: 6, kernel: 3, padding: {top: 0, bottom: 1, left: 2, right: 2}, padding_mode: replicate}",
    "depthwise_conv2d: {kernel: 3, stride: 2, padding: same, multiplier: 3}",
    "depthwise_conv2d: {kernel: [1, 3], dilation: [1, 2], bias: false, activation: relu6}",
    "separable_conv2d: {filters: 5, kernel: 3, multiplier: 2, padding: same, stride: 2, activation: relu}",
    "batch_norm: {activation: relu}", "batch_norm: {scale: false, epsilon: 1e-5}", "batch_norm: {shift: false}",
    "batch_norm: {scale: false, shift: false}",
    "layer_norm", "layer_norm: {scale: false}", "layer_norm: {shift: false, epsilon: 1e-2}", "layer_norm: {scale: false, shift: false}",
    "group_norm: {groups: 2, activation: silu}", "group_norm: {groups: 1, scale: false}", "group_norm: {groups: 4, shift: false, epsilon: 0.1}",
    "instance_norm", "instance_norm: {scale: false, shift: false}", "global_response_norm", "global_response_norm: {epsilon: 1.0}",
    "max_pool", "max_pool: {size: 3, stride: 2, padding: same}", "max_pool: {size: [3, 2], stride: 2, padding: 1, ceil_mode: true}",
    "max_pool: {size: 2, dilation: 3, stride: 1, padding: {top: 3, bottom: 0, left: 2, right: 3}}",
    "max_pool: {size: 3, dilation: 2, stride: 3, padding: 2, ceil_mode: true}",
    "average_pool", "average_pool: {size: 3, stride: 2, padding: same}", "average_pool: {size: 3, stride: 2, padding: same, count_padding: true}",
    "average_pool: {size: 4, stride: 3, padding: 1, ceil_mode: true}",
    "average_pool: {size: 4, stride: 3, padding: 1, ceil_mode: true, count_padding: true}",
    "average_pool: {size: 3, dilation: 2, stride: 1, padding: {top: 2, bottom: 1, left: 0, right: 2}}",
    "average_pool: {size: 2, dilation: [3, 2], stride: 2, padding: 1, count_padding: true, ceil_mode: true}",
    "global_average_pool", "global_average_pool: {keepdims: true}", "global_max_pool", "global_max_pool: {keepdims: true}",
    "dropout: {rate: 0.5}", "spatial_dropout: {rate: 0.2}", "drop_path: {rate: 0.1}",
    "prelu", "prelu: {shared: true}", "layer_scale: {initial: 0.1}", "softmax", "flatten", "reshape: {shape: [7, -1]}", "reshape: {shape: [3, 4, 21]}",
    "transposed_conv2d: {filters: 6, kernel: 2, stride: 2}",
    "transposed_conv2d: {filters: 6, kernel: 3, stride: 2, padding: same, groups: 2, bias: false, activation: relu}",
    "transposed_conv2d: {filters: 5, kernel: 1, stride: 2, padding: same}",
    "transposed_conv2d: {filters: 5, kernel: [3, 4], stride: [2, 3], padding: 1, output_padding: [1, 2]}",
    "transposed_conv2d: {filters: 5, kernel: 3, stride: 1, dilation: 3, padding: {top: 1, bottom: 0, left: 0, right: 2}, output_padding: 2}",
    "upsample", "upsample: {scale: [3, 2]}", "upsample: {scale: [2, 3], interpolation: bilinear}",
    "upsample: {scale: [3, 2], interpolation: bilinear, align_corners: true}",
    "zero_padding: {padding: {top: 0, bottom: 1, left: 2, right: 3}}", "zero_padding: {padding: 0}", "zero_padding: {padding: 2, mode: reflect}",
    "zero_padding: {padding: [1, 2], mode: replicate}", "zero_padding: {padding: {top: 1, bottom: 0, left: 0, right: 3}, mode: circular}",
    "crop: {cropping: {top: 1, bottom: 2, left: 0, right: 3}}", "crop: {cropping: 0}", "depth_to_space", "depth_to_space: {order: channel_first}",
    "dense: {units: 5}", "dense: {units: 5, bias: false, activation: gelu}", "class_token: {count: 2, initializer: {normal: 1}}",
    "position_embedding", "permute: {dims: [3, 1, 2]}", "permute: {dims: [2, 1, 3]}",
    "channel_slice: {begin: 1, end: 3}", "channel_shuffle: {groups: 2}", "channel_shuffle: {groups: 4}",
    "squeeze_excite: {units: 3}", "squeeze_excite: {units: 3, activation: silu, gate: hard_sigmoid}")

FLAT = ("dense: {units: 5}", "dense: {units: 5, bias: false, activation: gelu}", "batch_norm", "layer_norm", "layer_norm: {scale: false}",
        "group_norm: {groups: 12}", "instance_norm", "prelu", "layer_scale: {initial: 0.1}", "softmax", "relu", "dropout: {rate: 0.5}",
        "reshape: {shape: [6, 6, 7]}", "reshape: {shape: [252]}", "flatten")
ROWS = ("batch_norm: {activation: relu}", "layer_norm", "group_norm: {groups: 2}", "instance_norm: {scale: false}", "global_response_norm", "prelu", "layer_scale: {initial: 0.1}",
        "softmax", "gelu", "spatial_dropout: {rate: 0.5}", "flatten", "dense: {units: 5, activation: gelu}", "position_embedding")
# Of (tokens, channels).
TOKENS = ("class_token: {initializer: {normal: 1}}", "class_token: {count: 3, initializer: {normal: 1}}", "permute: {dims: [2, 1]}", "global_average_pool",
          "global_average_pool: {keepdims: true}", "global_max_pool", "global_max_pool: {keepdims: true}", "slice: {stop: 1}")

GRAPHS = {
    "flatten after channels": chain("conv2d: {filters: 3, kernel: 2}", "flatten", "dropout: {rate: 0.5}", "relu", "batch_norm", "dense: {units: 4}"),
    "flattened image as output": chain("conv2d: {filters: 3, kernel: 2}", "flatten"),
    "flattened pixel": chain("global_max_pool: {keepdims: true}", "flatten", "dense: {units: 3}"),
    "flattened images, one permuted": chain("conv2d: {filters: 4, kernel: 1, name: a}", "flatten: {name: f}", "reshape: {shape: [7, 9, 4], inputs: [a]}",
                                            "flatten", "add: {inputs: [f, flatten]}", "dense: {units: 3}"),
    "flattened sums": chain("conv2d: {filters: 4, kernel: 1, name: a}", "flatten: {name: f}", "conv2d: {filters: 4, kernel: 1, inputs: [a]}",
                            "flatten: {name: g}", "add: {inputs: [f, g], activation: relu}", "multiply: {inputs: [f, add]}",
                            "concat: {inputs: [multiply, f]}", "dense: {units: 3}"),
    "sums": chain("conv2d: {filters: 4, kernel: 1, name: a}", "add: {inputs: [input, a, a], activation: relu}"),
    "means": chain("conv2d: {filters: 4, kernel: 1, name: a}", "average: {inputs: [input, a, a]}"),
    "products": chain("conv2d: {filters: 4, kernel: 1, name: a}", "global_average_pool: {name: g}", "global_max_pool: {name: h, keepdims: true, inputs: [a]}",
                      "multiply: {inputs: [g, a, h]}", "multiply: {inputs: [multiply, a]}"),
    "products of vectors": chain("global_average_pool: {name: g}", "global_max_pool: {name: h, keepdims: true, inputs: [input]}",
                                 "multiply: {inputs: [g, h]}"),
    "product of rows": chain("global_average_pool: {name: g}", "reshape: {shape: [63, 4], inputs: [input], name: r}", "multiply: {inputs: [r, g]}"),
    "concatenated images": chain("conv2d: {filters: 5, kernel: 1, name: a}", "concat: {inputs: [a, input, a]}", "relu"),
    "concatenated rows": chain("reshape: {shape: [9, 28], name: r}", "relu", "concat: {inputs: [r, relu]}"),
    "norms between convolutions": chain("layer_norm", "conv2d: {filters: 4, kernel: 3}", "layer_norm", "gelu", "depthwise_conv2d: {kernel: 3}",
                                        "add: {inputs: [depthwise_conv2d, depthwise_conv2d]}"),
    "names that meet": chain("block: {name: a, body: [conv2d: {filters: 4, kernel: 1, name: Conv, activation: relu}, relu: {name: Relu}]}", "relu: {name: output}"),
    "tokens": chain("conv2d: {filters: 6, kernel: [3, 2], stride: [3, 2]}", "class_token: {initializer: {normal: 1}}", "position_embedding: {name: x}", "layer_norm",
                    "permute: {dims: [2, 1]}", "dense: {units: 10, activation: gelu}", "permute: {dims: [2, 1]}", "add: {inputs: [permute_2, x]}",
                    "slice: {stop: 1}", "flatten", "dense: {units: 3}"),
    "a dense chain": chain("dense: {units: 5, activation: relu}", "dense: {units: 3}", shape="[6]"),
    "an image of one row": chain("conv2d: {filters: 3, kernel: [1, 3]}", "flatten", "dense: {units: 2}", shape="[1, 5, 2]"),
    "attention of images": chain("conv2d: {filters: 48, kernel: 1}", "attention: {heads: 2}", shape="[5, 7, 4]"),
    "attention of tokens": chain("conv2d: {filters: 108, kernel: 1}", "reshape: {shape: [35, 108]}", "attention: {heads: 1}", shape="[5, 7, 4]"),
    "attention between convolutions": chain("conv2d: {filters: 96, kernel: 1}", "attention: {heads: 4}", "conv2d: {filters: 3, kernel: 1}", "flatten",
                                            "dense: {units: 3}", shape="[5, 7, 4]"),
    "upsampled pixel": chain("upsample: {scale: 3, interpolation: bilinear, align_corners: true}", shape="[1, 1, 2]"),
}

LAYERS = [chain(layer) for layer in ONE_LAYER]
LAYERS += [chain("conv2d: {filters: 4, kernel: 1}", "flatten", layer) for layer in FLAT]
LAYERS += [chain("reshape: {shape: [21, 12]}", layer) for layer in ROWS]
LAYERS += [chain("reshape: {shape: [3, 7, 3, 4]}", layer) for layer in ROWS if layer != "position_embedding"]
LAYERS += [chain("reshape: {shape: [21, 12]}", layer) for layer in TOKENS]
LAYERS += [chain("conv2d: {filters: 6, kernel: 2}", layer) for layer in ("dense: {units: 5}", "class_token", "position_embedding", "permute: {dims: [2, 3, 1]}")]
LAYERS += list(GRAPHS.values())
