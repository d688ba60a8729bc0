"""Networks that torch.onnx exports, imported here and run by onnxruntime: the same outputs of the same images.

compare_import.py ONNX_LOGITS [CASE…]: the program onnx_logits, and names of cases, of torchvision's networks or of timm's
(`timm/NAME`); `torchvision` and `timm` stand for all that are listed here. Without names: the small cases, and a few
networks. Each is exported by today's exporter (dynamo: optimized, as it is, and in one file with a fixed batch) and by
the one before (folded, and with its batch norms). Differences may be 1e-4 of the largest output, and of 1: float32 sums
in another order. ResNet-50's of random weights are 1e-4 from those in float64, PyTorch's, onnxruntime's and ours alike, and so are those of
networks that are built on it: for them twice as much is allowed. Deeper ones, such as resnet152, amplify it further:
there onnxruntime's own outputs with and without its optimizations are as far apart as ours are from them."""
import contextlib
import inspect
import io
import logging
import os
import re
import subprocess
import sys
import tempfile
import warnings

try:
    import numpy as np
    import onnx  # noqa: F401 (torch.onnx needs it)
    import onnxruntime
    import torch
    import torchvision
    from torch import nn
except ImportError as error:
    print(f"no onnxruntime, torch or torchvision: skipped ({error})")
    sys.exit(0)

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
torch.manual_seed(1)
torch.set_num_threads(2)
torch.backends.mha.set_fastpath_enabled(False)  # of inference alone, which the exporter before today's does not know


class Lambda(nn.Module):
    """A function of a module's input as a module, with the modules that it uses."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.function(self, x)


class LayerNorm2d(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)

    def forward(self, x):
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ResponseNorm(nn.Module):
    """ConvNeXt V2's: by the authors on (batch, height, width, channels), or by timm on (batch, channels, height, width)."""

    def __init__(self, channels, first):
        super().__init__()
        self.first = first
        self.weight, self.bias = nn.Parameter(torch.randn(channels)), nn.Parameter(torch.randn(channels))

    def forward(self, x):
        if self.first:
            norm = x.norm(p=2, dim=(2, 3), keepdim=True)
            response = x * (norm / (norm.mean(dim=1, keepdim=True) + 1e-6))
            return x + torch.addcmul(self.bias.view(1, -1, 1, 1), self.weight.view(1, -1, 1, 1), response)
        x = x.permute(0, 2, 3, 1)
        norm = torch.norm(x, p=2, dim=(1, 2), keepdim=True)
        return (self.weight * (x * (norm / (norm.mean(dim=-1, keepdim=True) + 1e-6))) + self.bias + x).permute(0, 3, 1, 2)


