"""Every loss that torch has too agrees with torch over the whole contract, values and gradients."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from evomal.errors import InputError
from evomal.losses import (
    AbsoluteCrossEntropyLoss,
    AbsoluteErrorLoss,
    CrossEntropyLoss,
    ExpressionLoss,
    FocalLoss,
    FocalSparseLabelSmoothingLoss,
    HuberLoss,
    LabelSmoothingLoss,
    NeuralLoss,
    SparseLabelSmoothingLoss,
    SquaredErrorLoss,
    TaylorLoss,
    starting_layers,
)

DEVICES = ("cpu", *(["cuda"] if torch.cuda.is_available() else []))
CLASSES = 5
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}

# Options under which a loss is cross-entropy with so much label smoothing.
AS_CROSS_ENTROPY = {
    "ce": (CrossEntropyLoss, {}, 0.0),
    "absolute": (AbsoluteCrossEntropyLoss, {"phi0": 1.0, "phi1": 1.0}, 0.0),
    "sparse": (SparseLabelSmoothingLoss, {"smoothing": 0.0}, 0.0),
    "simplified": (SparseLabelSmoothingLoss, {"smoothing": 0.0, "simplified": True}, 0.0),
    "focal": (FocalLoss, {"gamma": 0.0}, 0.0),
    "focal_sparse": (FocalSparseLabelSmoothingLoss, {"gamma": 0.0, "smoothing": 0.0}, 0.0),
    "unsmoothed": (LabelSmoothingLoss, {"smoothing": 0.0}, 0.0),
    "smoothed": (LabelSmoothingLoss, {"smoothing": 0.3}, 0.3),
}
SHAPES = {"batch": (7, CLASSES), "1d": (3, CLASSES, 4), "2d": (2, CLASSES, 3, 2), "unbatched": (CLASSES,)}
WEIGHTS = (None, torch.tensor([0.5, 1.0, 2.0, 0.1, 3.0]))


def draw(seed, *shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def class_indices(shape, seed=1):
    sample_shape = shape[:1] + shape[2:] if len(shape) > 1 else ()
    return torch.randint(CLASSES, sample_shape, generator=torch.Generator().manual_seed(seed))


def value_and_gradient(function, output, target):
    output = output.clone().requires_grad_()
    value = function(output, target)
    (gradient,) = torch.autograd.grad(value.sum(), output)
    return value, gradient


def assert_agrees(loss, reference, output, target):
    """As near to torch in double precision as the dtype allows, and of torch's dtype and shape."""
    value, gradient = value_and_gradient(loss, output, target)
    torch_value = reference(output, target)
    assert value.dtype == torch_value.dtype
    assert value.shape == torch_value.shape
    double_target = target.double() if target.is_floating_point() else target
    expected, expected_gradient = value_and_gradient(reference, output.double(), double_target)
    tolerance = TOLERANCE[output.dtype]
    for got, wanted in ((value, expected), (gradient, expected_gradient)):
        torch.testing.assert_close(got.double(), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", AS_CROSS_ENTROPY)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_class_indices_agree_with_torch(name, shape, dtype, device):
    make, options, smoothing = AS_CROSS_ENTROPY[name]
    output = draw(0, *shape, dtype=dtype).to(device) * 3
    for weight, ignore_index, reduction in itertools.product(WEIGHTS, (-100, 2), ("none", "mean", "sum")):
        target = class_indices(shape).to(device)
        if ignore_index < 0 and target.dim():
            target.view(-1)[0] = ignore_index
        contract = {"ignore_index": ignore_index, "reduction": reduction}

        def reference(z, t, weight=weight, contract=contract):
            cast = None if weight is None else weight.to(z)
            return F.cross_entropy(z, t, weight=cast, label_smoothing=smoothing, **contract)

        assert_agrees(make(**options, weight=weight, **contract).to(device), reference, output, target)


@pytest.mark.parametrize("name", AS_CROSS_ENTROPY)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_class_probabilities_agree_with_torch(name, shape, dtype, device):
    make, options, smoothing = AS_CROSS_ENTROPY[name]
    output = draw(0, *shape, dtype=dtype).to(device) * 3
    target = draw(1, *shape).softmax(0 if len(shape) == 1 else 1).to(device, dtype)
    for weight, reduction in itertools.product(WEIGHTS, ("none", "mean", "sum")):

        def reference(z, t, weight=weight, reduction=reduction):
            cast = None if weight is None else weight.to(z)
            return F.cross_entropy(z, t, weight=cast, label_smoothing=smoothing, reduction=reduction)

        assert_agrees(make(**options, weight=weight, reduction=reduction).to(device), reference, output, target)


@pytest.mark.parametrize("name", AS_CROSS_ENTROPY)
@pytest.mark.parametrize("kind", ["multilabel", "binary"])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("target_dtype", [torch.long, torch.bool, torch.float32])
def test_bits_agree_with_binary_cross_entropy(name, kind, dtype, target_dtype):
    make, options, smoothing = AS_CROSS_ENTROPY[name]
    shape = (6, 3) if kind == "multilabel" else (6, 1)
    output = draw(0, *shape, dtype=dtype) * 3
    target = (draw(1, *shape) > 0).to(dtype if target_dtype.is_floating_point else target_dtype)

    def reference(z, t, reduction):
        smoothed = t.to(z.dtype) * (1 - smoothing) + smoothing / 2
        return F.binary_cross_entropy_with_logits(z, smoothed, reduction=reduction)

    for reduction in ("none", "mean", "sum"):
        loss = make(**options, kind="multilabel" if kind == "multilabel" else "classification", reduction=reduction)
        if kind == "multilabel":
            assert_agrees(loss, lambda z, t, r=reduction: reference(z, t, r), output, target)
        else:
            assert_agrees(loss, lambda z, t, r=reduction: reference(z[:, 0], t[:, 0], r), output, target)
            assert_agrees(loss, lambda z, t, r=reduction: reference(z[:, 0], t, r), output, target[:, 0])


def test_one_logit_equals_two_logits_of_which_one_is_zero():
    logit, target = draw(0, 8, 1, dtype=torch.float64) * 4, torch.tensor([0, 1, 1, 0, 1, 0, 0, 1])
    weight = torch.tensor([0.3, 2.0])
    pair = torch.cat((torch.zeros_like(logit), logit), dim=1)
    for make in (
        lambda **o: AbsoluteCrossEntropyLoss(1.3, 1.2, **o),
        lambda **o: FocalSparseLabelSmoothingLoss(1.5, 0.2, **o),
    ):
        for options in ({}, {"weight": weight}, {"weight": weight, "ignore_index": 0}, {"reduction": "none"}):
            torch.testing.assert_close(make(**options)(logit, target), make(**options)(pair, target))


def test_multilabel_weights_and_ignored_entries():
    output, target = draw(0, 4, 3), torch.tensor([[0, 1, -1], [1, 1, 0], [-1, 0, 1], [0, 0, 0]])
    weight = torch.tensor([1.0, 5.0, 0.5])
    kept = target != -1
    elementwise = F.binary_cross_entropy_with_logits(
        output, target.clamp(min=0).float(), weight=weight, reduction="none"
    )
    loss = CrossEntropyLoss(kind="multilabel", weight=weight, ignore_index=-1)
    torch.testing.assert_close(loss(output, target), elementwise[kept].mean())


LEARNED = {
    "expression": lambda **o: ExpressionLoss("square(sub(y, f))", **o),
    "weighted": lambda **o: ExpressionLoss("square(sub(y, f))", [2.0, 1.5, 0.5], **o),
    "taylor": lambda **o: TaylorLoss([0.1, 0.2, 0.3, -0.4, 0.5, -0.6, 0.7, -0.8], **o),
    "neural": lambda **o: NeuralLoss(starting_layers(generator=torch.Generator().manual_seed(0)), **o),
}


@pytest.mark.parametrize("name", LEARNED)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_learned_losses_are_elementwise_over_softmax_and_one_hot(name, shape):
    make = LEARNED[name]
    output, target = draw(0, *shape, dtype=torch.float64), class_indices(shape)
    class_dim = 0 if len(shape) == 1 else 1
    f = output.softmax(class_dim)
    y = F.one_hot(target, CLASSES).movedim(-1, class_dim).double()
    samples = make().value(f, y).sum(class_dim)
    w = WEIGHTS[1].double()[target]
    torch.testing.assert_close(make(reduction="none")(output, target), samples)
    torch.testing.assert_close(make(reduction="sum")(output, target), samples.sum())
    torch.testing.assert_close(make()(output, target), samples.mean())
    torch.testing.assert_close(make(weight=WEIGHTS[1])(output, target), (samples * w).sum() / w.sum())
    kept = target != 2
    if kept.any():
        torch.testing.assert_close(make(ignore_index=2)(output, target), samples[kept].mean())


@pytest.mark.parametrize("name", LEARNED)
def test_learned_losses_on_bits_take_the_sigmoid(name):
    make = LEARNED[name]
    output, target = draw(0, 6, 3, dtype=torch.float64), (draw(1, 6, 3) > 0).long()
    expected = make().value(output.sigmoid(), target.double())
    torch.testing.assert_close(make(kind="multilabel", reduction="none")(output, target), expected)
    torch.testing.assert_close(make(kind="multilabel")(output, target), expected.mean())
    torch.testing.assert_close(make(reduction="none")(output[:, :1], target[:, 0]), expected[:, 0])


REGRESSION = {
    "mse": (lambda **o: SquaredErrorLoss(**o), F.mse_loss),
    "mse as expression": (lambda **o: ExpressionLoss("square(sub(y, f))", **o), F.mse_loss),
    "mae": (lambda **o: AbsoluteErrorLoss(**o), F.l1_loss),
    "mae as expression": (lambda **o: ExpressionLoss("abs(sub(y, f))", **o), F.l1_loss),
    "huber": (lambda **o: HuberLoss(0.7, **o), lambda z, t, **o: F.huber_loss(z, t, delta=0.7, **o)),
    "mse as taylor": (lambda **o: TaylorLoss([0, 0, 0, -2, 0, 2, 0, 0], **o), lambda z, t, **o: F.mse_loss(z, t, **o)),
}  # fmt: skip


@pytest.mark.parametrize("name", REGRESSION)
@pytest.mark.parametrize("shape", [(8,), (8, 1), (4, 3), ()])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_regression_agrees_with_torch(name, shape, dtype):
    make, reference = REGRESSION[name]
    output, target = draw(0, *shape, dtype=dtype), draw(1, *shape, dtype=dtype)
    for reduction in ("none", "mean", "sum"):
        loss = make(kind="regression", reduction=reduction)
        if name == "mse as taylor":  # −[−p² + 2xp] lacks x², which has no gradient
            gradients = [value_and_gradient(fn, output.double(), target.double())[1]
                         for fn in (loss, lambda z, t, r=reduction: reference(z, t, reduction=r))]  # fmt: skip
            torch.testing.assert_close(*gradients)
        else:
            assert_agrees(loss, lambda z, t, r=reduction: reference(z, t, reduction=r), output, target)


def test_regression_forgives_a_trailing_dimension_of_one_and_nothing_else():
    output, target = draw(0, 8, 1), draw(1, 8)
    loss = SquaredErrorLoss()
    assert loss(output, target) == F.mse_loss(output[:, 0], target)
    assert loss(output[:, 0], target[:, None]) == F.mse_loss(output[:, 0], target)
    assert SquaredErrorLoss(reduction="none")(output, target).shape == (8, 1)
    for wrong in (draw(1, 7), draw(1, 1, 8), draw(1, 8, 2), draw(1)):
        with pytest.raises(InputError, match="target must have the output's shape"):
            loss(output, wrong)


ALL = {
    **{name: lambda row=row, **o: row[0](**row[1], **o) for name, row in AS_CROSS_ENTROPY.items()},
    **LEARNED,
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("output", "target", "weight"),
    [
        (torch.zeros(4, 5), torch.zeros(3, dtype=torch.long), None),
        (torch.zeros(4, 5), torch.zeros(4, 4), None),
        (torch.zeros(4, 5), torch.zeros(4, 5, dtype=torch.long), None),
        (torch.zeros(4, 5), torch.zeros(4), None),
        (torch.zeros(2, 5, 3), torch.zeros(2, 4, dtype=torch.long), None),
        (torch.zeros(()), torch.zeros((), dtype=torch.long), None),
        (torch.zeros(4, 5), torch.zeros(4, dtype=torch.long), torch.ones(3)),
        (torch.zeros(4, 5), torch.tensor([0, 1, 2, 7]), None),
        (torch.zeros(4, 5), torch.tensor([0, 1, 2, -1]), None),
    ],
)
def test_wrong_input_gives_the_errors_of_torch(name, output, target, weight):
    with pytest.raises((ValueError, RuntimeError, IndexError)) as expected:
        F.cross_entropy(output, target, weight=weight)
    with pytest.raises(expected.type) as caught:
        ALL[name](weight=weight)(output, target)
    assert str(caught.value) == str(expected.value)


def test_out_of_bounds_is_noticed_behind_an_ignored_class():
    with pytest.raises(IndexError, match=r"Target 9 is out of bounds\."):
        CrossEntropyLoss(ignore_index=2)(torch.zeros(3, 5), torch.tensor([2, 9, 0]))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FocalLoss(kind="regression"), "kind must be one of classification, multilabel but got 'regression'"),
        (lambda: FocalLoss(reduction="average"), "reduction must be one of none, mean, sum but got 'average'"),
        (lambda: FocalLoss(gamma=-1), "gamma must be a finite number of at least 0 but got -1"),
        (lambda: FocalLoss(gamma=float("nan")), "gamma must be a finite number of at least 0 but got nan"),
        (lambda: FocalLoss(gamma="2"), "gamma must be a number but got '2'"),
        (
            lambda: LabelSmoothingLoss(1.0),
            "smoothing must be a finite number of at least 0 and less than 1 but got 1.0",
        ),
        (lambda: AbsoluteCrossEntropyLoss(phi1=0), "phi1 must be a finite number of more than 0 but got 0"),
        (lambda: SquaredErrorLoss(weight=[1.0]), "weight must be None for a regression loss, as it is per class"),
        (lambda: FocalLoss(weight=torch.ones(2, 2)), "weight must be a vector of floating-point numbers"),
        (
            lambda: FocalLoss(weight=torch.ones(2).long()),
            "weight must be a vector of floating-point numbers but got torch.int64",
        ),
        (lambda: FocalLoss(weight=[1.0, float("nan")]), "weight must be finite numbers but number 1 is nan"),
        (lambda: FocalLoss(ignore_index="a"), "ignore_index must be a whole number but got 'a'"),
        (lambda: SparseLabelSmoothingLoss(simplified="no"), "simplified must be true or false but got 'no'"),
        (lambda: ExpressionLoss(None), "expression must be an Expression or its text but got NoneType"),
        (lambda: ExpressionLoss("mul(y, f)", ["a", 1]), "weights must be a list of numbers"),
        (
            lambda: ExpressionLoss("mul(y, f)", torch.tensor([1.0, torch.nan])),
            "weights must be finite numbers but number 1",
        ),
        (lambda: TaylorLoss(torch.ones(8, 2)), "theta must be a vector of floating-point numbers"),
        (lambda: TaylorLoss([1.0] * 7), "theta must have 8 numbers but got 7"),
        (lambda: TaylorLoss([float("inf")] * 8), "theta must be finite numbers but number 0 is inf"),
        (lambda: NeuralLoss([[[1.0]]] * 3), "layers must be three matrices of shapes"),
        (lambda: NeuralLoss([[1.0], [2.0], [3.0]]), "layer 0 must be a matrix of numbers"),
        (lambda: ExpressionLoss("add(y, f)", [1.0]), "needs 2 weights, one per non-root node, but got 1"),
        (
            lambda: ExpressionLoss("add(y, f)", [1.0, float("nan")]),
            "weights must be finite numbers but number 1 is nan",
        ),
        (lambda: ExpressionLoss("add(y, f)", activation="relu"), "activation must be one of identity, softplus"),
        (lambda: ExpressionLoss("abs(f)"), "a loss must use both y and f, but abs(f) does not use y"),
        (lambda: FocalLoss()(torch.zeros(3, 2, dtype=torch.long), torch.zeros(3)), "output must be a floating-point"),
        (lambda: FocalLoss()(torch.zeros(3, 1), torch.zeros(4)), "for one logit of shape (3, 1) the target must have"),
        (
            lambda: FocalLoss(weight=[1.0])(torch.zeros(3, 1), torch.zeros(3)),
            "one logit is binary, so weight must have 2",
        ),
        (lambda: FocalLoss(kind="multilabel")(torch.zeros(3, 2), torch.zeros(3)), "a multilabel target must have the"),
    ],
)
def test_bad_options_and_inputs_are_one_sentence(make, sentence):
    with pytest.raises(InputError) as caught:
        make()
    assert sentence in str(caught.value)


