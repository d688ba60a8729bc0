"""Other programs' side of tests/run/weights/torchvision_test.cpp. Run with PyTorch, torchvision, timm and transformers.

python torchvision_weights.py make FOLDER NETWORK:FUNCTION:SIZE …
    writes NETWORK.pth, the state_dict of a network of random weights whose running statistics are those of random images;
    NETWORK.images, float32 (batch, height, width, 3); NETWORK.logits. NETWORK@PROGRAM is the same network of another
    program: mobilenet_v2@timm
python torchvision_weights.py check FOLDER NETWORK:FUNCTION:SIZE …
    loads NETWORK.exported.safetensors into a new network, strictly, and writes NETWORK.again, its logits
python torchvision_weights.py names NETWORK:FUNCTION …
    prints a digest of each network's state_dict: names and shapes, for kDigests
"""
import hashlib
import json
import struct
import sys

import torch
import torchvision

BATCH, CLASSES = 4, 7
TIMM = {"vgg11": "vgg11", "vgg16": "vgg16", "mobilenet_v2": "mobilenetv2_100", "mobilenet_v3_small": "mobilenetv3_small_100",
        "mobilenet_v3_large": "mobilenetv3_large_100", "vit_base_16": "vit_base_patch16_224",
        "vit_base_32": "vit_base_patch32_224", "vit_large_16": "vit_large_patch16_224"}
RESNETS = {"resnet18": ("basic", [2, 2, 2, 2], [64, 128, 256, 512]), "resnet34": ("basic", [3, 4, 6, 3], [64, 128, 256, 512]),
           "resnet50": ("bottleneck", [3, 4, 6, 3], [256, 512, 1024, 2048]),
           "resnet101": ("bottleneck", [3, 4, 23, 3], [256, 512, 1024, 2048])}
# Channels, heads, blocks and the patches' side.
VITS = {"vit_tiny_16": (192, 3, 12, 16), "vit_small_16": (384, 6, 12, 16), "vit_base_16": (768, 12, 12, 16),
        "vit_base_32": (768, 12, 12, 32), "vit_large_16": (1024, 16, 24, 16)}
CONVNEXTS = {"convnextv2_atto": ([2, 2, 6, 2], [40, 80, 160, 320]), "convnextv2_tiny": ([3, 3, 9, 3], [96, 192, 384, 768])}


def of_transformers(name, classes, size):
    import transformers
    if name in VITS:
        channels, heads, depth, patch = VITS[name]
        return transformers.ViTForImageClassification(transformers.ViTConfig(
            hidden_size=channels, num_attention_heads=heads, num_hidden_layers=depth, intermediate_size=4 * channels,
            image_size=size, patch_size=patch, num_labels=classes))
    if name in CONVNEXTS:
        depths, sizes = CONVNEXTS[name]
        return transformers.ConvNextV2ForImageClassification(
            transformers.ConvNextV2Config(depths=depths, hidden_sizes=sizes, num_labels=classes))
    if name == "convnext_tiny":
        return transformers.ConvNextForImageClassification(transformers.ConvNextConfig(num_labels=classes))
    layer, depths, sizes = RESNETS[name]
    return transformers.ResNetForImageClassification(
        transformers.ResNetConfig(layer_type=layer, depths=depths, hidden_sizes=sizes, num_labels=classes))


def network(name, function, classes=CLASSES, size=224):
    name, _, program = name.partition("@")
    sized = name.startswith(("vit", "deit"))  # positions are those of images of this size
    if program == "transformers":
        return of_transformers(name, classes, size)
    if program == "timm" or not hasattr(torchvision.models, function):
        import timm
        model = TIMM.get(name, name) if program else function
        return timm.create_model(model, num_classes=classes, **({"img_size": size} if sized else {}))
    model = getattr(torchvision.models, function)(num_classes=classes, **({"image_size": size} if sized else {}))
    if name == "resnet18_cifar":
        model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
        model.maxpool = torch.nn.Identity()
    return model


def logits(output):
    return getattr(output, "logits", output)


def numbers(path, values):
    with open(path, "wb") as file:
        file.write(values.detach().contiguous().numpy().tobytes())


def make(folder, name, function, size):
    torch.manual_seed(1)
    model = network(name, function, size=size)
    images = torch.randn(BATCH, 3, size, size)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # norms and biases are all alike in a new network
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif parameter.dim() == 3:  # ConvNeXt's layer_scale and a class token are nearly nothing in a new one
                parameter.add_(0.3 + 0.1 * torch.randn_like(parameter))
        for key, parameter in model.named_parameters():
            if key.endswith((".gamma", ".layer_scale_parameter", ".grn.weight")):
                parameter.add_(0.3)
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 1.0
            if isinstance(module, torch.nn.Linear):  # MobileNet's new ones hardly depend on their inputs
                module.weight.normal_(std=module.in_features ** -0.5)
        model.train()
        model(images)
        model.eval()
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):  # no channel of small variance multiplies rounding
                module.running_var.add_(0.1 * module.running_var.mean())
        numbers(f"{folder}/{name}.logits", logits(model(images)))
    numbers(f"{folder}/{name}.images", images.permute(0, 2, 3, 1))
    torch.save(model.state_dict(), f"{folder}/{name}.pth")


def load_file(path):
    """safetensors.torch.load_file, for float32."""
    with open(path, "rb") as file:
        raw = file.read()
    length = struct.unpack("<Q", raw[:8])[0]
    header, data = json.loads(raw[8:8 + length]), raw[8 + length:]
    header.pop("__metadata__")
    return {name: torch.frombuffer(bytearray(data[entry["data_offsets"][0]:entry["data_offsets"][1]]),
                                   dtype=torch.float32).reshape(entry["shape"]) for name, entry in header.items()}


def check(folder, name, function, size):
    model = network(name, function, size=size)
    model.load_state_dict(load_file(f"{folder}/{name}.exported.safetensors"))
    model.eval()
    with open(f"{folder}/{name}.images", "rb") as file:
        images = torch.frombuffer(bytearray(file.read()), dtype=torch.float32).reshape(BATCH, size, size, 3)
    with torch.no_grad():
        numbers(f"{folder}/{name}.again", model(images.permute(0, 3, 1, 2).contiguous()))


def digest(name, function):
    state = network(name, function, classes=1000).state_dict()
    lines = sorted(f"{key} {','.join(map(str, value.shape))}\n" for key, value in state.items()
                   if not key.endswith("num_batches_tracked"))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


if sys.argv[1] == "names":
    for spec in sys.argv[2:]:
        print(f'{{"{spec.split(":")[0]}", "{digest(*spec.split(":")[:2])}"}},')
else:
    for spec in sys.argv[3:]:
        name, function, size = spec.split(":")
        if sys.argv[1] == "make":
            make(sys.argv[2], name, function, int(size))
        elif "@" not in name:
            check(sys.argv[2], name, function, int(size))
