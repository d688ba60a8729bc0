"""The networks of Bantam's zoo in PyTorch: their modules have the names of Bantam's nodes, so that weights map by name.

  model = make("resnet18", size=64, classes=10)

A network is a list of named modules, each of which reads earlier ones: `Network.add` returns its number. Weights are random as `randomise` draws them,
or PyTorch's own. `to_bantam` and `from_bantam_shape` are the layouts: Bantam's images are (height, width, channels)."""
import torch
from torch import nn
from torch.nn import functional


class Add(nn.Module):
    def forward(self, a, b):
        return a + b


class Concat(nn.Module):
    def forward(self, *inputs):
        return torch.cat(inputs, 1)


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of each pixel, of vectors, or of tokens (batch, tokens, channels)."""

    def forward(self, x):
        if x.dim() < 4:
            return super().forward(x)
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class LayerScale(nn.Module):
    def __init__(self, channels, initial):
        super().__init__()
        self.scale = nn.Parameter(torch.full((channels,), initial))

    def forward(self, x):
        return x * (self.scale if x.dim() == 3 else self.scale[:, None, None])


class ResponseNorm(nn.Module):
    """ConvNeXt V2's global response normalisation of images."""

    def __init__(self, channels):
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.zeros(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        size = x.pow(2).sum((2, 3), keepdim=True).sqrt()
        return x + self.shift[:, None, None] + self.scale[:, None, None] * x * size / (size.mean(1, keepdim=True) + 1e-6)


class ClassToken(nn.Module):
    """Images become tokens, row after row, and a token comes before them."""

    def __init__(self, channels):
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, channels))

    def forward(self, x):
        return torch.cat((self.token.expand(x.shape[0], 1, -1), x.flatten(2).transpose(1, 2)), 1)


class PositionEmbedding(nn.Module):
    """`shape`: (tokens, channels), or (height, width, channels) of images."""

    def __init__(self, *shape):
        super().__init__()
        self.embedding = nn.Parameter(torch.zeros(shape))

    def forward(self, x):
        return x + (self.embedding if x.dim() == 3 else self.embedding.permute(2, 0, 1))


class Attention(nn.Module):
    """Of queries, keys and values side by side, each heads x size."""

    def __init__(self, heads):
        super().__init__()
        self.heads = heads

    def forward(self, x):
        q, k, v = x.unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class PixelLinear(nn.Linear):
    """A linear layer over the channels of images (batch, channels, height, width)."""

    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class First(nn.Module):
    """The first token, as (batch, 1, channels)."""

    def forward(self, x):
        return x[:, :1]


class Halves(nn.Module):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def forward(self, x):
        return x.chunk(2, 1)[self.number]


class DropPath(nn.Module):
    """Stochastic depth: whole samples of a block's branch."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        if not self.training or self.p == 0:
            return x
        kept = torch.empty(x.shape[:1] + (1,) * (x.dim() - 1), dtype=x.dtype, device=x.device).bernoulli_(1 - self.p)
        return x * (kept / (1 - self.p))


class SqueezeExcite(nn.Module):
    def __init__(self, channels, units, activation, gate):
        super().__init__()
        self.reduce, self.expand = nn.Linear(channels, units), nn.Linear(units, channels)
        self.activation, self.gate = activation, gate

    def forward(self, x):
        factor = self.gate(self.expand(self.activation(self.reduce(x.mean((2, 3))))))
        return x * factor[:, :, None, None]


class Separable(nn.Module):
    """Keras' SeparableConv2D: depthwise without bias, pointwise with bias."""

    def __init__(self, channels, filters):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 3, groups=channels, bias=False)
        self.pointwise = nn.Conv2d(channels, filters, 1)

    def forward(self, x):
        return self.pointwise(self.depthwise(x))