@pytest.mark.parametrize("loss", [CrossEntropyLoss(), ExpressionLoss("mul(y, f)"), SquaredErrorLoss()])
def test_what_is_no_tensor_is_a_type_error_as_in_torch(loss):
    for target in ([0, 1], np.zeros(2), None):
        with pytest.raises(TypeError, match=f"target must be a tensor but got {type(target).__name__}"):
            loss(torch.zeros(2, 3), target)
    with pytest.raises(TypeError, match="output must be a tensor but got tuple"):
        loss((torch.zeros(2, 3),), torch.zeros(2))


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_autocast_and_half_precision_compute_in_float32(name, dtype):
    output, target = draw(0, 6, CLASSES, dtype=dtype) * 3, class_indices((6, CLASSES))
    loss = ALL[name]()
    exact = loss(output.float(), target)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = loss(output, target)
    assert under_autocast.dtype == torch.float32
    torch.testing.assert_close(under_autocast, exact)
    assert loss(output, target).dtype == dtype
    assert loss(output, target) == exact.to(dtype)


@pytest.mark.parametrize("name", ALL)
def test_no_class_can_be_left_out_of_a_distribution(name):
    with pytest.raises(RuntimeError, match="ignore_index is not supported for floating point target"):
        ALL[name](ignore_index=1)(torch.zeros(2, 3), torch.ones(2, 3) / 3)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("ignored", [-100, -(10**9), 2])
