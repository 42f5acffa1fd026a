"""Losses of the extended space: known losses against their formulas, exports, files, priors and progress."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
import sympy
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import evomal
from evomal.errors import InputError
from evomal.forest import Link
from evomal.losses import ExpressionLoss
from evomal.losses.expression_loss import evaluate
from tests.strategies import extended_losses

PRIORS = (0.5, 0.25, 0.1875, 0.0625)  # exact in single precision
LOGITS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4
TARGETS = torch.arange(60) % 4
EVERYTHING = "add(mul(y, sub(1, pow(f, 1))), mul(exp(mul(margin, prior)), mul(blogp, sub(logp, t))))"


def target_probability(logits):
    return logits.softmax(1).gather(1, TARGETS[:, None])[:, 0]


def generalised(logits, q=0.7):
    """Zhang and Sabuncu (2018)."""
    return ((1 - target_probability(logits) ** q) / q).mean()


def symmetric(logits, alpha=0.1, beta=1.0, log_zero=-4.0):
    """Wang et al. (2019): α·CE + β·RCE, with log 0 := −4 in the reverse cross-entropy."""
    labels = F.one_hot(TARGETS, 4).double()
    reverse = -(logits.softmax(1) * torch.where(labels == 1, 0.0, log_zero)).sum(1).mean()
    return alpha * F.cross_entropy(logits, TARGETS) + beta * reverse


def balanced(logits):
    """Ren et al. (2020)."""
    return F.cross_entropy(logits + torch.tensor(PRIORS, dtype=torch.float64).log(), TARGETS)


def focal(logits, gamma=2.5):
    """Lin et al. (2017)."""
    p = target_probability(logits)
    return ((1 - p) ** gamma * -logits.log_softmax(1).gather(1, TARGETS[:, None])[:, 0]).mean()


def hinge(logits):
    """Crammer and Singer (2001)."""
    others = logits.scatter(1, TARGETS[:, None], -torch.inf).amax(1)
    return (1 - (logits.gather(1, TARGETS[:, None])[:, 0] - others)).clamp(min=0).mean()


CLASSIFICATION = {
    "cross-entropy": ("mul(y, logp)", [-1, 1], lambda z: F.cross_entropy(z, TARGETS)),
    "generalised": ("mul(y, sub(1, exp(logp)))", [1, 1 / 0.7, 1, 1, 0.7], generalised),
    "symmetric": ("mul(y, sub(sub(1, f), logp))", [1, 1, 4, 1, 1, 0.1], symmetric),
    "balanced softmax": ("mul(y, blogp)", [-1, 1], balanced),
    "focal": ("mul(mul(y, logp), pow(sub(1, f), 1))", [-1, 1, 1, 1, 1, 1, 1, 2.5], focal),
    "hinge": ("mul(y, max(sub(1, margin), sub(1, 1)))", [1] * 8, hinge),
}


def test_generalised_cross_entropy_by_a_power():
    """Of probabilities above ε, where the power is not protected."""
    loss = ExpressionLoss("mul(y, sub(1, pow(f, 1)))", [1, 1 / 0.7, 1, 1, 1, 0.7])
    assert_same(lambda z: loss(z, TARGETS), generalised, LOGITS / 4)


@pytest.mark.parametrize("name", CLASSIFICATION)
def test_known_classification_losses(name):
    text, weights, formula = CLASSIFICATION[name]
    loss = ExpressionLoss(text, weights, priors=PRIORS)
    assert_same(lambda z: loss(z, TARGETS), formula, LOGITS)


def tukey(residuals, c=4.685):
    """Beaton and Tukey (1974)."""
    inside = c**2 / 6 * (1 - (1 - (residuals / c) ** 2) ** 3)
    return torch.where(residuals.abs() <= c, inside, torch.full_like(residuals, c**2 / 6)).mean()


def welsch(residuals, c=2.985):
    """Dennis and Welsch (1978)."""
    return (c**2 / 2 * (1 - torch.exp(-((residuals / c) ** 2)))).mean()


C, W = 4.685, 2.985
REGRESSION = {
    "tukey": (
        "sub(1, pow(sub(1, min(square(sub(y, f)), 1)), 1))",
        [C**2 / 6, C**2 / 6, 1, 1, 1, C**-2, 1, 1, 1, 1, 3],
        tukey,
    ),
    "welsch": ("sub(1, exp(square(sub(y, f))))", [W**2 / 2, W**2 / 2, -(W**-2), 1, 1, 1], welsch),
    "lp": ("pow(sub(y, f), 1)", [1, 1, 1, 1.5], lambda r: (r.abs() ** 1.5).mean()),
}


@pytest.mark.parametrize("name", REGRESSION)
def test_known_regression_losses(name):
    text, weights, formula = REGRESSION[name]
    loss = ExpressionLoss(text, weights, kind="regression")
    outputs = torch.linspace(-9, 9, 100, dtype=torch.float64)
    targets = torch.full_like(outputs, 0.5)
    assert_same(lambda f: loss(f, targets), lambda f: formula(f - targets), outputs)


def test_the_page_of_the_search_space_has_the_expressions_that_are_tested_here():
    page = (Path(__file__).parents[2] / "docs" / "search-space.md").read_text()
    table = re.findall(r"(?m)^\| [^|]+ \| `([a-z]+\(.*?\))` \| .* \|$", page.partition("## Known losses")[2])
    tested = {text for text, *_ in (CLASSIFICATION | REGRESSION).values()}
    assert len(table) == 8
    assert set(table) <= tested


def assert_same(found, formula, outputs):
    values, gradients = [], []
    for function in (found, formula):
        free = outputs.clone().requires_grad_()
        value = function(free)
        values.append(value.detach())
        gradients.append(torch.autograd.grad(value, free)[0])
    torch.testing.assert_close(*values, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)


def test_cross_entropy_is_exact_far_out():
    loss = ExpressionLoss("mul(-1, mul(y, logp))")
    logits = torch.tensor([[0.0, 300.0]], requires_grad=True)
    value = loss(logits, torch.tensor([0]))
    value.backward()
    assert (value.item(), logits.grad.tolist()) == (300, [[-1, 1]])


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_large_batches_by_kernels_are_like_small_ones(kind):
    text = "mul(t, pow(sub(y, f), 1))" if kind == "regression" else EVERYTHING
    priors = None if kind == "regression" else (PRIORS if kind == "classification" else (0.25, 0.5, 0.125, 0.0625))
    loss = ExpressionLoss(text, kind=kind, priors=priors, reduction="none")
    loss.progress = 0.5
    rng = torch.Generator().manual_seed(1)
    large = torch.randn(20000, 4, generator=rng).requires_grad_()
    targets = {
        "classification": torch.randint(4, (20000,), generator=rng),
        "multilabel": torch.randint(2, (20000, 4), generator=rng),
        "regression": torch.randn(20000, 4, generator=rng),
    }[kind]
    value = loss(large, targets)
    (gradient,) = torch.autograd.grad(value.sum(), large)
    few = large[:50].detach().requires_grad_()
    expected = loss(few, targets[:50])
    torch.testing.assert_close(value[:50], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradient[:50], torch.autograd.grad(expected.sum(), few)[0], rtol=1e-4, atol=1e-4)


def test_a_single_logit_is_the_second_of_two_classes():
    logits, bits = torch.randn(30, 1, dtype=torch.float64), torch.randint(2, (30, 1))
    binary = ExpressionLoss("mul(y, add(mul(logp, blogp), add(prior, margin)))", priors=[0.75, 0.25])
    pairs = torch.cat((torch.zeros_like(logits), logits), 1)
    # Of the two outputs, the one for class 1 alone: its terms are those of the single logit.
    both = evaluate(
        binary.expression, {key: value[:, 1:] for key, value in binary.predicted(pairs, Link.SOFTMAX).items()}, bits
    )
    torch.testing.assert_close(binary(logits, bits), both.mean())


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 2), (3,)])
def test_priors_of_labels_follow_the_second_dimension(shape):
    loss = ExpressionLoss("mul(y, add(prior, blogp))", kind="multilabel", priors=[0.5, 0.25, 0.125], reduction="none")
    logits, bits = torch.randn(shape), torch.ones(shape, dtype=torch.long)
    priors = torch.tensor([0.5, 0.25, 0.125]).reshape([3] + [1] * max(0, len(shape) - 2)).expand(shape)
    expected = priors + F.logsigmoid(logits + (priors / (1 - priors)).log())
    torch.testing.assert_close(loss(logits, bits), expected)


def test_soft_targets_are_expectations():
    loss = ExpressionLoss(EVERYTHING, priors=PRIORS, reduction="none")
    shares = torch.rand(60, 4, dtype=torch.float64)
    shares /= shares.sum(1, keepdim=True)
    expected = sum(shares[:, c] * loss(LOGITS, torch.full((60,), c)) for c in range(4))
    torch.testing.assert_close(loss(LOGITS, shares), expected)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["classification", "regression"]).flatmap(
        lambda kind: st.tuples(st.just(kind), extended_losses(kind))
    )
)
def test_exported_files_compute_the_same(drawn):
    kind, tree = drawn
    loss = ExpressionLoss(tree, kind=kind, priors=PRIORS if kind == "classification" else None)
    loss.progress = 0.5
    outputs, targets = (LOGITS, TARGETS) if kind == "classification" else (LOGITS, LOGITS.flip(0))
    space: dict = {}
    exec(evomal.export(loss, to="python"), space)
    module = space["LearnedLoss"]()
    module.progress = 0.5
    torch.testing.assert_close(module(outputs, targets), loss(outputs, targets), rtol=1e-9, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_exported_to_jax(kind):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    text = "mul(t, pow(sub(y, exp(f)), 1))" if kind == "regression" else EVERYTHING
    loss = ExpressionLoss(text, kind=kind, priors=None if kind == "regression" else PRIORS)
    loss.progress = 0.5
    targets = {"classification": TARGETS, "multilabel": (LOGITS > 0).long(), "regression": LOGITS.flip(0)}[kind]
    space: dict = {}
    exec(evomal.export(loss, to="jax"), space)
    found = space["loss"](LOGITS.numpy(), targets.numpy(), progress=0.5)
    assert float(found) == pytest.approx(float(loss(LOGITS, targets)), rel=1e-6)


def test_exported_to_onnx(tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    loss = ExpressionLoss(EVERYTHING.replace("t)", "1)"), priors=PRIORS)
    session = runtime.InferenceSession(evomal.export(loss, to="onnx"))
    logits = LOGITS.float()
    (found,) = session.run(None, {"output": logits.numpy(), "target": TARGETS.numpy()})
    assert float(found) == pytest.approx(float(loss(logits, TARGETS)), rel=1e-4)


def test_what_cannot_be_exported():
    with pytest.raises(
        InputError, match="with prior or blogp must have the priors of its classes to be exported to py"
    ):
        evomal.export(ExpressionLoss("mul(y, blogp)"), to="python")
    with pytest.raises(InputError, match="a loss with t cannot be exported to onnx"):
        evomal.export(ExpressionLoss("mul(y, mul(t, f))"), to="onnx")


@settings(max_examples=60, deadline=None)
@given(extended_losses("classification", max_leaves=8))
def test_formulas_and_sympy_forms_are_the_same_function(tree):
    values = {"f": 0.3, "logp": math.log(0.3), "blogp": -0.7, "margin": 1.3, "prior": 0.2, "t": 0.6, "y": 1.0}
    tensors = {token: torch.tensor(value, dtype=torch.float64) for token, value in values.items()}
    expected = float(evaluate(tree, tensors, tensors["y"]))
    form = tree.sympy()
    found = complex(sympy.lambdify(sorted(form.free_symbols, key=str), form, modules="math")(
        *(values[str(symbol)] for symbol in sorted(form.free_symbols, key=str))
    ))  # fmt: skip
    assert found.imag == 0
    assert found.real == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert tree.formula()


def test_formulas_for_people():
    assert ExpressionLoss("mul(y, blogp)", [-1, 1]).formula() == "-blogp*y"
    assert ExpressionLoss(*CLASSIFICATION["generalised"][:2]).formula() == "1.429*y*(1 - exp(0.7*logp))"
    assert ExpressionLoss("exp(mul(y, margin))").formula() == "exp(margin*y)"
    text, weights, _ = REGRESSION["tukey"]
    assert ExpressionLoss(text, weights, kind="regression").formula().startswith("3.658*(")
    assert "\\log f_{\\theta}(x)" in ExpressionLoss("square(sub(y, logp))").latex()
    assert "t: share of the training" in ExpressionLoss("mul(y, mul(t, f))").symbols()


def test_a_file_holds_the_priors_and_nothing_else_is_new(tmp_path):
    loss = ExpressionLoss(EVERYTHING, priors=PRIORS)
    evomal.save_loss(loss, tmp_path / "loss.json")
    again = evomal.load_loss(tmp_path / "loss.json")
    assert (again.priors, again.document()) == (PRIORS, loss.document())
    torch.testing.assert_close(again(LOGITS, TARGETS), loss(LOGITS, TARGETS))
    assert "priors" not in ExpressionLoss("square(sub(y, f))").document()["options"]
    document = json.loads((tmp_path / "loss.json").read_text())
    document["expression"] = "mul(y, logq)"
    (tmp_path / "loss.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match="unknown token 'logq' at character 8"):
        evomal.load_loss(tmp_path / "loss.json")


def test_on_a_task_priors_of_its_own_are_kept():
    loss = ExpressionLoss("mul(y, blogp)", [-1, 1])
    assert float(loss(LOGITS, TARGETS)) == pytest.approx(float(F.cross_entropy(LOGITS, TARGETS)))  # equal shares
    placed = loss.on_task(PRIORS)
    assert (loss.priors, placed.priors, placed.classes) == (None, PRIORS, 4)
    assert placed.on_task([0.25] * 4) is placed
    more = torch.cat((LOGITS, LOGITS[:, :1]), 1)
    extended = torch.tensor([*PRIORS, min(PRIORS)]).double().log()
    torch.testing.assert_close(placed(more, TARGETS), F.cross_entropy(more + extended, TARGETS))
    with pytest.raises(InputError, match="priors must have one entry for each of 3 classes but got 4"):
        placed(LOGITS[:, :3], TARGETS.clamp(max=2))


def test_progress_is_zero_until_it_is_set():
    loss = ExpressionLoss("mul(t, square(sub(y, f)))", kind="regression")
    arguments = torch.tensor([3.0]), torch.tensor([1.0])
    assert (loss.progress, float(loss(*arguments))) == (0, 0)
    loss.progress = 0.5
    assert (loss.progress, float(loss(*arguments))) == (0.5, 2)
    with pytest.raises(InputError, match=r"progress must be a finite number of at least 0 and at most 1 but got 1\.5"):
        loss.progress = 1.5
    assert loss.state_dict() == {}


def test_what_an_output_costs_if_the_others_are_equal():
    loss = ExpressionLoss("mul(y, add(logp, add(margin, prior)))")
    p = torch.tensor([0.1, 0.4], dtype=torch.float64)
    expected = p.log() + (p * 3 / (1 - p)).log() + 0.25
    np.testing.assert_allclose(loss.output_cost(p, 1, 4), expected)


def test_what_is_refused():
    with pytest.raises(InputError, match="margin is a terminal of classification, but the loss is for regression"):
        ExpressionLoss("mul(y, margin)", kind="regression")
    with pytest.raises(InputError, match="priors must be between 1e-12 and 1 but that of class 1 is 0"):
        ExpressionLoss("mul(y, blogp)", priors=[1.0 - 1e-9, 0.0])
    with pytest.raises(InputError, match="a loss must use both y and f, but add\\(y, t\\) does not use f"):
        ExpressionLoss("add(y, t)")