ACTIVATIONS = {"relu": lambda: nn.ReLU(inplace=True), "relu6": lambda: nn.ReLU6(inplace=True), "silu": lambda: nn.SiLU(inplace=True),
               "hard_swish": lambda: nn.Hardswish(inplace=True), "gelu": nn.GELU}


class Network(nn.Module):
    """Modules by name, in order; each reads the outputs of earlier ones, by number. The last one's output is the network's."""

    def __init__(self, size, channels=3):
        super().__init__()
        self.modules_by_name = nn.Module()
        self.nodes, self.shapes = [], [(channels, size, size)]

    @property
    def last(self):
        return len(self.nodes)

    def channels(self, node=None):
        return self.shapes[self.last if node is None else node][0]

    def add(self, name, module, inputs=None, shape=None):
        """`shape`: of a sample of the output; that of the first input without it."""
        inputs = (self.last,) if inputs is None else inputs
        self.modules_by_name.add_module(name, module)
        self.nodes.append((name, inputs))
        self.shapes.append(shape or self.shapes[inputs[0]])
        self.readers = {node: number for number, (_, read) in enumerate(self.nodes) for node in read}
        return self.last

    def window(self, name, module, filters, source, kernel, stride, padding):
        """A module that slides over images."""
        source = self.last if source is None else source
        _, height, width = self.shapes[source]
        height, width = ((extent + 2 * padding - kernel) // stride + 1 for extent in (height, width))
        if height < 1 or width < 1:
            raise ValueError(f"{name}: the image is too small")
        return self.add(name, module, (source,), (filters, height, width))

    def conv(self, name, filters, kernel=3, stride=1, *, depthwise=False, bias=False, source=None, padding=None):
        channels = self.channels(source)
        padding = kernel // 2 if padding is None else padding
        conv = nn.Conv2d(channels, filters, kernel, stride, padding, groups=channels if depthwise else 1, bias=bias)
        return self.window(name, conv, filters, source, kernel, stride, padding)

    def activation(self, name, kind):
        return self.add(name + "_activation", ACTIVATIONS[kind]()) if kind else self.last

    def norm(self, name, kind="relu", source=None, eps=1e-5, momentum=0.1):
        self.add(name, nn.BatchNorm2d(self.channels(source), eps=eps, momentum=momentum), None if source is None else (source,))
        return self.activation(name, kind)

    def conv_norm(self, name, filters, kernel=3, stride=1, kind="relu", *, depthwise=False, source=None, norm=None):
        self.conv(name, filters, kernel, stride, depthwise=depthwise, source=source)
        return self.norm(name + "_norm", kind, **(norm or {}))

    def pool(self, name, module, kernel=2, stride=2, padding=0):
        return self.window(name, module(kernel, stride, padding), self.channels(), None, kernel, stride, padding)

    def mean(self):
        return self.add("pool", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), shape=(self.channels(),))

    def flatten(self):
        shape = self.shapes[-1]
        return self.add("flatten", nn.Flatten(), shape=(shape[0] * shape[1] * shape[2],))

    def dense(self, name, units, kind=None):
        flattened = self.nodes[-1][0] == "flatten"
        layer = nn.Linear(self.channels(), units)
        layer.image = self.shapes[-2] if flattened else None  # (channels, height, width) before flatten
        self.add(name, layer, shape=(units,))
        return self.activation(name, kind)

    def forward(self, x):
        values, modules = {0: x}, self.modules_by_name._modules
        for number, (name, inputs) in enumerate(self.nodes):
            arguments = [values[node] for node in inputs]
            for node in set(inputs):
                if self.readers[node] == number:
                    del values[node]
            values[number + 1] = modules[name](*arguments)
            del arguments
        return values[self.last]


def blocks_of(depths):
    """stage, block within it, and the name, all counted from 1."""
    return [(stage, i + 1, f"stage{stage}_block{i + 1}") for stage, depth in enumerate(depths, 1) for i in range(depth)]