def test_where_all_is_ignored_nothing_has_a_gradient(name, ignored):
    output = draw(0, 4, CLASSES).requires_grad_()
    ALL[name](ignore_index=ignored)(output, torch.full((4,), ignored)).backward()
    assert output.grad.nan_to_num().abs().max() == 0
    loss = ALL[name](ignore_index=ignored, reduction="sum")
    target = torch.tensor([0, ignored, 1, 3])
    (gradient,) = torch.autograd.grad(loss(output, target), output)
    assert gradient[1].abs().max() == 0


@pytest.mark.parametrize("name", AS_CROSS_ENTROPY)
@pytest.mark.parametrize("offset", [1e2, 1e4, -1e4])
def test_a_common_offset_of_the_logits_costs_no_digits(name, offset):
    make, options, smoothing = AS_CROSS_ENTROPY[name]
    output, target = draw(0, 50, CLASSES) + offset, class_indices((50, CLASSES))
    value, gradient = value_and_gradient(make(**options), output, target)
    expected, expected_gradient = value_and_gradient(
        lambda z, t: F.cross_entropy(z, t, label_smoothing=smoothing), output.double(), target
    )
    torch.testing.assert_close(value.double(), expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", AS_CROSS_ENTROPY)
def test_an_impossible_target_costs_infinity_and_has_a_finite_gradient(name):
    if AS_CROSS_ENTROPY[name][2]:
        return  # smoothed, every class takes part
    make, options, _ = AS_CROSS_ENTROPY[name]
    output = torch.tensor([[-torch.inf, 0.0, 1.0]], requires_grad=True)
    value = make(**options)(output, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(value, output)
    assert value == torch.inf
    torch.testing.assert_close(gradient, torch.tensor([[-1.0, 0.2689, 0.7311]]), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("device", DEVICES)
def test_edge_batches(name, device):
    loss = ALL[name]()
    some, none = draw(0, 3, CLASSES).to(device), torch.zeros(0, CLASSES, device=device)
    ignored, empty = torch.full((3,), -100, device=device), torch.zeros(0, dtype=torch.long, device=device)
    assert loss(some, ignored).isnan()  # as torch: nothing to average
    assert ALL[name](reduction="sum")(some, ignored) == 0
    assert ALL[name](reduction="none")(none, empty).shape == (0,)
    assert loss(none, empty).isnan()


@pytest.mark.parametrize("name", ALL)
def test_transforms_and_double_backward_agree_with_eager(name):
    loss = ALL[name]()
    output, target = draw(0, 6, CLASSES, dtype=torch.float64), class_indices((6, CLASSES))
    value, gradient = value_and_gradient(loss, output, target)
    torch.testing.assert_close(torch.func.grad(loss)(output, target), gradient)
    per_sample = torch.func.vmap(loss)(output, target)
    torch.testing.assert_close(per_sample.mean(), value)
    variable = output.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(variable, target), variable, create_graph=True)
    torch.testing.assert_close(first, gradient)
    (second,) = torch.autograd.grad(first.square().sum(), variable)
    expected = torch.func.grad(lambda z: torch.func.grad(loss)(z, target).square().sum())(output)
    torch.testing.assert_close(second, expected)


@pytest.mark.parametrize("name", ["sparse", "smoothed", "expression"])
def test_torch_compile(name):
    loss = ALL[name]()
    output, target = draw(0, 6, CLASSES), class_indices((6, CLASSES))
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(output, target), loss(output, target))


def test_class_weights_move_with_the_module_and_losses_have_no_parameters():
    loss = SparseLabelSmoothingLoss(weight=[1.0, 2.0])
    assert list(loss.parameters()) == []
    assert list(loss.state_dict()) == ["weight"]
    assert loss.to(torch.float64).weight.dtype == torch.float64


def test_the_caller_s_random_state_is_untouched():
    before = torch.get_rng_state()
    for name, make in ALL.items():
        if name != "neural":  # its start is drawn here, from a generator of the test's own
            make()(draw(0, 6, CLASSES), class_indices((6, CLASSES)))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_on_the_meta_device_a_loss_has_a_shape(kind):
    target = torch.zeros(5, 1) if kind == "regression" else torch.zeros(5, dtype=torch.int64)
    output = torch.zeros(5, 1 if kind == "regression" else 3)
    for reduction, shape in (("mean", ()), ("none", (5,))):
        loss = (SquaredErrorLoss if kind == "regression" else CrossEntropyLoss)(kind=kind, reduction=reduction)
        found = loss(output.to("meta"), target.to("meta"))
        assert found.device.type == "meta"
        assert found.shape[: len(shape)] == shape
