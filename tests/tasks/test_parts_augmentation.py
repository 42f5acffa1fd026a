"""Crops and flips: every result is a shifted, perhaps mirrored, copy with zeros at the rim."""

import torch

from evomal.tasks.parts import Augmentation


def possible(image, padding, flip):
    """All images that may come of one."""
    padded = torch.nn.functional.pad(image, [padding] * 4)
    _, height, width = image.shape
    found = []
    for top in range(2 * padding + 1):
        for left in range(2 * padding + 1):
            crop = padded[:, top : top + height, left : left + width]
            found += [crop, crop.flip(2)] if flip else [crop]
    return found


def test_results_are_crops_and_mirrors():
    rng = torch.Generator().manual_seed(0)
    images = torch.rand(40, 3, 6, 5, generator=rng)
    for flip in (True, False):
        changed = Augmentation(padding=2, flip=flip)(images, generator=rng)
        assert changed.shape == images.shape
        for image, result in zip(images, changed, strict=True):
            assert any(torch.equal(result, candidate) for candidate in possible(image, 2, flip))


def test_places_and_mirrors_are_drawn_evenly_and_each_image_alone():
    images = torch.zeros(20_000, 1, 9, 9)
    images[:, 0, 4, 4] = 1
    rng = torch.Generator().manual_seed(0)
    changed = Augmentation(padding=4, flip=False)(images, generator=rng)
    counts = changed.sum(0)[0]
    assert counts.min() > 150
    assert counts.max() < 350
    left = torch.zeros(20_000, 1, 9, 9)
    left[:, 0, :, 0] = 1
    mirrored = Augmentation(padding=0, flip=True)(left, generator=rng)[:, 0, 0, 8].mean().item()
    assert abs(mirrored - 0.5) < 0.02


def test_the_generator_decides_and_the_images_stay():
    images = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    before, state = images.clone(), torch.get_rng_state()
    first, again = (Augmentation()(images, generator=torch.Generator().manual_seed(2)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(images, before)
    assert torch.equal(state, torch.get_rng_state())
