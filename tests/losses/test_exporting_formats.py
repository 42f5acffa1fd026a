"""Exported losses equal the modules they come from, in places where evomal is not."""

import ast
import json
import os
import re
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
import sympy
import torch

import evomal
from evomal.errors import InputError
from evomal.expression import Expression, ramped_half_and_half
from evomal.losses import (
    AbsoluteCrossEntropyLoss,
    BalancedSoftmaxLoss,
    CauchyLoss,
    ClassWeightedCrossEntropyLoss,
    CrossEntropyLoss,
    ExpressionLoss,
    FocalLoss,
    FocalSparseLabelSmoothingLoss,
    GeneralizedCrossEntropyLoss,
    HuberLoss,
    LabelSmoothingLoss,
    LogCoshLoss,
    NeuralLoss,
    NormalizedCrossEntropyLoss,
    PolyLoss,
    QuantileLoss,
    SparseLabelSmoothingLoss,
    SymmetricCrossEntropyLoss,
    TaylorLoss,
    TukeyLoss,
    WelschLoss,
    named_loss,
    starting_layers,
)
from evomal.randomness import generator

CLASSES = 4


def random_losses(count: int) -> list[evomal.losses.Loss]:
    """Losses of every kind with random structure, weights and options."""
    rng = generator(0, "exported")
    kinds = ("classification", "regression", "multilabel")
    found: list[evomal.losses.Loss] = []
    for tree in ramped_half_and_half(count * 6 // 10, generator=rng):
        weights = None if rng.random() < 0.2 else rng.normal(1, 0.5, tree.edges).tolist()
        activation = "softplus" if rng.random() < 0.3 else "identity"
        found.append(ExpressionLoss(tree, weights, kind=kinds[rng.integers(3)], activation=activation))
    while len(found) < count:
        kind = kinds[rng.integers(3)]
        classes = kinds[2 * rng.integers(2)]
        a, b = (float(number) for number in rng.uniform(0.1, 0.9, 2))
        layers = starting_layers(hidden=6, generator=torch.Generator().manual_seed(len(found)))
        found += [
            TaylorLoss(rng.normal(0, 1, 8).tolist(), kind=kind),
            NeuralLoss(layers, kind=kind),
            AbsoluteCrossEntropyLoss(a, 1 + b, kind=classes),
            SparseLabelSmoothingLoss(a, kind=classes),
            SparseLabelSmoothingLoss(a, simplified=True, kind=classes),
            LabelSmoothingLoss(a, kind=classes),
            FocalLoss(4 * a, kind=classes),
            FocalSparseLabelSmoothingLoss(4 * a, b, kind=classes),
            CrossEntropyLoss(kind=classes),
            HuberLoss(a),
            named_loss("mae"),
            named_loss("mse"),
        ]
    for loss in found:
        loss.reduction = ("none", "mean", "sum")[rng.integers(3)]
        if loss.kind != "regression" and rng.random() < 0.4:
            loss.weight = torch.tensor(rng.uniform(0.2, 2, CLASSES), dtype=torch.float32)
        if loss.kind != "regression" and rng.random() < 0.3:
            loss.ignore_index = 1
    return found[:count]


def robust_losses() -> list[evomal.losses.Loss]:
    """The losses for wrong labels, classes of unequal size and outliers."""
    weight, priors = [0.5, 2.0, 1.0, 0.25], [0.1, 0.6, 0.2, 0.1]
    return [
        GeneralizedCrossEntropyLoss(0.6, ignore_index=1),
        SymmetricCrossEntropyLoss(0.3, 0.8, -5.0, kind="multilabel"),
        NormalizedCrossEntropyLoss(0.9, 0.2, -6.0, weight=weight),
        NormalizedCrossEntropyLoss(0.9, 0.2, -6.0),
        NormalizedCrossEntropyLoss(0.9, 0.2, -6.0, kind="multilabel", reduction="sum"),
        PolyLoss(-0.5, weight=weight, reduction="none"),
        ClassWeightedCrossEntropyLoss(priors, ignore_index=1),
        BalancedSoftmaxLoss(1.5, priors, weight=weight),
        BalancedSoftmaxLoss(0.5, priors, ignore_index=1, reduction="none"),
        LogCoshLoss(),
        CauchyLoss(0.4),
        WelschLoss(0.8),
        TukeyLoss(1.1),
        QuantileLoss(0.3),
    ]


def examples(loss, seed):
    """Batches in the forms the contract admits for this loss."""
    rng = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    if loss.kind == "regression":
        return [(normal(6), normal(6)), (normal(6, 1), normal(6, 1))]
    if loss.kind == "multilabel":
        return [
            (normal(5, CLASSES), torch.randint(2, (5, CLASSES), generator=rng)),
            (normal(5, CLASSES), normal(5, CLASSES).sigmoid()),
        ]
    batches = [
        (normal(6, CLASSES) * 3, torch.randint(CLASSES, (6,), generator=rng)),
        (normal(6, CLASSES) * 3, torch.randint(CLASSES, (6,), generator=rng).int()),
        (normal(2, CLASSES, 3), torch.randint(CLASSES, (2, 3), generator=rng)),
        (normal(CLASSES), torch.tensor(2)),
    ]
    if loss.ignore_index < 0:  # no class can be left out of a distribution
        batches.append((normal(6, CLASSES) * 3, normal(6, CLASSES).softmax(1)))
    if loss.classes is None:
        batches.append((normal(6, 1), torch.randint(2, (6,), generator=rng)))
        batches.append((normal(6, 1), normal(6).sigmoid()))
    return batches


RUNNER = """
import json, sys
import numpy as np

class NoEvomal:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "evomal":
            raise ImportError("this process is without evomal")
sys.meta_path.insert(0, NoEvomal())
import torch

worst = 0.0
for case in json.load(open(sys.argv[1])):
    scope = {}
    exec(compile(case["source"], "exported.py", "exec"), scope)
    loss = scope["LearnedLoss"]()
    for batch in case["batches"]:
        dtype = getattr(torch, batch["dtype"])
        output = torch.tensor(batch["output"], dtype=dtype, requires_grad=True)
        target = torch.from_numpy(np.array(batch["target"]))
        target = target.to(dtype) if target.is_floating_point() else target
        value = loss(output, target)
        (gradient,) = torch.autograd.grad(value.sum(), output)
        for got, expected in ((value, batch["value"]), (gradient, batch["gradient"])):
            got, expected = got.detach().double().numpy(), np.array(expected)
            np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6, err_msg=case["source"])
assert not any(name.split(".")[0] == "evomal" for name in sys.modules)
print("all equal")
"""


def test_two_hundred_exported_python_files_equal_their_losses(tmp_path):
    cases = []
    for seed, loss in enumerate([*random_losses(200), *robust_losses()]):
        batches = []
        for output, target in examples(loss, seed):
            for dtype in (torch.float64, torch.float32):
                z = output.to(dtype).requires_grad_()
                t = target.to(dtype) if target.is_floating_point() else target
                value = loss(z, t)
                (gradient,) = torch.autograd.grad(value.sum(), z)
                batches.append({
                    "dtype": str(dtype).removeprefix("torch."), "output": output.tolist(), "target": target.tolist(),
                    "value": value.tolist(), "gradient": gradient.tolist(),
                })  # fmt: skip
        cases.append({"source": evomal.export(loss, to="python"), "batches": batches})
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    command = [sys.executable, "-c", RUNNER, str(tmp_path / "cases.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "all equal\n", done.stderr[-3000:]


def one_of_each() -> list[evomal.losses.Loss]:
    return [*random_losses(36)[18:], *robust_losses()]


@pytest.mark.parametrize("loss", one_of_each(), ids=lambda loss: f"{type(loss).__name__}-{loss.kind}")
def test_jax_equals_the_loss(loss):
    import jax

    scope = {}
    exec(compile(evomal.export(loss, to="jax"), "exported.py", "exec"), scope)

    @jax.jit  # as a whole it is compiled much faster than operation by operation
    def with_gradient(z, t):
        found, pull = jax.vjp(lambda z: scope["loss"](z, t), z)
        return found, pull(jax.numpy.ones_like(found))[0]

    batches = examples(loss, 0)
    if not isinstance(loss, ExpressionLoss):  # forms are brought to one in the same lines for all losses
        batches = [batches[0], batches[-1]]
    for output, target in batches:
        z, t = output.float().requires_grad_(), target.float() if target.is_floating_point() else target
        value = loss(z, t)
        (gradient,) = torch.autograd.grad(value.sum(), z)
        arrays = jax.numpy.asarray(z.detach().numpy()), jax.numpy.asarray(t.numpy())
        found, found_gradient = with_gradient(*arrays)
        np.testing.assert_allclose(found, value.detach(), rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(found_gradient, gradient, rtol=2e-4, atol=2e-4)


QUICK_ONNX = {
    (ExpressionLoss, False), (ExpressionLoss, True), (NeuralLoss, False), (BalancedSoftmaxLoss, False),
    (NormalizedCrossEntropyLoss, True), (FocalSparseLabelSmoothingLoss, False), (TukeyLoss, False),
}  # fmt: skip
"""Losses of every form, and with class indices or probabilities: an export takes a second."""


def onnx_cases() -> list[object]:
    """Each class of losses for one kind of task; for classes also with probabilities."""
    losses = [CrossEntropyLoss(), *one_of_each()]
    one_per_class = {type(loss): loss for loss in losses}.values()
    of_classes = {type(loss): loss for loss in losses if loss.kind == "classification" and loss.ignore_index < 0}
    cases = [*((loss, False) for loss in one_per_class), *((loss, True) for loss in of_classes.values())]
    return [
        pytest.param(loss, is_soft, marks=[pytest.mark.long] * ((type(loss), is_soft) not in QUICK_ONNX))
        for loss, is_soft in cases
    ]


def _onnx_id(given: evomal.losses.Loss | bool) -> str:
    return ("classes", "probabilities")[given] if isinstance(given, bool) else type(given).__name__


def require_no_path_of_this_machine(content):
    folders = {os.path.dirname(evomal.__file__), os.path.dirname(torch.__file__), os.path.expanduser("~/"), sys.prefix}
    assert not [folder for folder in folders if folder.encode() in content]
    assert not re.findall(rb"[\w/.-]+\.py\b", content)


@pytest.mark.parametrize(("loss", "probabilities"), onnx_cases(), ids=_onnx_id)
def test_onnx_equals_the_loss(loss, probabilities):
    options = {"probabilities": True} if probabilities else {}
    content = evomal.export(loss, to="onnx", **options)
    require_no_path_of_this_machine(content)
    session = onnxruntime.InferenceSession(content)
    rng = torch.Generator().manual_seed(0)
    for samples, classes in ((1, CLASSES), (7, CLASSES), (6, loss.classes or 2 * CLASSES)):
        output = torch.randn(samples, classes, generator=rng)
        if loss.kind == "regression":
            output, target = output[:, 0], torch.randn(samples, generator=rng)
        elif loss.kind == "multilabel":
            target = torch.rand(samples, classes, generator=rng)
        elif probabilities:
            target = torch.rand(samples, classes, generator=rng).softmax(1)
        else:
            target = torch.randint(classes, (samples,), generator=rng)
        (value,) = session.run(None, {"output": output.numpy(), "target": target.numpy()})
        np.testing.assert_allclose(value, loss(output, target), rtol=1e-4, atol=1e-5)


def test_formulas():
    loss = ExpressionLoss("square(sub(y, f))", [2.0, 1.0, 1.0], kind="regression")
    assert evomal.export(loss, to="latex") == r"(2 \cdot (y - f_{\theta}(x)))^2"
    y, f = sympy.symbols("y f", real=True)
    assert sympy.expand(evomal.export(loss, to="sympy") - 4 * (y - f) ** 2) == 0
    softplus = ExpressionLoss("mul(y, f)", activation="softplus")
    assert evomal.export(softplus, to="latex") == r"\log\left(1 + e^{y \cdot f_{\theta}(x)}\right)"
    assert evomal.export(FocalLoss(2.0), to="latex") == r"- \left(1 - p\right)^{2} \log{\left(p \right)}"


def test_neural_losses_have_no_formula():
    loss = NeuralLoss(starting_layers(generator=torch.Generator().manual_seed(0)))
    for to in ("latex", "sympy"):
        with pytest.raises(InputError, match="NeuralLoss has no closed formula: export it as python, jax or onnx"):
            evomal.export(loss, to=to)


def test_exported_files_carry_formula_and_provenance_and_read_well():
    loss = ExpressionLoss("abs(log(mul(y, f)))", [1.25, 1.0, 1.0, 1.0])
    loss.provenance = {"task": "mnist", "method": "evomal", "versions": {"evomal": "0.1.0"}}
    source = evomal.export(loss)
    docstring = ast.get_docstring(ast.parse(source))
    for part in ("abs(log(mul(y, f)))", "1.25*Abs(log(Abs(f*y)))", "task: mnist", "method: evomal", "evomal: 0.1.0"):
        assert part in docstring
    assert "def aq" not in source
    assert "return torch.abs(1.25 * log(y * f))" in source
    assert max(map(len, source.splitlines())) <= 120


HOSTILE = [
    '"""\nraise SystemExit(7)\n"""',
    "'''\nraise SystemExit(7)\n'''",
    "\\",
    '\\"""',
    'x"""; raise SystemExit(7); """',
    "\x00\r\nraise SystemExit(7)",
    "\u2028raise SystemExit(7)",
    "{docstring}{0}{",
    "%s %(x)s",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("to", ["python", "jax"])
def test_provenance_cannot_become_code(text, to):
    loss = ExpressionLoss("mul(y, f)")
    loss.provenance = {"task": text, text: 1, "versions": {text: text}}
    source = evomal.export(loss, to=to)
    honest = ExpressionLoss("mul(y, f)")
    trees = [ast.parse(s) for s in (source, evomal.export(honest, to=to))]
    for tree in trees:
        tree.body = tree.body[1:]  # all but the docstring
    assert ast.dump(trees[0]) == ast.dump(trees[1])
    exec(compile(source, "exported.py", "exec"), {})


def test_a_deep_and_a_large_tree_export():
    deep = Expression(["tanh"] * 63 + ["mul", "y", "f"])
    large = Expression(["sub", "y", "f"])
    for operator in ("add", "mul", "aq", "min", "sub", "max", "aq", "mul", "add"):
        large = Expression([operator, *large.tokens, *large.tokens])
    assert large.size == 2047
    for tree in (deep, large):
        loss = ExpressionLoss(tree, kind="regression", reduction="none")
        scope = {}
        exec(compile(evomal.export(loss), "exported.py", "exec"), scope)
        output, target = torch.tensor([0.3, 0.9]), torch.tensor([1.0, 0.2])
        torch.testing.assert_close(scope["LearnedLoss"]()(output, target), loss(output, target), equal_nan=True)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((FocalLoss(), "java"), "to must be one of python, latex, sympy, onnx, jax but got 'java'"),
        ((torch.nn.MSELoss(), "python"), "only evomal's own losses can be exported but got MSELoss"),
    ],
)
def test_bad_requests(arguments, sentence):
    with pytest.raises(InputError, match=sentence):
        evomal.export(*arguments)
    with pytest.raises(InputError, match="python has no option 'classes'"):
        evomal.export(FocalLoss(), to="python", classes=3)
    with pytest.raises(
        InputError, match="classes must be 3, as many as the loss has class weights or priors, but got 5"
    ):
        evomal.export(FocalLoss(weight=[1.0, 2.0, 3.0]), to="onnx", classes=5)
    with pytest.raises(InputError, match="probabilities is an option of classification losses but this one is for reg"):
        evomal.export(HuberLoss(), to="onnx", probabilities=True)
    with pytest.raises(InputError, match="classes must be at least 2 but got 1"):
        evomal.export(FocalLoss(), to="onnx", classes=1)


def test_onnx_has_a_limit_of_nodes(monkeypatch):
    monkeypatch.setattr("evomal.losses.exporting.formats.MAX_ONNX_NODES", 3)
    assert evomal.export(evomal.ExpressionLoss("mul(y, f)"), to="onnx")
    with pytest.raises(InputError, match="of at most 3 nodes can be exported to onnx but this one has 4: export it as"):
        evomal.export(evomal.ExpressionLoss("abs(mul(y, f))"), to="onnx")
