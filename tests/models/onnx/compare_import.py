"""Networks that torch.onnx exports, imported here and run by onnxruntime: the same outputs of the same images.

compare_import.py ONNX_LOGITS [CASE…]: the program onnx_logits, and names of cases (all but the large networks
without). Differences may be 1e-4 of the largest output, and of 1: float32 sums in another order. ResNet-50's of random
weights are 7e-5 from those in float64, PyTorch's, onnxruntime's and ours alike."""
import os
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
torch.manual_seed(1)
torch.set_num_threads(2)


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


def conv(ins, outs, kernel=3, **options):
    return nn.Conv2d(ins, outs, kernel, **{"padding": kernel // 2, **options})


def head(module, channels=8, classes=5):
    """A module of (3, h, w) to (channels, h', w'), then pool and classifier."""
    return nn.Sequential(module, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def activation_net(activation):
    return head(nn.Sequential(conv(3, 8), activation, conv(8, 8, 1), activation))


ACTIVATIONS = {
    "relu": nn.ReLU(), "relu6": nn.ReLU6(), "leaky": nn.LeakyReLU(0.2), "prelu": nn.PReLU(8), "prelu_shared": nn.PReLU(),
    "elu": nn.ELU(0.7), "selu": nn.SELU(), "gelu": nn.GELU(), "silu": nn.SiLU(), "mish": nn.Mish(),
    "hardswish": nn.Hardswish(), "hardsigmoid": nn.Hardsigmoid(), "softplus": nn.Softplus(), "sigmoid": nn.Sigmoid(),
    "tanh": nn.Tanh(), "clamp": Lambda(lambda self, x: torch.clamp(x, min=0)),
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
    "log_softmax_dropped": (head(conv(3, 8)), (9, 8), {}),
}
SMALL["normalises"][0][0].mean = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)
SMALL["normalises"][0][0].std = torch.tensor([0.2, 0.3, 0.4]).view(1, 3, 1, 1)
for name, activation in ACTIVATIONS.items():
    SMALL[f"activation_{name}"] = (activation_net(activation), (9, 8), {})
SMALL["activation_hardswish_13"] = (activation_net(nn.Hardswish()), (9, 8), {"opset_version": 13})
SMALL["activation_gelu_20"] = (activation_net(nn.GELU()), (9, 8), {"opset_version": 20})
SMALL["activation_mish_18"] = (activation_net(nn.Mish()), (9, 8), {"opset_version": 18})

FOLDINGS = {"": {}, "unfolded": {"do_constant_folding": False, "training": torch.onnx.TrainingMode.PRESERVE}}
NETWORKS = ("resnet18 resnet50 mobilenet_v2 mobilenet_v3_small efficientnet_b0 densenet121 convnext_tiny squeezenet1_0 "
            "googlenet regnet_y_400mf mnasnet0_5 vgg11").split()
BY_DEFAULT = "resnet18 mobilenet_v3_small efficientnet_b0 convnext_tiny squeezenet1_0".split()


def network(name):
    options = {"aux_logits": False, "init_weights": True} if name == "googlenet" else {}
    return getattr(torchvision.models, name)(weights=None, **options)


def settled(module, size):
    """Vectors that begin as zeros or ones are changed, and running statistics are those of images, as after training."""
    draw = torch.Generator().manual_seed(7)
    for name, value in module.named_parameters():
        if value.dim() == 1:
            value.data += 0.05 * torch.randn(value.shape, generator=draw)
        if "layer_scale" in name:
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
    with torch.no_grad():
        torch.onnx.export(settled(module, size), images, file, input_names=["images"], output_names=["outputs"],
                          dynamic_axes={"images": {0: "batch"}}, **{"opset_version": 17, **options})
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    theirs = session.run(None, {"images": images.numpy()})[0]
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


def cases(names):
    for name, (module, size, options) in SMALL.items():
        if not names or name in names:
            for folding, more in FOLDINGS.items():
                yield f"{name} {folding}".strip(), module, size, {**options, **more}
    for name in NETWORKS:
        if name in (names or BY_DEFAULT):
            for folding, more in FOLDINGS.items():
                yield f"{name} {folding}".strip(), network(name), (224, 224) if name == "vgg11" else (96, 96), more


def main(program, names):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, module, size, options in cases(names):
            try:
                off, spread, notes = difference(program, folder, module, size, options)
                good = off <= 1e-4 and spread > 1e-3
                print(f"{'ok  ' if good else 'FAIL'} {name}: {off:.1e} apart; images {spread:.1e} {notes}", flush=True)
            except RuntimeError as error:
                good = False
                print(f"FAIL {name}: {error}", flush=True)
            failed += not good
    return failed != 0


sys.exit(main(sys.argv[1], sys.argv[2:]))
