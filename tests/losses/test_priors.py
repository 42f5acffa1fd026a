"""Losses that depend on the shares of the classes: definitions, files, exports."""

import copy
import json
import math

import pytest
import torch

import evomal
from evomal.errors import InputError
from evomal.figures.loss_shape import loss_shape
from evomal.losses import BalancedSoftmaxLoss, ClassWeightedCrossEntropyLoss, load_loss, named_loss, save_loss
from evomal.losses.catalogue import specified_loss

PRIORS = [0.5, 0.25, 0.125, 0.125]
LOSSES = {
    "class-weighted-ce": lambda **o: ClassWeightedCrossEntropyLoss(**{"priors": PRIORS, **o}),
    "balanced-softmax": lambda **o: BalancedSoftmaxLoss(1.5, **{"priors": PRIORS, **o}),
}


def defined(name, z, target, priors=PRIORS):
    """The loss of one sample from its logits."""
    if name == "balanced-softmax":
        powers = [prior**1.5 * math.exp(logit) for logit, prior in zip(z, priors, strict=True)]
        return -math.log(powers[target] / sum(powers))
    powers = [math.exp(logit) for logit in z]
    return -math.log(powers[target] / sum(powers)) / (len(priors) * priors[target])


def logits(*shape):
    return 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("name", LOSSES)
def test_class_indices(name):
    z, target = logits(6, 4), torch.tensor([0, 1, 2, 3, 3, 0])
    expected = [defined(name, row, t) for row, t in zip(z.tolist(), target.tolist(), strict=True)]
    assert LOSSES[name](reduction="none")(z, target).tolist() == pytest.approx(expected, rel=1e-12)
    # A mean divides by the weights, as in torch.
    divisor = sum(1 / (4 * PRIORS[t]) for t in target.tolist()) if name == "class-weighted-ce" else 6
    assert LOSSES[name]()(z, target).item() == pytest.approx(sum(expected) / divisor, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_class_probabilities_cost_the_expected_value(name):
    z, target = logits(6, 4), logits(7, 4)[1:].softmax(1)
    expected = [
        sum(share * defined(name, row, place) for place, share in enumerate(shares))
        for row, shares in zip(z.tolist(), target.tolist(), strict=True)
    ]
    assert LOSSES[name](reduction="none")(z, target).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_one_logit_is_a_problem_of_two_classes(name):
    z, bits, priors = logits(6), torch.tensor([0, 1, 1, 0, 1, 0]), [0.75, 0.25]
    expected = [defined(name, [0.0, x], bit, priors) for x, bit in zip(z.tolist(), bits.tolist(), strict=True)]
    found = LOSSES[name](priors=priors, reduction="none")(z[:, None], bits)
    # The weights are kept in single precision, in which 2/3 is rounded.
    assert found.tolist() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients(name):
    loss = LOSSES[name](reduction="none")
    for target in (torch.tensor([0, 2, 3, 1]), logits(5, 4)[1:].softmax(1)):
        z = logits(4, 4).requires_grad_()
        assert torch.autograd.gradcheck(lambda z, target=target: loss(z, target), z)
        assert torch.autograd.gradgradcheck(lambda z, target=target: loss(z, target), z)


@pytest.mark.parametrize("name", LOSSES)
def test_without_priors_all_classes_are_equal(name):
    z, target = logits(6, 4), torch.tensor([0, 1, 2, 3, 3, 0])
    expected = torch.nn.functional.cross_entropy(z, target)
    for priors in (None, [0.25] * 4):
        torch.testing.assert_close(LOSSES[name](priors=priors)(z, target), expected)
    torch.testing.assert_close(LOSSES[name]().with_priors(None)(z, target), expected)


@pytest.mark.parametrize("name", LOSSES)
def test_other_priors_leave_the_loss_as_it_is(name):
    loss = LOSSES[name](reduction="sum", ignore_index=2)
    other = loss.with_priors([0.25, 0.5, 0.25])
    assert loss.priors == tuple(PRIORS)
    assert (other.priors, other.classes) == ((0.25, 0.5, 0.25), 3)
    assert (other.reduction, other.ignore_index) == ("sum", 2)
    z, target = logits(5, 3), torch.tensor([0, 1, 2, 1, 0])
    expected = sum(
        defined(name, row, t, other.priors) for row, t in zip(z.tolist(), target.tolist(), strict=True) if t != 2
    )
    assert other(z, target).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_a_file_holds_the_priors_and_no_weight(name, tmp_path):
    path = tmp_path / "loss.json"
    save_loss(LOSSES[name](), path)
    document = json.loads(path.read_text())
    assert document["options"]["priors"] == PRIORS
    assert "weight" not in document["options"]
    assert load_loss(path).priors == tuple(PRIORS)
    document["options"]["priors"] = [0.5, "half"]
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match="options"):
        load_loss(path)


