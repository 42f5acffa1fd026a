"""Losses for wrong labels and poly-1 against their definitions, for every form that a target can take."""

import math

import pytest
import torch

import evomal
from evomal.errors import InputError
from evomal.losses import (
    GeneralizedCrossEntropyLoss,
    NormalizedCrossEntropyLoss,
    PolyLoss,
    SymmetricCrossEntropyLoss,
)

LOSSES = {
    "gce": lambda **o: GeneralizedCrossEntropyLoss(0.7, **o),
    "gce 1": lambda **o: GeneralizedCrossEntropyLoss(1.0, **o),
    "sce": lambda **o: SymmetricCrossEntropyLoss(0.3, 0.8, -5.0, **o),
    "nce-rce": lambda **o: NormalizedCrossEntropyLoss(0.9, 0.2, -6.0, **o),
    "poly-1": lambda **o: PolyLoss(1.7, **o),
}


def defined(name, p, target):
    """The loss of one sample as the papers write it, from the list of all probabilities."""
    one_hot = [float(place == target) for place in range(len(p))]

    def reverse(log_zero):  # -Σ p log y, with log 0 = A
        return -sum(share * (0.0 if bit else log_zero) for share, bit in zip(p, one_hot, strict=True))

    if name == "gce":
        return (1 - p[target] ** 0.7) / 0.7
    if name == "gce 1":
        return sum(abs(share - bit) for share, bit in zip(p, one_hot, strict=True)) / 2
    if name == "sce":
        return -0.3 * math.log(p[target]) + 0.8 * reverse(-5.0)
    if name == "nce-rce":
        every = [-math.log(share) for share in p]
        return 0.9 * every[target] / sum(every) + 0.2 * reverse(-6.0)
    return -math.log(p[target]) + 1.7 * (1 - p[target])


def logits(*shape):
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("name", LOSSES)
def test_class_indices(name):
    z, target = logits(6, 4), torch.tensor([0, 1, 2, 3, 3, 0])
    expected = [defined(name, p, t) for p, t in zip(z.softmax(1).tolist(), target.tolist(), strict=True)]
    assert LOSSES[name](reduction="none")(z, target).tolist() == pytest.approx(expected, rel=1e-12)
    weight = [0.5, 2.0, 1.0, 4.0]
    weighted = [cost * weight[t] for cost, t in zip(expected, target.tolist(), strict=True)]
    of_targets = sum(weight[t] for t in target.tolist())
    assert LOSSES[name](weight=weight)(z, target).item() == pytest.approx(sum(weighted) / of_targets, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_class_probabilities_cost_the_expected_value(name):
    z, target = logits(6, 4), logits(7, 4)[1:].softmax(1)
    expected = [
        sum(share * defined(name, p, place) for place, share in enumerate(shares))
        for p, shares in zip(z.softmax(1).tolist(), target.tolist(), strict=True)
    ]
    assert LOSSES[name](reduction="none")(z, target).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_one_logit_and_labels_are_problems_of_two_classes(name):
    z = logits(6)
    bits = torch.tensor([0, 1, 1, 0, 1, 0])
    expected = [defined(name, [1 - p, p], bit) for p, bit in zip(z.sigmoid().tolist(), bits.tolist(), strict=True)]
    assert LOSSES[name](reduction="none")(z[:, None], bits).tolist() == pytest.approx(expected, rel=1e-11)
    labels = LOSSES[name](reduction="none", kind="multilabel")(z.view(2, 3), bits.view(2, 3))
    assert labels.flatten().tolist() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("form", ["indices", "probabilities", "bits"])
def test_gradients(name, form):
    z = logits(4, 1 if form == "bits" else 3).requires_grad_()
    target = {
        "indices": torch.tensor([0, 2, 1, 1]),
        "probabilities": logits(5, 3)[1:].softmax(1),
        "bits": torch.tensor([0, 1, 1, 0]),
    }[form]
    loss = LOSSES[name](reduction="none")
    assert torch.autograd.gradcheck(lambda z: loss(z, target), z)
    assert torch.autograd.gradgradcheck(lambda z: loss(z, target), z)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_extreme_logits_give_finite_values_and_gradients(name, dtype):
    rows = [[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0], [1e4, 1e4, 1e4], [27.7, 0, 0], [-27.7, 0, 0], [0, 0, 0]]
    for target in (torch.tensor([0, 0, 1, 0, 0, 1]), torch.eye(3, dtype=dtype)[[0, 0, 1, 0, 0, 1]]):
        z = torch.tensor(rows, dtype=dtype, requires_grad=True)
        value = LOSSES[name](reduction="sum")(z, target)
        value.backward()
        assert value.isfinite()
        assert z.grad.isfinite().all()


def test_masked_classes_have_no_part_in_normalised_cross_entropy():
    inf = math.inf
    for loss in (NormalizedCrossEntropyLoss(reduction="none"), NormalizedCrossEntropyLoss(9.0, reduction="none")):
        scope = {}
        exec(compile(evomal.export(loss), "exported.py", "exec"), scope)
        exported = scope["LearnedLoss"]()
        for target in (torch.tensor([0, 1, 0]), torch.eye(3, dtype=torch.float64)[[0, 1, 0]]):
            z = torch.tensor([[0.5, 1.0, -inf], [0.5, -inf, 2.0], [0.5, -inf, -inf]], dtype=torch.float64)
            z.requires_grad_()
            costs = loss(z, target)
            (gradient,) = torch.autograd.grad(costs.sum(), z)
            kept = loss(torch.tensor([[0.5, 1.0]], dtype=torch.float64), torch.tensor([0]))
            worst = loss.alpha - loss.beta * loss.log_zero
            assert costs.tolist() == pytest.approx([kept.item(), worst, 0], rel=1e-12)
            assert gradient.isfinite().all()
            assert gradient[0, 0] < 0 == gradient[0, 2]
            torch.testing.assert_close(exported(z, target), costs, rtol=1e-12, atol=0)


def test_generalised_cross_entropy_tends_to_cross_entropy():
    z, target = logits(6, 4), torch.tensor([0, 1, 2, 3, 3, 0])
    expected = torch.nn.functional.cross_entropy(z, target)
    torch.testing.assert_close(GeneralizedCrossEntropyLoss(1e-9)(z, target), expected, rtol=1e-7, atol=0)


def test_normalised_cross_entropy_adds_up_to_one_over_the_classes():
    z = logits(1, 4)
    every = [NormalizedCrossEntropyLoss(beta=0.0)(z, torch.tensor([place])).item() for place in range(4)]
    assert sum(every) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: GeneralizedCrossEntropyLoss(0), "q must be a finite number of more than 0 and at most 1 but got 0"),
        (
            lambda: GeneralizedCrossEntropyLoss(1.1),
            "q must be a finite number of more than 0 and at most 1 but got 1.1",
        ),
        (lambda: SymmetricCrossEntropyLoss(-1), "alpha must be a finite number of at least 0 but got -1"),
        (lambda: SymmetricCrossEntropyLoss(beta=-1), "beta must be a finite number of at least 0 but got -1"),
        (lambda: NormalizedCrossEntropyLoss(log_zero=0), "log_zero must be a finite number of less than 0 but got 0"),
        (lambda: PolyLoss(-2), "epsilon must be a finite number of at least -1 but got -2"),
    ],
)
def test_options_out_of_range(make, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        make()
