"""Probabilities as targets: every loss is linear in them, so that it is the expectation over the classes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import evomal
from evomal.losses import (
    AbsoluteCrossEntropyLoss,
    CrossEntropyLoss,
    ExpressionLoss,
    FocalLoss,
    FocalSparseLabelSmoothingLoss,
    LabelSmoothingLoss,
    NeuralLoss,
    SparseLabelSmoothingLoss,
    TaylorLoss,
    starting_layers,
)

CLASSES = 4
WEIGHT = [0.5, 1.0, 2.0, 0.1]
ALL = {
    "absolute log": lambda **o: ExpressionLoss("abs(log(mul(y, f)))", **o),
    "with weights": lambda **o: ExpressionLoss("square(sub(tanh(y), f))", [2.0, 1.5, 0.5, 0.8], **o),
    "softplus": lambda **o: ExpressionLoss("mul(sub(y, f), log(f))", activation="softplus", **o),
    "taylor": lambda **o: TaylorLoss([0.1, 0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8], **o),
    "neural": lambda **o: NeuralLoss(starting_layers(generator=torch.Generator().manual_seed(0)), **o),
    "ce": CrossEntropyLoss,
    "absolute-ce": lambda **o: AbsoluteCrossEntropyLoss(0.7, 1.3, **o),
    "sparse": lambda **o: SparseLabelSmoothingLoss(0.2, **o),
    "focal": lambda **o: FocalLoss(1.5, **o),
    "focal sparse": lambda **o: FocalSparseLabelSmoothingLoss(1.5, 0.2, **o),
}
LEARNED = list(ALL)[:5]
SHAPES = {"batch": (7, CLASSES), "1d": (3, CLASSES, 4), "2d": (2, CLASSES, 3, 2), "unbatched": (CLASSES,)}


def draw(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def probabilities(seed, *shape):
    return draw(seed, *shape).softmax(0 if len(shape) == 1 else 1)


@pytest.mark.parametrize("name", LEARNED)
def test_a_model_fitted_to_probabilities_is_where_the_mixed_losses_are_lowest(name):
    loss, target = ALL[name](), torch.tensor([[0.7, 0.3]], dtype=torch.float64)
    places = torch.linspace(1e-3, 1 - 1e-3, 9981, dtype=torch.float64)
    logits = torch.stack((places, 1 - places), dim=1).log()
    mixed = sum(q * ALL[name](reduction="none")(logits, torch.full((9981,), c)) for c, q in enumerate((0.7, 0.3)))
    found = ALL[name](reduction="none")(logits, target.expand(9981, 2))
    torch.testing.assert_close(found, mixed)
    if name == "absolute log":  # cross-entropy up to a constant: its optimum is the target
        fitted = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([fitted], max_iter=200, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

        def closure():
            optimizer.zero_grad()
            value = loss(fitted, target)
            value.backward()
            return value

        optimizer.step(closure)
        torch.testing.assert_close(fitted.softmax(1).detach(), target, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "weighted"])
def test_probabilities_cost_what_the_classes_cost_times_their_shares(name, shape, weight):
    class_dim = 0 if len(shape) == 1 else 1
    output, target = draw(0, *shape) * 2, probabilities(1, *shape)
    sample_shape = target.select(class_dim, 0).shape
    expected = torch.zeros(sample_shape, dtype=torch.float64)
    for c in range(CLASSES):
        of_class = ALL[name](weight=weight, reduction="none")(output, torch.full(sample_shape, c))
        expected += target.select(class_dim, c) * of_class
    found = ALL[name](weight=weight, reduction="none")(output, target)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ALL[name](weight=weight)(output, target), expected.mean(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_one_hot_targets_are_class_indices(name, dtype):
    output, index = draw(0, 50, CLASSES).to(dtype), torch.arange(50) % CLASSES
    one_hot = F.one_hot(index, CLASSES).to(dtype)
    loss, weighted = ALL[name](reduction="none"), ALL[name](reduction="none", weight=WEIGHT)
    assert torch.equal(loss(output, one_hot), loss(output, index))
    torch.testing.assert_close(weighted(output, one_hot), weighted(output, index))
    bits = (index > 1).to(dtype)
    assert torch.equal(loss(output[:, :1], bits), loss(output[:, :1], bits.long()))
    labels = ALL[name](kind="multilabel", reduction="none")
    assert torch.equal(labels(output, one_hot), labels(output, one_hot.long()))


@pytest.mark.parametrize("name", ALL)
def test_mixed_targets_cost_the_mixed_losses(name):
    """Mixup (Zhang et al., 2018) and label smoothing make such targets."""
    output, (one, other) = draw(0, 9, CLASSES), (torch.arange(9) % CLASSES, torch.arange(9) * 2 % CLASSES)
    share = 0.3
    target = share * F.one_hot(one, CLASSES).double() + (1 - share) * F.one_hot(other, CLASSES).double()
    loss = ALL[name]()
    torch.testing.assert_close(loss(output, target), share * loss(output, one) + (1 - share) * loss(output, other))


@pytest.mark.parametrize("name", [*ALL, "label smoothing"])
@pytest.mark.parametrize("weight", [None, [0.3, 2.0]], ids=["plain", "weighted"])
def test_soft_bits_cost_what_the_bits_cost_times_their_shares(name, weight):
    make = {**ALL, "label smoothing": lambda **o: LabelSmoothingLoss(0.2, **o)}[name]
    logits, q = draw(0, 8, 1), draw(1, 8).sigmoid()
    w = torch.tensor(weight or [1.0, 1.0], dtype=torch.float32).double()
    as_bit = [make(reduction="none")(logits, torch.full((8,), bit)) for bit in (0, 1)]
    expected = (1 - q) * w[0] * as_bit[0] + q * w[1] * as_bit[1]
    torch.testing.assert_close(make(weight=weight, reduction="none")(logits, q), expected)
    torch.testing.assert_close(make(weight=weight)(logits, q), expected.mean())
    labels, soft = draw(2, 5, 2), draw(3, 5, 2).sigmoid()
    of_labels = make(kind="multilabel", weight=weight, reduction="none")
    zeros, ones = (of_labels(labels, torch.full((5, 2), bit)) for bit in (0, 1))
    torch.testing.assert_close(of_labels(labels, soft), (1 - soft) * zeros + soft * ones)


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("form", ["classes", "binary", "multilabel"])
def test_gradients_by_outputs_and_by_targets(name, form):
    shape, weight = {"classes": ((3, CLASSES), WEIGHT), "binary": ((5, 1), WEIGHT[:2])}.get(form, ((3, 2), None))
    target = (probabilities(1, *shape) if form == "classes" else draw(1, *shape).sigmoid()).requires_grad_()
    loss = ALL[name](kind="multilabel" if form == "multilabel" else "classification", weight=weight)
    assert torch.autograd.gradcheck(loss, (draw(0, *shape).requires_grad_(), target))
    torch.testing.assert_close(
        torch.func.grad(loss)(draw(0, *shape), target.detach()),
        torch.autograd.grad(loss(output := draw(0, *shape).requires_grad_(), target), output)[0],
    )


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("kind", ["classification", "multilabel", "binary"])
@pytest.mark.parametrize("to", ["python", "jax"])
def test_exports_agree_for_soft_targets(name, kind, to):
    weight = WEIGHT[:2] if kind == "binary" else WEIGHT
    loss = ALL[name](kind="multilabel" if kind == "multilabel" else "classification", weight=weight)
    output = draw(0, 6, 1 if kind == "binary" else CLASSES).float()
    target = {
        "classification": probabilities(1, 6, CLASSES), "multilabel": draw(1, 6, CLASSES).sigmoid(),
        "binary": draw(1, 6).sigmoid(),
    }[kind].float()  # fmt: skip
    scope: dict = {}
    exec(compile(evomal.export(loss, to=to), "exported.py", "exec"), scope)
    if to == "python":
        found = scope["LearnedLoss"]()(output, target)
    else:
        import jax.numpy as jnp

        found = torch.from_numpy(np.array(scope["loss"](jnp.asarray(output.numpy()), jnp.asarray(target.numpy()))))
    torch.testing.assert_close(found, loss(output, target), rtol=2e-5, atol=2e-5)