def separable_cnn(net, classes, _width):
    for suffix, filters in (("", 32), ("_2", 64)):
        net.window("separable_conv2d" + suffix, Separable(net.channels(), filters), filters, None, 3, 1, 0)
        net.activation("separable_conv2d" + suffix, "relu")
        if not suffix:
            net.pool("max_pool", nn.MaxPool2d)
    net.flatten()
    net.dense("dense", 64, "relu")
    net.dense("dense_2", classes)


def residual_stages(net, depths, bottleneck=False, channels=64):
    for stage, block, name in blocks_of(depths):
        width, begin = channels << (stage - 1), net.last
        stride = 2 if stage > 1 and block == 1 else 1
        if bottleneck:
            net.conv_norm(name + "/conv1", width, 1)
            net.conv_norm(name + "/conv2", width, 3, stride)
            body = net.conv_norm(name + "/conv3", 4 * width, 1, kind=None)
        else:
            net.conv_norm(name + "/conv1", width, 3, stride)
            body = net.conv_norm(name + "/conv2", width, kind=None)
        shortcut = begin
        if block == 1 and (stage > 1 or bottleneck):
            shortcut = net.conv_norm(name + "/shortcut", net.channels(body), 1, stride, None, source=begin)
        net.add(name + "/add", Add(), (body, shortcut))
        net.activation(name + "/add", "relu")


def small_resnet(*stages):
    def build(net, classes, _width):
        net.conv_norm("stem", stages[2] if len(stages) > 2 else 64)
        residual_stages(net, *stages)
        net.mean()
        net.dense("classifier", classes)
    return build


def large_stem(net):
    net.conv_norm("stem", 64, 7, 2)
    net.pool("stem_pool", nn.MaxPool2d, 3, 2, 1)


def large_resnet(*stages):
    def build(net, classes, _width):
        large_stem(net)
        residual_stages(net, *stages)
        net.mean()
        net.dense("classifier", classes)
    return build


def wide_resnet28_10(net, classes, width):
    net.conv("stem", 16)
    for stage, block, name in blocks_of((4, 4, 4)):
        channels, begin = max(1, round((80 << stage) * width)), net.last
        stride = 2 if stage > 1 and block == 1 else 1
        normed = net.norm(name + "/norm1")
        net.conv(name + "/conv1", channels, 3, stride)
        net.norm(name + "/norm2")
        body = net.conv(name + "/conv2", channels)
        project = stride != 1 or net.channels(begin) != channels
        shortcut = net.conv(name + "/shortcut", channels, 1, stride, source=normed) if project else begin
        net.add(name + "/add", Add(), (body, shortcut))
    net.norm("norm")
    net.mean()
    net.dense("classifier", classes)


def vgg(*depths):
    def build(net, classes, _width):
        for stage, block, _ in blocks_of(depths):
            name = f"stage{stage}_conv{block}"
            net.conv(name, min(32 << stage, 512), bias=True)
            net.activation(name, "relu")
            if block == depths[stage - 1]:
                net.pool(f"stage{stage}_pool", nn.MaxPool2d)
        net.flatten()
        for number in (1, 2):
            net.dense(f"hidden{number}", 4096, "relu")
            net.add(f"dropout{number}", nn.Dropout(0.5))
        net.dense("classifier", classes)
    return build


