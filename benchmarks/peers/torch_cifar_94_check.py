"""What torch_cifar_94.py --check tests: that its whitening, flips, crops, views and iterations are what their names say."""
import math

import torch
from torch.nn import functional

import torch_cifar_94 as recipe


def patches_variance(images):
    patches = recipe.patches_of(images)
    return torch.linalg.eigvalsh(patches.T @ patches / len(patches)).min().item()


def check_whitening(images):
    filters = recipe.whitening(images)
    white = recipe.patches_of(images) @ filters[:12].reshape(12, 12).T
    covariance = white.T @ white / len(white)
    away = (covariance - torch.eye(12, dtype=covariance.dtype)).abs().max().item()
    print(f"whitened patches: covariance is I within {away:.4f}; epsilon over the least variance is {recipe.WHITENED_EPSILON / patches_variance(images):.4f}")
    assert away <= 1.01 * recipe.WHITENED_EPSILON / patches_variance(images) + 1e-6 and torch.equal(filters[:12], -filters[12:])


def check_crops(padded, images):
    kept = padded[:, :, 2:34, 2:34]
    flipped = (kept == images.flip(3)).flatten(1).all(1)
    assert torch.equal(kept[~flipped], images[~flipped]) and 90 < flipped.sum() < 166, "each image is flipped once, or not"
    assert torch.equal(padded[:, :, 1, 2:34], padded[:, :, 3, 2:34]) and torch.equal(padded[:, :, :, 35], padded[:, :, :, 31]), "reflected"
    for epoch in range(2):
        seen = set()
        for image, crop in zip(padded, recipe.augmented(padded, torch.arange(256), epoch, jitter=False)):
            crop = crop.flip(2) if epoch % 2 else crop
            seen |= {(r, c) for r in range(5) for c in range(5) if torch.equal(image[:, r:r + 32, c:c + 32], crop)}
        assert len(seen) == 25, "all 25 crops occur, mirrored in odd epochs"
    print(f"alternating flip: {int(flipped.sum())} of 256 images flipped before epoch 0, all in odd epochs; 25 crops")


def check_jitter(padded, seed):
    torch.manual_seed(seed)
    plain = recipe.augmented(padded, torch.arange(256), 0, jitter=False)
    torch.manual_seed(seed)
    changed = recipe.augmented(padded, torch.arange(256), 0, jitter=True)
    factor = (changed.std((1, 2, 3)) / plain.std((1, 2, 3)))
    offset = (changed.mean((1, 2, 3)) / factor - plain.mean((1, 2, 3)))
    assert 0.9 * recipe.CONTRAST < (factor - 1).abs().max() <= recipe.CONTRAST + 1e-4 and 0.9 * recipe.BRIGHTNESS < offset.abs().max() <= recipe.BRIGHTNESS + 1e-4
    print(f"jitter: contrast {factor.min():.3f} to {factor.max():.3f}, brightness {offset.min():.3f} to {offset.max():.3f}")


def check_views(images):
    views = recipe.other_views(images)
    assert len(views) == 5 and all(view.shape == images.shape for view in views) and torch.equal(views[3], views[1].flip(3))
    assert torch.equal(views[1][:, :, 1:, 1:], images[:, :, :31, :31]) and torch.equal(views[2][:, :, :31, :31], images[:, :, 1:, 1:])
    print("views: mirrored; moved by a pixel down and right, up and left, and those mirrored")


def check_iterations():
    for shape in [(2, 64, 216), (1, 256, 64)]:
        values = torch.linalg.svdvals(recipe.orthogonalized(torch.randn(shape), torch.tensor(recipe.FIRST_NORM)))
        print(f"orthogonalized {shape}: singular values {values.min():.2f} to {values.max():.2f}")
        assert 0.3 < values.min() and values.max() < 1.4


def check_parameters(options):
    training = recipe.Training(options)
    training.network.reset(training.head_deviation)
    deviation, norm = training.network.head.weight.std().item(), training.network.groups[0].conv1.weight[:24].float().norm().item()
    assert abs(deviation - training.head_deviation) < 1e-3 * training.head_deviation and abs(norm - math.sqrt(24)) < 1e-3
    print(f"head: deviation {deviation:.4f}, features times {training.network.logits_scale:.6f}")
    names = {id(parameter): name for name, parameter in training.network.named_parameters()}
    for group in recipe.sgd_groups(training.network, options, math.ceil(recipe.BIAS_EPOCHS * (50000 // options.batch))):
        print(f"sgd, {group['name']}: rate {group['lr']} to 0 at update {group['ends']}, decay {group['weight_decay']:.5f}: {' '.join(names[id(p)] for p in group['params'])}")
    print(f"muon: rate {recipe.MUON_RATE} to 0 at update {options.updates}: {' '.join(names[id(w)] for w in recipe.muon_weights(training.network, options))}")
    used = recipe.Muon(recipe.muon_weights(training.network, options), options, 0, recipe.orthogonalized)
    print("weights normalised at updates", *[t for t in range(options.updates) if used.normalizes(t)])


def check(options):
    """Fails where an ingredient is not what its name says. On random images that vary slowly, so that their patches are far from white."""
    torch.manual_seed(options.seed)
    images = functional.interpolate(torch.rand(256, 3, 8, 8), scale_factor=4, mode="bilinear")
    images = recipe.normalized(images + 0.1 * torch.rand_like(images))
    padded = recipe.padded_once(images)
    check_whitening(images)
    check_crops(padded, images)
    check_jitter(padded, options.seed)
    check_views(images)
    check_iterations()
    check_parameters(options)