def conv(ins, outs, kernel=3, **options):
    return nn.Conv2d(ins, outs, kernel, **{"padding": kernel // 2, **options})


def head(module, channels=8, classes=5):
    """A module of (3, h, w) to (channels, h', w'), then pool and classifier."""
    return nn.Sequential(module, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def by_head(x, heads):
    """(batch, tokens, channels) as (batch, heads, tokens, size)."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def activation_net(activation):
    return head(nn.Sequential(conv(3, 8), activation, conv(8, 8, 1), activation))


ACTIVATIONS = {
    "relu": nn.ReLU(), "relu6": nn.ReLU6(), "leaky": nn.LeakyReLU(0.2), "prelu": nn.PReLU(8), "prelu_shared": nn.PReLU(),
    "elu": nn.ELU(0.7), "selu": nn.SELU(), "gelu": nn.GELU(), "silu": nn.SiLU(), "mish": nn.Mish(),
    "hardswish": nn.Hardswish(), "hardsigmoid": nn.Hardsigmoid(), "softplus": nn.Softplus(),
    "softplus_beta": nn.Softplus(beta=2), "sigmoid": nn.Sigmoid(), "tanh": nn.Tanh(),
    "clamp": Lambda(lambda self, x: torch.clamp(x, min=0)), "clamp_6": Lambda(lambda self, x: torch.clamp(x, 0, 6)),
    "gelu_tanh": nn.GELU(approximate="tanh"),
}

# name: (module, (height, width), options of torch.onnx.export)
SMALL = {
    "flatten": (nn.Sequential(conv(3, 4, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 8 * 6, 7)), (16, 12), {}),
    "view_by_shape": (Lambda(lambda self, x: self.fc(torch.relu(self.conv(x)).view(x.shape[0], -1)), conv=conv(3, 4),
                             fc=nn.Linear(4 * 8 * 6, 7)), (8, 6), {}),
    "flatten_norm": (nn.Sequential(conv(3, 4), nn.Flatten(), nn.BatchNorm1d(4 * 48), nn.PReLU(4 * 48), nn.Linear(4 * 48, 5)),
                     (8, 6), {}),
    "two_linear": (nn.Sequential(nn.Flatten(), nn.Linear(3 * 48, 20, bias=False), nn.Tanh(), nn.Linear(20, 5)), (8, 6), {}),
    "grouped": (head(nn.Sequential(conv(3, 12, 3), conv(12, 8, 3, groups=4, dilation=2))), (16, 16), {}),
    "depthwise": (head(nn.Sequential(conv(3, 6, 3, groups=3), conv(6, 8, 5, groups=2, bias=False))), (16, 16), {}),
    "asymmetric": (head(nn.Sequential(nn.ZeroPad2d((0, 1, 0, 2)), conv(3, 8, 3, stride=2, padding=0))), (16, 16), {}),
    "reflect": (head(nn.Sequential(nn.ReflectionPad2d((1, 2, 0, 1)), conv(3, 8), nn.ReplicationPad2d(1))), (16, 16), {}),
    "crop": (head(Lambda(lambda self, x: self.conv(x)[:, :, 1:-2, 3:], conv=conv(3, 8))), (16, 16), {}),
    "negative_pad": (head(nn.Sequential(conv(3, 8), nn.ZeroPad2d((-1, -2, 0, -1)))), (16, 16), {}),
    "transposed": (head(nn.Sequential(conv(3, 6, stride=2), nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1,
                                                                              output_padding=1, groups=2))), (16, 16), {}),
    "max_pools": (head(nn.Sequential(conv(3, 8), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, 2, ceil_mode=True))), (18, 22), {}),
    "average_pools": (head(nn.Sequential(conv(3, 8), nn.AvgPool2d(3, 2, 1), nn.AvgPool2d(2, 2, 1, count_include_pad=False))),
                      (18, 22), {}),
    "ceil_average": (head(nn.Sequential(conv(3, 8), nn.AvgPool2d(3, 2, 1, ceil_mode=True))), (18, 22), {}),
    "means": (Lambda(lambda self, x: self.fc(self.conv(x).mean([2, 3])), conv=conv(3, 8), fc=nn.Linear(8, 5)), (9, 7), {}),
    "amax": (Lambda(lambda self, x: self.fc(self.conv(x).amax((2, 3))), conv=conv(3, 8), fc=nn.Linear(8, 5)), (9, 7), {}),
    "upsample": (head(nn.Sequential(conv(3, 8, stride=2), nn.Upsample(scale_factor=2), conv(8, 8),
                                    nn.Upsample(scale_factor=(2, 3), mode="bilinear"),
                                    nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True))), (16, 16), {}),
    "pixel_shuffle": (head(nn.Sequential(conv(3, 12), nn.PixelShuffle(2), conv(3, 8))), (8, 10), {}),
    "batch_norm": (head(nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), conv(3, 8), nn.BatchNorm2d(8, eps=1e-3))), (9, 8), {}),
    "layer_norm": (head(nn.Sequential(conv(3, 8), LayerNorm2d(8), nn.GELU(), LayerNorm2d(8))), (9, 8), {}),
    "layer_norm_13": (head(nn.Sequential(conv(3, 8), LayerNorm2d(8), nn.GELU())), (9, 8), {"opset_version": 13}),
    "group_norm": (head(nn.Sequential(conv(3, 8), nn.GroupNorm(4, 8), nn.ReLU(), nn.GroupNorm(8, 8), nn.ReLU(), nn.GroupNorm(1, 8), nn.ReLU())), (9, 8), {}),
    "global_response_norm": (head(nn.Sequential(conv(3, 8), nn.GELU(), ResponseNorm(8, True), conv(8, 8), ResponseNorm(8, False))), (9, 8), {}),
    "instance_norm": (head(nn.Sequential(conv(3, 8), nn.InstanceNorm2d(8), nn.ReLU(), nn.InstanceNorm2d(8, affine=True), nn.ReLU())), (9, 8), {}),
    "channels_last_linear": (Lambda(lambda self, x: self.head(self.fc(self.conv(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)),
                                    conv=conv(3, 6), fc=nn.Linear(6, 8), head=head(nn.Identity())), (9, 8), {}),
    "residual": (head(Lambda(lambda self, x: torch.relu(self.a(x) + self.b(x)) + 1.5 * self.c(x), a=conv(3, 8), b=conv(3, 8),
                             c=conv(3, 8, 1))), (9, 8), {}),
    "concat": (head(Lambda(lambda self, x: torch.cat([self.a(x), x, self.b(x)], 1), a=conv(3, 3), b=conv(3, 2))), (9, 8), {}),
    "gate": (head(Lambda(lambda self, x: self.a(x) * torch.sigmoid(self.b(x)), a=conv(3, 8), b=conv(3, 8))), (9, 8), {}),
    "normalises": (head(Lambda(lambda self, x: self.a((x - self.mean) / self.std), a=conv(3, 8))), (9, 8), {}),
    "dropout": (nn.Sequential(conv(3, 8), nn.Dropout2d(0.1), head(nn.Dropout(0.3)), nn.Dropout(0.2), nn.Softmax(1)), (9, 8), {}),
    "segments": (nn.Sequential(conv(3, 8, stride=2), nn.ReLU(), nn.ConvTranspose2d(8, 4, 2, 2)), (16, 12), {}),
    "channel_shuffle": (head(nn.Sequential(conv(3, 12), nn.ChannelShuffle(3), conv(12, 8))), (9, 8), {}),
    "shuffled_by_views": (head(Lambda(lambda self, x: self.b(self.a(x).view(x.shape[0], 2, 6, 9, 8).transpose(1, 2).reshape(
        x.shape[0], 12, 9, 8)), a=conv(3, 12), b=conv(12, 8))), (9, 8), {}),
    "chunk": (head(Lambda(lambda self, x: torch.cat([self.b(p) for p in self.a(x).chunk(2, 1)], 1), a=conv(3, 8), b=conv(4, 4))),
              (9, 8), {}),
    "split": (head(Lambda(lambda self, x: torch.cat([p if i != 1 else torch.relu(p) for i, p in enumerate(
        torch.split(self.a(x), [3, 1, 4], 1))], 1), a=conv(3, 8))), (9, 8), {}),
    "split_rows": (head(Lambda(lambda self, x: self.b(torch.split(self.a(x), 3, 2)[1]), a=conv(3, 8), b=conv(8, 8))), (9, 8), {}),
    "gated_chunk": (head(Lambda(lambda self, x: (lambda p: p[0] * torch.sigmoid(p[1]))(self.a(x).chunk(2, 1)), a=conv(3, 16))),
                    (9, 8), {}),
    "sliced_channels": (head(Lambda(lambda self, x: self.a(x)[:, 2:10], a=conv(3, 12))), (9, 8), {}),
    "swapped_colours": (head(Lambda(lambda self, x: self.a(x[:, [2, 1, 0]]), a=conv(3, 8))), (9, 8), {}),
    "transforms_input": (head(Lambda(lambda self, x: self.a(torch.cat([torch.unsqueeze(x[:, i], 1) * (0.2 + 0.1 * i) + 0.1 * i
                                                                        for i in range(3)], 1)), a=conv(3, 8))), (9, 8), {}),
    "spatial_attention": (head(Lambda(lambda self, x: (lambda y: y * torch.sigmoid(self.b(torch.cat(
        [y.mean(1, keepdim=True), y.amax(1, keepdim=True)], 1))))(self.a(x)), a=conv(3, 8), b=conv(2, 1, 7))), (9, 8), {}),
    "expanded": (head(Lambda(lambda self, x: (lambda y: y + y.mean((2, 3), keepdim=True).expand_as(y))(self.a(x)), a=conv(3, 8))),
                 (9, 8), {}),
    "added_factors": (head(Lambda(lambda self, x: (lambda y: y + self.b(y.mean((2, 3), keepdim=True)))(self.a(x)), a=conv(3, 8),
                                  b=conv(8, 8, 1))), (9, 8), {}),
    "pooled_channels_last": (nn.Sequential(conv(3, 8), LayerNorm2d(8), nn.AdaptiveAvgPool2d(1), LayerNorm2d(8), nn.Flatten(),
                                           nn.Linear(8, 5)), (9, 8), {}),
    "difference": (head(Lambda(lambda self, x: (lambda y: torch.relu(y - y.mean((2, 3), keepdim=True)))(self.a(x)), a=conv(3, 8))), (9, 8), {}),
    "square": (head(Lambda(lambda self, x: 1 - self.a(x) ** 2, a=conv(3, 8))), (9, 8), {}),
    "separate_attention": (Lambda(lambda self, x: self.head(self.project(nn.functional.scaled_dot_product_attention(
        *(by_head(part(self.tokens(x)), 2) for part in (self.q, self.k, self.v))).transpose(1, 2).flatten(2))[:, 1:].mean(1)),
        tokens=Lambda(lambda self, x: self.stem(x).flatten(2).transpose(1, 2), stem=conv(3, 12, 4, stride=4, padding=0)), q=nn.Linear(12, 24),
        k=nn.Linear(12, 24, bias=False), v=nn.Linear(12, 24), project=nn.Linear(24, 12), head=nn.Linear(12, 5)), (16, 12), {}),
    "encoder_layer": (Lambda(lambda self, x: self.head(self.encoder(self.stem(x).flatten(2).transpose(1, 2)).amax(1)),
                             stem=conv(3, 16, 4, stride=4, padding=0), head=nn.Linear(16, 5),
                             encoder=nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True, activation="gelu")), (16, 12), {}),
    "token_mixer": (Lambda(lambda self, x: (lambda y: self.head((y + self.mix(self.norm(y).transpose(1, 2)).transpose(1, 2)).mean(1)))(
        self.stem(x).flatten(2).transpose(1, 2)), stem=conv(3, 16, 4, stride=4, padding=0), norm=nn.LayerNorm(16),
        mix=nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.Linear(20, 12)), head=nn.Linear(16, 5)), (16, 12), {}),
    "log_softmax_dropped": (head(conv(3, 8)), (9, 8), {}),
}
SMALL["normalises"][0][0].mean = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)
SMALL["normalises"][0][0].std = torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1)
for name, activation in ACTIVATIONS.items():
    SMALL[f"activation_{name}"] = (activation_net(activation), (9, 8), {})
SMALL["activation_hardswish_13"] = (activation_net(nn.Hardswish()), (9, 8), {"opset_version": 13})
SMALL["activation_gelu_20"] = (activation_net(nn.GELU()), (9, 8), {"opset_version": 20})
SMALL["activation_mish_18"] = (activation_net(nn.Mish()), (9, 8), {"opset_version": 18})

LEGACY = {"dynamo": False, "opset_version": 17, "input_names": ["images"], "output_names": ["outputs"],
          "dynamic_axes": {"images": {0: "batch"}}}
EXPORTERS = {
    "legacy": LEGACY,
    "legacy unfolded": {**LEGACY, "do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE},
}
if inspect.signature(torch.onnx.export).parameters["dynamo"].default is True:  # PyTorch 2.9 and later
    EXPORTERS |= {
        "dynamo": {"dynamic_shapes": ({0: torch.export.Dim("batch")},)},
        "dynamo unoptimized": {"dynamic_shapes": ({0: torch.export.Dim("batch")},), "optimize": False},
        "dynamo, one file": {"external_data": False},
        "dynamo, opset 23": {"dynamic_shapes": ({0: torch.export.Dim("batch")},), "opset_version": 23},
    }

TORCHVISION = """alexnet convnext_tiny convnext_small convnext_base convnext_large densenet121 densenet161 densenet169
    densenet201 efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5
    efficientnet_b6 efficientnet_b7 efficientnet_v2_s efficientnet_v2_m efficientnet_v2_l googlenet inception_v3 mnasnet0_5
    mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_small mobilenet_v3_large regnet_x_400mf regnet_x_800mf
    regnet_x_1_6gf regnet_x_3_2gf regnet_x_8gf regnet_x_16gf regnet_x_32gf regnet_y_400mf regnet_y_800mf regnet_y_1_6gf
    regnet_y_3_2gf regnet_y_8gf regnet_y_16gf regnet_y_32gf resnet18 resnet34 resnet50 resnet101 resnet152 resnext50_32x4d
    resnext101_32x8d resnext101_64x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0
    squeezenet1_0 squeezenet1_1 vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 wide_resnet50_2
    wide_resnet101_2 segmentation.fcn_resnet50 segmentation.deeplabv3_resnet50 segmentation.deeplabv3_mobilenet_v3_large
    segmentation.lraspp_mobilenet_v3_large""".split()
TIMM = ["timm/" + name for name in """convnext_atto convnext_tiny convnextv2_atto cspresnet50 darknet53 densenet121 dla34 dpn68
    efficientnet_b0 efficientnetv2_rw_t ese_vovnet19b_dw fbnetv3_b ghostnet_100 hardcorenas_a lcnet_100 mixnet_s
    mnasnet_100 mobilenetv3_large_100 mobilenetv4_conv_small nfnet_l0 regnety_002 repvgg_a0 res2net50_26w_4s resnet50 resnet50d
    resnext50_32x4d rexnet_100 seresnet50 tf_efficientnet_lite0 tinynet_a vit_tiny_patch16_224 vit_small_patch16_224
    deit3_small_patch16_224 mixer_s32_224""".split()]
BY_DEFAULT = "resnet18 mobilenet_v3_small convnext_tiny shufflenet_v2_x0_5 squeezenet1_0".split()


def network(name):
    if name.startswith("timm/"):
        import timm
        return timm.create_model(name[5:], pretrained=False)
    if name.startswith("segmentation."):
        module = getattr(torchvision.models.segmentation, name[13:])(weights=None, weights_backbone=None)
        return Lambda(lambda self, x: self.net(x)["out"], net=module)
    # The published weights of these two come with `transform_input`.
    options = {"init_weights": True, "transform_input": True} if name in ("googlenet", "inception_v3") else {}
    return getattr(torchvision.models, name)(weights=None, **options)


def size_of(name):
    if name.startswith(("vgg", "alexnet", "vit")) or name.endswith("_224"):
        return 224, 224
    return (299, 299) if name.startswith("inception") else (96, 96)


def settled(module, size):
    """Parameters that begin as zeros, or vectors as ones, are changed, and running statistics are those of images, as
    after training."""
    draw = torch.Generator().manual_seed(7)
    for name, value in module.named_parameters():
        if value.dim() > 1 and not value.any():  # class tokens, and classifiers of vision transformers
            value.data += 0.05 * torch.randn(value.shape, generator=draw)
        if value.dim() == 1:
            value.data += 0.05 * torch.randn(value.shape, generator=draw)
        if "layer_scale" in name or name.endswith("gamma"):
            value.data.uniform_(0.1, 0.5, generator=draw)
    norms = [norm for norm in module.modules() if isinstance(norm, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
    if norms:
        module.train()(torch.randn(8, 3, *size, generator=draw))
    for norm in norms:
        norm.momentum = 0.1
    return module.eval()


def difference(program, folder, module, size, options):
    """How far apart the two outputs are, by their size, how far those of two images are, and the import's notes."""
    draw = torch.Generator().manual_seed(3)
    images = torch.randn(3, 3, *size, generator=draw)
    file = os.path.join(folder, "model.onnx")
    with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        torch.onnx.export(settled(module, size), (images,), file, **options)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    theirs = session.run(None, {session.get_inputs()[0].name: images.numpy()})[0]
    images.permute(0, 2, 3, 1).contiguous().numpy().tofile(os.path.join(folder, "in"))
    run = subprocess.run([program, file, os.path.join(folder, "in"), os.path.join(folder, "out")], capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(run.stderr.strip())
    ours = np.fromfile(os.path.join(folder, "out"), np.float32)
    if theirs.ndim == 4:
        theirs = theirs.transpose(0, 2, 3, 1)
    if ours.size != theirs.size:
        raise RuntimeError(f"{ours.size} values; expected {theirs.size}")
    scale = max(1.0, np.abs(theirs).max())
    return np.abs(ours.reshape(theirs.shape) - theirs).max() / scale, np.abs(theirs - theirs[:1]).max(), run.stdout.strip()


def chosen(names):
    """Names of cases, and of networks."""
    if not names:
        return list(SMALL), BY_DEFAULT
    groups = {"torchvision": TORCHVISION, "timm": TIMM}
    all_names = [name for group in names for name in groups.get(group, [group])]
    return [name for name in all_names if name in SMALL], [name for name in all_names if name not in SMALL]


def cases(names):
    small, networks = chosen(names)
    for name in small:
        module, size, options = SMALL[name]
        for exporter, more in EXPORTERS.items():
            if options.get("opset_version", 18) >= 18 or "legacy" in exporter:
                yield f"{name} ({exporter})", module, size, {**more, **options}
    for name in networks:
        module = network(name)
        for exporter, more in EXPORTERS.items():
            yield f"{name} ({exporter})", module, size_of(name), more


AMPLIFIES = re.compile(r"resnet(50|101|152)|resnext|wide_resnet|inception|darknet|nfnet")


def main(program, names):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, module, size, options in cases(names):
            try:
                off, spread, notes = difference(program, folder, module, size, options)
                good = off <= (2e-4 if AMPLIFIES.search(name) else 1e-4) and spread > 1e-3
                print(f"{'ok  ' if good else 'FAIL'} {name}: {off:.1e} apart; images {spread:.1e} {notes}", flush=True)
            except torch.onnx.errors.UnsupportedOperatorError as error:  # the exporter's own limit
                good = True
                print(f"skip {name}: {str(error)[:80]}", flush=True)
            except Exception as error:  # noqa: BLE001 (an export that fails is a failed case)
                good = False
                print(f"FAIL {name}: {str(error)[:400]}", flush=True)
            failed += not good
    return failed != 0


sys.exit(main(sys.argv[1], sys.argv[2:]))