@pytest.mark.parametrize("name", LOSSES)
def test_exported_source_knows_the_priors(name):
    scope = {}
    loss = LOSSES[name](reduction="none")
    exec(compile(evomal.export(loss), "exported.py", "exec"), scope)
    exported = scope["LearnedLoss"]()
    for target in (torch.tensor([0, 1, 2, 3, 3, 0]), logits(7, 4)[1:].softmax(1)):
        torch.testing.assert_close(exported(logits(6, 4), target), loss(logits(6, 4), target), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", LOSSES)
def test_on_a_task_further_outputs_count_as_the_rarest_class(name):
    z, target = logits(6, 6), torch.tensor([0, 1, 2, 3, 3, 0])
    shares = torch.tensor([*PRIORS, 0.125, 0.125])
    expected = LOSSES[name](priors=shares / shares.sum())(z, target)
    on_task = LOSSES[name](priors=None).on_task(PRIORS)
    torch.testing.assert_close(on_task(z, target), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(on_task(z[0], target[0]), LOSSES[name](priors=shares / shares.sum())(z[0], target[0]))
    assert on_task.priors == LOSSES[name]().on_task([0.25] * 4).priors == tuple(PRIORS)
    assert on_task.on_task([0.5, 0.5]).priors == (0.5, 0.5), "those of a task are not kept on another"
    assert on_task.with_priors(PRIORS).on_task([0.5, 0.5]).priors == tuple(PRIORS)
    with pytest.raises((InputError, RuntimeError), match="4"):
        LOSSES[name]()(z, target)
    with pytest.raises((InputError, RuntimeError), match="3"):
        on_task(z[:, :3], target.clamp(max=2))


@pytest.mark.parametrize("name", LOSSES)
def test_a_copy_moves_with_its_tensors(name):
    loss = copy.deepcopy(LOSSES[name]()).double()
    assert all(tensor.dtype == torch.float64 for tensor in loss.buffers())
    z, target = logits(3, 4), torch.tensor([0, 1, 2])
    torch.testing.assert_close(loss(z, target), LOSSES[name]()(z, target))


def test_a_figure_leaves_the_priors_out_as_it_does_weights():
    found, plain = (loss_shape(loss, points=5, classes=10) for loss in (LOSSES["balanced-softmax"](), named_loss("ce")))
    assert found.curves[0].value.tolist() == pytest.approx(plain.curves[0].value.tolist(), rel=1e-9)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: BalancedSoftmaxLoss(priors=[0.5, 0.6]), r"priors must add up to 1 but add up to 1\.1"),
        (
            lambda: BalancedSoftmaxLoss(priors=[0.4, 0, 0.6]),
            "priors must be between 1e-12 and 1 but that of class 1 is 0",
        ),
        (lambda: BalancedSoftmaxLoss(priors=[1.0]), "priors must have at least 2 entries but got 1"),
        (lambda: BalancedSoftmaxLoss(priors="balanced"), "priors must be a list of numbers but got 'balanced'"),
        (lambda: BalancedSoftmaxLoss(-1.0), r"tau must be a finite number of at least 0 but got -1\.0"),
        (
            lambda: BalancedSoftmaxLoss(priors=[0.5, 0.5])(torch.zeros(2, 3), torch.tensor([0, 1])),
            "priors must have one entry for each of 3 classes but got 2",
        ),
        (
            lambda: ClassWeightedCrossEntropyLoss(weight=[1.0, 2.0]),
            "class-weighted-ce makes its weights from priors, so it takes no weight",
        ),
        (
            lambda: BalancedSoftmaxLoss(kind="multilabel"),
            "kind must be one of classification but got 'multilabel'",
        ),
        (
            lambda: specified_loss("balanced-softmax:priors=0.5"),
            "balanced-softmax has no option 'priors': its options are tau",
        ),
    ],
)
def test_bad_requests(make, sentence):
    with pytest.raises(InputError, match=f"^{sentence}$"):
        make()
    assert specified_loss("balanced-softmax:tau=0.5").tau == 0.5
