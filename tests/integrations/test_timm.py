"""Mixup and cutmix of timm: the loss of mixed targets is the mixture of the losses, for every loss of classes."""

import copy

import numpy as np
import pytest
import torch

from tests.integrations import library
from tests.losses.every_loss import CLASSES, LOSSES

timm_data = library("timm.data")


@pytest.fixture
def numpy_seed():
    """Timm draws from NumPy's global generator."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


@pytest.mark.parametrize(
    "options", [{"mixup_alpha": 1.0}, {"mixup_alpha": 0.0, "cutmix_alpha": 1.0}], ids=["mix", "cut"]
)
@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.kind == "classification"])
def test_mixed_targets_cost_the_mixture_of_the_losses(name, options, numpy_seed):
    loss = copy.deepcopy(LOSSES[name])
    loss.reduction = "none"
    rng = torch.Generator().manual_seed(0)
    images, labels = torch.rand(6, 3, 8, 8, generator=rng), torch.randint(CLASSES, (6,), generator=rng)
    mix = timm_data.Mixup(label_smoothing=0.0, num_classes=CLASSES, **options)
    _, target = mix(images.clone(), labels)
    assert target.shape == (6, CLASSES)
    first, other = labels, labels.flip(0)
    differs = first != other
    share = target.gather(1, first.unsqueeze(1)).squeeze(1)[differs][:1]  # one for the batch
    assert 0 < share < 1
    output = torch.randn(6, CLASSES, generator=rng)
    torch.testing.assert_close(
        loss(output, target), share * loss(output, first) + (1 - share) * loss(output, other), rtol=1e-4, atol=1e-5
    )
