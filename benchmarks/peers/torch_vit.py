"""Vision transformers of torchvision and of timm by the names of Bantam's zoo: what people train, as peers of a race.

  model = make("vit_small_16", "timm")
"""
# Name: size of the images, patch, embedding, blocks and heads.
NETWORKS = {
    "vit_tiny_16": (224, 16, 192, 12, 3),
    "vit_small_16": (224, 16, 384, 12, 6),
    "vit_base_16": (224, 16, 768, 12, 12),
    "vit_base_32": (224, 32, 768, 12, 12),
    "vit_large_16": (224, 16, 1024, 24, 16),
}
CLASSES = 1000


def make(name, library):
    size, patch, channels, depth, heads = NETWORKS[name]
    if library == "timm":
        from timm.models.vision_transformer import VisionTransformer
        return VisionTransformer(img_size=size, patch_size=patch, embed_dim=channels, depth=depth, num_heads=heads, num_classes=CLASSES)
    from torchvision.models import VisionTransformer
    return VisionTransformer(size, patch, depth, heads, channels, 4 * channels, num_classes=CLASSES)