def densenet121(net, classes, _width):
    large_stem(net)
    for stage, block, name in blocks_of((6, 12, 24, 16)):
        if stage > 1 and block == 1:
            net.norm(f"transition{stage - 1}/norm")
            net.conv(f"transition{stage - 1}/conv", net.channels() // 2, 1)
            net.pool(f"transition{stage - 1}/pool", nn.AvgPool2d)
        begin = net.last
        net.norm(name + "/norm1")
        net.conv(name + "/conv1", 128, 1)
        net.norm(name + "/norm2")
        grown = net.conv(name + "/conv2", 32)
        channels, *size = net.shapes[begin]
        net.add(name + "/concat", Concat(), (begin, grown), (channels + 32, *size))
    net.norm("norm")
    net.mean()
    net.dense("classifier", classes)


def mobilenet_v1(net, classes, width):
    net.conv_norm("stem", max(1, int(32 * width)), 3, 2)
    widths = (64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
    strides = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
    for number, (filters, stride) in enumerate(zip(widths, strides), 1):
        net.conv_norm(f"block{number}/depthwise", net.channels(), 3, stride, depthwise=True)
        net.conv_norm(f"block{number}/pointwise", max(1, int(filters * width)), 1)
    net.mean()
    net.dense("classifier", classes)


def multiple_of_8(channels):
    """The nearest, at least 8, and at least nine tenths."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def inverted_residual(net, name, expanded, filters, kernel, stride, kind, *, norm=None, squeeze=None, drop=0.0):
    """`squeeze`: units, activation and gate of squeeze-and-excitation."""
    begin, channels = net.last, net.channels()
    if expanded != channels:
        net.conv_norm(name + "/expand", expanded, 1, 1, kind, norm=norm)
    net.conv_norm(name + "/depthwise", expanded, kernel, stride, kind, depthwise=True, norm=norm)
    if squeeze:
        net.add(name + "/squeeze_excite", SqueezeExcite(expanded, *squeeze))
    net.conv_norm(name + "/project", filters, 1, 1, None, norm=norm)
    if stride == 1 and filters == channels:
        if drop > 0:
            net.add(name + "/drop_path", DropPath(drop))
        net.add(name + "/add", Add(), (net.last, begin))


def mobile_head(net, filters, kind, classes, norm=None, hidden=0):
    net.conv_norm("head", filters, 1, 1, kind, norm=norm)
    net.mean()
    if hidden:
        net.dense("hidden", hidden, kind)
    net.add("dropout", nn.Dropout(0.2))
    net.dense("classifier", classes)


def mobilenet_v2(net, classes, width):
    net.conv_norm("stem", multiple_of_8(32 * width), 3, 2, "relu6")
    number = 0
    for expansion, filters, count, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for i in range(count):
            number += 1
            inverted_residual(net, f"block{number}", expansion * net.channels(), multiple_of_8(filters * width), 3, 1 if i else stride, "relu6")
    mobile_head(net, multiple_of_8(1280 * max(1.0, width)), "relu6", classes)


RE, HS = "relu", "hard_swish"
V3_SMALL = ((3, 16, 16, 1, RE, 2), (3, 72, 24, 0, RE, 2), (3, 88, 24, 0, RE, 1), (5, 96, 40, 1, HS, 2), (5, 240, 40, 1, HS, 1), (5, 240, 40, 1, HS, 1),
            (5, 120, 48, 1, HS, 1), (5, 144, 48, 1, HS, 1), (5, 288, 96, 1, HS, 2), (5, 576, 96, 1, HS, 1), (5, 576, 96, 1, HS, 1))
V3_LARGE = ((3, 16, 16, 0, RE, 1), (3, 64, 24, 0, RE, 2), (3, 72, 24, 0, RE, 1), (5, 72, 40, 1, RE, 2), (5, 120, 40, 1, RE, 1), (5, 120, 40, 1, RE, 1),
            (3, 240, 80, 0, HS, 2), (3, 200, 80, 0, HS, 1), (3, 184, 80, 0, HS, 1), (3, 184, 80, 0, HS, 1), (3, 480, 112, 1, HS, 1), (3, 672, 112, 1, HS, 1),
            (5, 672, 160, 1, HS, 2), (5, 960, 160, 1, HS, 1), (5, 960, 160, 1, HS, 1))


def mobilenet_v3(stages, hidden):
    norm = {"eps": 1e-3, "momentum": 0.01}

    def build(net, classes, width):
        net.conv_norm("stem", multiple_of_8(16 * width), 3, 2, HS, norm=norm)
        for number, (kernel, expanded, filters, squeezes, kind, stride) in enumerate(stages, 1):
            expanded = multiple_of_8(expanded * width)
            squeeze = (multiple_of_8(expanded // 4), nn.ReLU(), nn.Hardsigmoid()) if squeezes else None
            inverted_residual(net, f"block{number}", expanded, multiple_of_8(filters * width), kernel, stride, kind, norm=norm, squeeze=squeeze)
        mobile_head(net, 6 * net.channels(), HS, classes, norm, multiple_of_8(hidden * width))
    return build


def efficientnet_b0(net, classes, width):
    net.conv_norm("stem", multiple_of_8(32 * width), 3, 2, "silu")
    stages = ((1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4), (6, 3, 1, 320, 1))
    for number, (stage, block, name) in enumerate(blocks_of([stage[4] for stage in stages])):
        expansion, kernel, stride, filters, _ = stages[stage - 1]
        squeeze = (max(1, net.channels() // 4), nn.SiLU(), nn.Sigmoid())
        inverted_residual(net, name, expansion * net.channels(), multiple_of_8(filters * width), kernel, stride if block == 1 else 1, "silu",
                          squeeze=squeeze, drop=0.2 * number / 16)
    mobile_head(net, 4 * net.channels(), "silu", classes)


def convnext(first, depths, response_norm=False):
    def build(net, classes, _width):
        def norm(name):
            net.add(name, ChannelNorm(net.channels(), eps=1e-6))

        net.conv("stem", first, 4, 4, bias=True, padding=0)
        norm("stem_norm")
        for number, (stage, block, name) in enumerate(blocks_of(depths)):
            if stage > 1 and block == 1:
                norm(f"downsample{stage - 1}/norm")
                net.conv(f"downsample{stage - 1}/conv", 2 * net.channels(), 2, 2, bias=True, padding=0)
            begin, channels = net.last, net.channels()
            net.conv(name + "/depthwise", channels, 7, depthwise=True, bias=True)
            norm(name + "/norm")
            net.conv(name + "/expand", 4 * channels, 1, bias=True)
            net.activation(name + "/expand", "gelu")
            if response_norm:
                net.add(name + "/response_norm", ResponseNorm(4 * channels))
            net.conv(name + "/project", channels, 1, bias=True)
            if not response_norm:
                net.add(name + "/layer_scale", LayerScale(channels, 1e-6))
                if number:
                    net.add(name + "/drop_path", DropPath(0.1 * number / 17))
            net.add(name + "/add", Add(), (net.last, begin))
        net.mean()
        norm("norm")
        net.dense("classifier", classes)
    return build


def shufflenet_v2_x1_0(net, classes, _width):
    net.conv_norm("stem", 24, 3, 2)
    net.pool("stem_pool", nn.MaxPool2d, 3, 2, 1)
    for stage, block, name in blocks_of((4, 8, 4)):
        half, begin = 58 << (stage - 1), net.last
        if block == 1:
            net.conv_norm(name + "/shortcut_depthwise", net.channels(), 3, 2, None, depthwise=True)
            left, right = net.conv_norm(name + "/shortcut", half, 1), begin
        else:
            left, right = (net.add(f"{name}/{side}", Halves(i), (begin,), (half, *net.shapes[begin][1:])) for i, side in enumerate(("left", "right")))
        net.conv_norm(name + "/expand", half, 1, source=right)
        net.conv_norm(name + "/depthwise", half, 3, 2 if block == 1 else 1, None, depthwise=True)
        right = net.conv_norm(name + "/project", half, 1)
        net.add(name + "/concat", Concat(), (left, right), (2 * half, *net.shapes[right][1:]))
        net.add(name + "/shuffle", nn.ChannelShuffle(2))
    net.conv_norm("head", 1024, 1)
    net.mean()
    net.dense("classifier", classes)


class PatchAttention(nn.Module):
    """Attention of each of the four pixels of a 2x2 patch to those at the same place of all patches."""

    def __init__(self, heads):
        super().__init__()
        self.attention = Attention(heads)

    def forward(self, x):
        batch, _, height, width = x.shape
        places = x.unflatten(2, (-1, 2)).unflatten(4, (-1, 2)).permute(0, 3, 5, 2, 4, 1)  # (batch, 2, 2, height / 2, width / 2, channels)
        tokens = self.attention(places.flatten(3, 4).flatten(0, 2))
        places = tokens.unflatten(1, (height // 2, -1)).unflatten(0, (batch, 2, 2))
        return places.permute(0, 5, 3, 1, 4, 2).flatten(4, 5).flatten(2, 3)


def mobilevit_s(net, classes, _width):
    def transformer(name, channels):
        def add(part, module, units=None, inputs=None):  # modules over the channels of images
            return net.add(f"{name}/{part}", module, inputs, (units or channels, *net.shapes[-1][1:]))

        begin = net.last
        add("norm1", ChannelNorm(channels, eps=1e-5))
        add("qkv", PixelLinear(channels, 3 * channels), 3 * channels)
        add("attention", PatchAttention(4))
        add("project", PixelLinear(channels, channels))
        begin = add("add1", Add(), None, (net.last, begin))
        add("norm2", ChannelNorm(channels, eps=1e-5))
        add("expand", PixelLinear(channels, 2 * channels), 2 * channels)
        net.activation(name + "/expand", "silu")
        add("contract", PixelLinear(2 * channels, channels))
        add("add2", Add(), None, (net.last, begin))

    net.conv_norm("stem", 16, 3, 2, "silu")
    for stage, (filters, stride, count, channels, depth) in enumerate(
            ((32, 1, 1, 0, 0), (64, 2, 3, 0, 0), (96, 2, 1, 144, 2), (128, 2, 1, 192, 4), (160, 2, 1, 240, 3)), 1):
        for block in range(1, count + 1):
            inverted_residual(net, f"stage{stage}_block{block}", 4 * net.channels(), filters, 3, stride if block == 1 else 1, "silu")
        if not depth:
            continue
        name, begin = f"stage{stage}_block{count + 1}", net.last
        net.conv_norm(name + "/local", filters, kind="silu")
        net.conv(name + "/enter", channels, 1)
        for number in range(1, depth + 1):
            transformer(f"{name}/transformer{number}", channels)
        net.add(name + "/norm", ChannelNorm(channels, eps=1e-5))
        left = net.conv_norm(name + "/leave", filters, 1, kind="silu")
        net.add(name + "/concat", Concat(), (begin, left), (2 * filters, *net.shapes[-1][1:]))
        net.conv_norm(name + "/fuse", filters, kind="silu")
    net.conv_norm("head", 640, 1, kind="silu")
    net.mean()
    net.dense("classifier", classes)


def vit(patch, channels, heads, depth, deit3=False):
    """Of the last block's tokens only the first goes on once attention has read all, as in the zoo: the same function."""
    def build(net, classes, _width):
        net.conv("stem", channels, patch, patch, bias=True, padding=0)
        _, height, width = net.shapes[-1]
        tokens = height * width + 1
        if deit3:
            net.add("position_embedding", PositionEmbedding(height, width, channels))
        net.add("class_token", ClassToken(channels), shape=(channels, tokens))
        if not deit3:
            net.add("position_embedding", PositionEmbedding(tokens, channels))

        def dense(name, units):
            net.add(name, nn.Linear(net.channels(), units), shape=(units, net.shapes[-1][1]))

        def norm(name):
            net.add(name, ChannelNorm(channels, eps=1e-6))

        def add_sum(name, number, source):
            if deit3:
                net.add(f"{name}/layer_scale{number}", LayerScale(channels, 1e-6))
            return net.add(f"{name}/add{number}", Add(), (net.last, source))

        for number in range(1, depth + 1):
            name, begin = f"block{number}", net.last
            norm(name + "/norm1")
            dense(name + "/qkv", 3 * channels)
            attended = net.add(name + "/attention", Attention(heads), shape=(channels, tokens))
            if number == depth:
                begin = net.add(name + "/slice", First(), (begin,), (channels, 1))
                net.add(name + "/slice_attention", First(), (attended,), (channels, 1))
            dense(name + "/project", channels)
            begin = add_sum(name, 1, begin)
            norm(name + "/norm2")
            dense(name + "/expand", 4 * channels)
            net.activation(name + "/expand", "gelu")
            dense(name + "/contract", channels)
            add_sum(name, 2, begin)
        net.add("flatten", nn.Flatten(), shape=(channels,))
        norm("norm")
        net.dense("classifier", classes)
    return build


def unet(net, classes, width):
    def double_conv(name, channels):
        net.conv_norm(name + "/conv1", channels)
        net.conv_norm(name + "/conv2", channels)

    widths, skips = [max(1, round((64 << level) * width)) for level in range(5)], []
    for level, channels in enumerate(widths, 1):
        if level > 1:
            skips.append(net.last)
            net.pool(f"down{level}/pool", nn.MaxPool2d)
        double_conv(f"down{level}", channels)
    for level, channels, skip in zip((4, 3, 2, 1), widths[3::-1], reversed(skips)):
        size = net.shapes[skip][1:]
        up = net.add(f"up{level}/upsample", nn.ConvTranspose2d(net.channels(), channels, 2, 2), shape=(channels, *size))
        net.add(f"up{level}/concat", Concat(), (skip, up), (2 * channels, *size))
        double_conv(f"up{level}", channels)
    net.conv("classifier", classes, 1, bias=True)


# Function, height and width of its images, classes: the zoo's defaults.
NETWORKS = {
    "separable_cnn": (separable_cnn, 32, 10),
    "resnet18_cifar": (small_resnet((2, 2, 2, 2)), 32, 10),
    "resnet20": (small_resnet((3, 3, 3), False, 16), 32, 10),
    "resnet56": (small_resnet((9, 9, 9), False, 16), 32, 10),
    "wide_resnet28_10": (wide_resnet28_10, 32, 10),
    "vgg11": (vgg(1, 1, 2, 2, 2), 224, 1000),
    "vgg16": (vgg(2, 2, 3, 3, 3), 224, 1000),
    "resnet18": (large_resnet((2, 2, 2, 2)), 224, 1000),
    "resnet34": (large_resnet((3, 4, 6, 3)), 224, 1000),
    "resnet50": (large_resnet((3, 4, 6, 3), True), 224, 1000),
    "resnet101": (large_resnet((3, 4, 23, 3), True), 224, 1000),
    "densenet121": (densenet121, 224, 1000),
    "mobilenet_v1": (mobilenet_v1, 224, 1000),
    "mobilenet_v2": (mobilenet_v2, 224, 1000),
    "mobilenet_v3_small": (mobilenet_v3(V3_SMALL, 1024), 224, 1000),
    "mobilenet_v3_large": (mobilenet_v3(V3_LARGE, 1280), 224, 1000),
    "efficientnet_b0": (efficientnet_b0, 224, 1000),
    "convnext_tiny": (convnext(96, (3, 3, 9, 3)), 224, 1000),
    "convnextv2_atto": (convnext(40, (2, 2, 6, 2), True), 224, 1000),
    "convnextv2_tiny": (convnext(96, (3, 3, 9, 3), True), 224, 1000),
    "shufflenet_v2_x1_0": (shufflenet_v2_x1_0, 224, 1000),
    "mobilevit_s": (mobilevit_s, 256, 1000),
    "vit_tiny_16": (vit(16, 192, 3, 12), 224, 1000),
    "vit_small_16": (vit(16, 384, 6, 12), 224, 1000),
    "vit_base_16": (vit(16, 768, 12, 12), 224, 1000),
    "vit_base_32": (vit(32, 768, 12, 12), 224, 1000),
    "vit_large_16": (vit(16, 1024, 16, 24), 224, 1000),
    "deit3_small_16": (vit(16, 384, 6, 12, True), 224, 1000),
    "deit3_base_16": (vit(16, 768, 12, 12, True), 224, 1000),
    "unet": (unet, 256, 2),
}


def make(name, size=None, classes=None, width=1.0):
    """A network of NETWORKS with images of size x size pixels."""
    build, default_size, default_classes = NETWORKS[name]
    net = Network(size or default_size)
    build(net, classes or default_classes, width)
    return net


def without_drops(model):
    """The same without random numbers: dropout and stochastic depth at rate 0."""
    for module in model.modules():
        if isinstance(module, (nn.Dropout, DropPath)):
            module.p = 0.0
    return model


def bantam_tensors(model, gradients=False):
    """Parameters (or their gradients) and running statistics by Bantam's names, in Bantam's layouts. Modules that have none are left out."""
    found = {}
    names = {"running_mean": "running_mean", "running_var": "running_variance"}
    for path, module in model.modules_by_name.named_modules():
        node = path.replace(".", "/")
        for name, parameter in module.named_parameters(recurse=False):
            value = parameter.grad if gradients else parameter
            found[bantam_name(module, node, name)] = in_bantam_layout(module, name, value.detach())
        for name, value in module.named_buffers(recurse=False):
            if name in names:
                found[f"{node}/{names[name]}"] = value.detach()
    return found


def bantam_name(module, node, name):
    if isinstance(module, (nn.BatchNorm2d, nn.LayerNorm)):
        name = {"weight": "scale", "bias": "shift"}[name]
    parent, _, part = node.rpartition("/")
    if part in ("depthwise", "pointwise") and parent.startswith("separable"):
        return f"{parent}/bias" if name == "bias" else f"{parent}/{part}_{name}"
    return f"{node}/{name}"


def in_bantam_layout(module, name, value):
    if name != "weight":
        return value
    if isinstance(module, nn.ConvTranspose2d):
        return value.permute(0, 2, 3, 1)
    if isinstance(module, nn.Conv2d):
        return value.permute(2, 3, 0, 1).flatten(2) if module.groups > 1 else value.permute(0, 2, 3, 1)
    if isinstance(module, nn.Linear) and getattr(module, "image", None):
        return value.unflatten(1, module.image).permute(0, 2, 3, 1).flatten(1)
    return value


def randomise(model, seed):
    """Weights of variance 2/inputs, biases and shifts near 0, scales near 1 (layer scales too, so that the branches count). Normalisations at the end
    of residual branches have scales near 0.3, as in trained networks: with 1, deep ones amplify rounding to several percent of the gradient."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            with torch.no_grad():
                parameter.normal_(generator=generator)
                if name == "weight" and parameter.dim() > 1:
                    inputs = parameter[0].numel() if not isinstance(module, nn.ConvTranspose2d) else parameter.shape[0]
                    parameter.mul_((2 / inputs) ** 0.5)
                elif name in ("bias", "shift"):
                    parameter.mul_(0.1)
                elif name in ("token", "embedding"):
                    parameter.mul_(0.5)
                else:
                    parameter.mul_(0.2).add_(1)
    ends = [model.nodes[inputs[0] - 1][0] for name, inputs in model.nodes if isinstance(model.modules_by_name._modules[name], Add)]
    for module in (model.modules_by_name._modules[end] for end in ends):
        if isinstance(module, nn.BatchNorm2d):
            with torch.no_grad():
                module.weight.mul_(0.3)
    return model
