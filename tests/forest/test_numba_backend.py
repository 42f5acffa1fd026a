"""The compiled CPU kernels, and the plain operations beside them, against `ExpressionLoss` alone."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st

from evomal.expression import Expression
from evomal.expression.generate import ramped_half_and_half
from evomal.forest import Link, Programs, numba_backend, torch_backend
from evomal.randomness import generator
from tests.forest.agreement import KINDS, Case, assert_agrees, case, reference, small_cases
from tests.strategies import extended_losses, losses

PLAIN = st.sampled_from([0.0, 1.0, -1.0, 0.5, -2.0])
TREES = ramped_half_and_half(25, heights=(2, 5), generator=generator(0, "forest"))
LINKS = [(Link.IDENTITY, 1), (Link.SIGMOID, 3), (Link.SOFTMAX, 10)]


@st.composite
def cases(draw) -> Case:
    """Small cases with zeros, ones and equal numbers among the outputs."""
    found = draw(small_cases(lambda link: losses(max_leaves=14, max_height=8)))
    points = torch.tensor(draw(st.lists(PLAIN, min_size=1, max_size=8)), dtype=torch.float64)
    for tensor in (found.outputs, found.targets) if found.link is Link.IDENTITY else (found.outputs,):
        flat = tensor.view(-1)
        flat[: len(points)] = points[: len(flat)]
    return found


ANY_TREES = cases() | small_cases(lambda link: extended_losses(KINDS[link]), is_extended=True)


@settings(max_examples=150)
@drawn(ANY_TREES)
def test_plain_operations_are_expression_losses(found):
    assert_agrees(found, torch_backend, torch.float64)


@settings(max_examples=250)
@drawn(ANY_TREES)
def test_kernels_in_double_precision(found):
    assert_agrees(found, numba_backend, torch.float64)


@settings(max_examples=250)
@drawn(ANY_TREES)
def test_kernels_in_single_precision(found):
    assert_agrees(found, numba_backend, torch.float32)


@pytest.mark.parametrize("backend", [torch_backend, numba_backend], ids=["torch", "numba"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ties_and_zeros(backend, dtype):
    texts = (
        "min(f, y)", "max(y, f)", "mul(y, min(f, f))", "add(y, max(square(f), abs(f)))", "abs(sub(y, f))",
        "log(sub(f, y))", "sqrt(sub(f, y))", "mul(f, sign(y))", "tanh(mul(f, max(y, mul(f, y))))",
    )  # fmt: skip
    found = case([Expression.parse(text) for text in texts], Link.IDENTITY, samples=4, outputs=1, shared=True, spread=0)
    for tensor in (found.outputs, found.targets):
        tensor.copy_(torch.tensor([[0.0], [1.0], [-1.0], [0.5]]))
    assert_agrees(found, backend, dtype)
    _, gradients = found.gradients(backend)
    assert gradients[0].flatten().tolist() == gradients[1].flatten().tolist() == [0.5] * 4
    assert gradients[4].flatten().tolist() == [0.0] * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("link", "outputs"), LINKS)
@pytest.mark.parametrize("samples", [1, 17, 130])
def test_a_population(dtype, link, outputs, samples):
    assert_agrees(case(TREES, link, samples=samples, outputs=outputs), numba_backend, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_thousand_classes(dtype):
    assert_agrees(case(TREES[:8], Link.SOFTMAX, samples=19, outputs=1000, shared=True), numba_backend, dtype)


def tall_tree() -> Expression:
    """A full tree of height 10, of operators that keep their results small: others diverge, in autograd as anywhere."""
    choose, tokens, pending = generator(4, "tall"), [], [10]
    while pending:
        level = pending.pop()
        choices = ("aq", "aq", "add", "sub", "mul", "min", "max") if level else ("y", "f", "1", "-1")
        tokens.append(choices[choose.integers(len(choices))])
        pending.extend([level - 1] * (2 if level else 0))
    return Expression(tokens)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_tree_of_2047_nodes(dtype):
    tree = tall_tree()
    assert tree.size == 2047
    assert_agrees(case([tree, TREES[0]], Link.SIGMOID, samples=40, outputs=2), numba_backend, dtype)


def chain(height: int) -> Expression:
    """A tree as deep as a tree may be."""
    return Expression(("sub", "y") * height + ("f",))


def test_a_tree_of_64_levels():
    assert_agrees(case([chain(64)], Link.IDENTITY), numba_backend, torch.float64)


def test_equal_weights_do_not_undo_exact_cancellation():
    trees = [Expression.parse("add(sign(sub(f, f)), y)"), Expression.parse("mul(y, log(sub(f, f)))")]
    found = case(trees, Link.IDENTITY, samples=50)
    found.weights[:, 1:] = 1.1
    assert_agrees(found, numba_backend, torch.float64)


def test_fragments_and_leaves():
    trees = [Expression.parse(text, fragment=True) for text in ("f", "y", "1", "log(y)", "tanh(-1)", "square(f)")]
    found = case(trees, Link.SIGMOID, softplus=True)
    for plain, compiled in zip(found.gradients(torch_backend), found.gradients(numba_backend), strict=True):
        torch.testing.assert_close(compiled, plain, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(found.mixed(numba_backend), found.mixed(torch_backend), rtol=1e-12, atol=1e-14)


def descended_alone(found: Case, tree: int, *, steps: int, lr: float) -> torch.Tensor:
    """The loss itself with torch's own Adam."""
    outputs = found.own_outputs(tree).clone().requires_grad_()
    optimizer = torch.optim.Adam([outputs], lr=lr)
    loss = found.loss(tree)
    for _ in range(steps):
        optimizer.zero_grad()
        (loss(outputs, found.targets).sum() / len(found.targets)).backward()
        optimizer.step()
    return outputs.detach()


SMOOTH_TREES = [
    Expression.parse(text)
    for text in ("square(sub(y, f))", "abs(log(mul(y, f)))", "add(square(log(y)), aq(square(sub(f, y)), tanh(f)))")
]


@pytest.mark.parametrize("backend", [torch_backend, numba_backend], ids=["torch", "numba"])
@pytest.mark.parametrize(("link", "outputs"), [*LINKS, (Link.SOFTMAX, 50)])
@pytest.mark.parametrize("shared", [True, False])
def test_descent(backend, link, outputs, shared):
    found = case(SMOOTH_TREES, link, samples=21, outputs=outputs, softplus=shared, shared=shared)
    result = found.descended(backend, steps=60, lr=0.02, scale=1 / 21)
    for tree in range(3):
        expected = descended_alone(found, tree, steps=60, lr=0.02)
        torch.testing.assert_close(result[tree], expected, rtol=1e-6, atol=1e-7)
    if backend is numba_backend:
        single = found.to(dtype=torch.float32).descended(backend, steps=60, lr=0.02, scale=1 / 21)
        # In single precision a sample's direction may turn where its gradient is all but zero.
        assert ((single - result).abs() < 1e-3).double().mean() > 0.98


def test_no_steps_leave_the_outputs():
    found = case(SMOOTH_TREES, Link.SOFTMAX, shared=True)
    assert torch.equal(
        found.descended(numba_backend, steps=0, lr=0.1, scale=1.0), found.outputs.expand(3, *found.outputs.shape)
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_trees_do_not_touch_each_other(dtype):
    wild = Expression(("square",) * 11 + ("log", "sub", "y", "f"))
    trees = [TREES[0], wild, TREES[1]]
    found = case(trees, Link.SOFTMAX, samples=30).to(dtype=dtype)
    found.outputs[1, 5, 0] = torch.nan
    found.weights[1, 3] = torch.inf
    together = [*found.gradients(numba_backend), found.mixed(numba_backend)]
    together.append(found.descended(numba_backend, steps=5, lr=0.1, scale=0.1))
    assert not together[0][1].isfinite().all()
    for tree in (0, 2):
        programs = Programs.of([trees[tree]], width=found.programs.width)
        alone = replace(
            found, trees=[trees[tree]], programs=programs, weights=found.weights[tree : tree + 1],
            outputs=found.outputs[tree : tree + 1], tangents=found.tangents[tree : tree + 1],
        )  # fmt: skip
        single = [*alone.gradients(numba_backend), alone.mixed(numba_backend)]
        single.append(alone.descended(numba_backend, steps=5, lr=0.1, scale=0.1))
        for ours, own in zip(together, single, strict=True):
            assert torch.equal(ours[tree], own[0])
            assert own.isfinite().all()


@pytest.mark.parametrize("text", ["min(f, y)", "max(y, f)", "max(f, log(y))"])
def test_nan_gets_through_min_and_max(text):
    for nan_in in ("outputs", "targets"):
        found = case([Expression.parse(text)], Link.IDENTITY, samples=3, outputs=1)
        getattr(found, nan_in).view(-1)[1] = torch.nan
        value, gradient = found.gradients(numba_backend)
        expected = reference(found)
        assert value[0].isnan().tolist() == [False, True, False]
        torch.testing.assert_close(gradient, expected.gradients, equal_nan=True)


@pytest.mark.parametrize(("samples", "outputs"), [(400, 10), (40, 300)])
def test_threads_do_not_change_the_result(samples, outputs):
    found = case(TREES, Link.SOFTMAX, samples=samples, outputs=outputs).to(dtype=torch.float32)
    threads = torch.get_num_threads()
    results = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        results.append([*found.gradients(numba_backend), found.mixed(numba_backend)])
        results[-1].append(found.descended(numba_backend, steps=3, lr=0.1, scale=0.1))
    torch.set_num_threads(threads)
    for others in results[1:]:
        assert all(torch.equal(one, other) for one, other in zip(results[0], others, strict=True))


def test_the_width_does_not_change_the_result():
    found = case(TREES[:3], Link.SOFTMAX, samples=40).to(dtype=torch.float32)
    wide = replace(
        found,
        programs=Programs.of(found.trees, width=256),
        weights=torch.nn.functional.pad(found.weights, (0, 256 - found.programs.width), value=1.0),
    )
    assert torch.equal(wide.mixed(numba_backend)[:, : found.programs.width], found.mixed(numba_backend))
    assert not wide.mixed(numba_backend)[:, found.programs.width :].any()


def test_strided_tensors_and_gradients_required():
    found = case(TREES, Link.SOFTMAX, samples=9, outputs=4)
    expected = [*found.gradients(numba_backend), found.mixed(numba_backend)]
    odd = replace(
        found,
        outputs=found.outputs.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_(),
        targets=found.targets.t().contiguous().t(),
        weights=found.weights.repeat_interleave(2, 1)[:, ::2].requires_grad_(),
        tangents=found.tangents.transpose(0, 2).contiguous().transpose(0, 2),
    )
    for one, other in zip(expected, [*odd.gradients(numba_backend), odd.mixed(numba_backend)], strict=True):
        assert torch.equal(one, other)
        assert not other.requires_grad


MEMORY_CHECK = """
import resource
import torch
from evomal.forest import Link, Programs, numba_backend
from tests.forest.test_numba_backend import TREES, tall_tree

def ask(tree, samples, classes):
    programs = Programs.of([tree])
    outputs = torch.zeros(samples, classes)
    given = (programs, torch.ones(1, programs.width), outputs, outputs)
    numba_backend.gradients(*given, Link.SOFTMAX, softplus=False)
    numba_backend.mixed(*given, outputs[None], Link.SOFTMAX, softplus=False)
    numba_backend.descended(*given, Link.SOFTMAX, softplus=False, steps=1, lr=0.1, scale=1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

before = ask(TREES[0], 16, 2)
print((ask(tall_tree(), 128, 1000) - before) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in kibibytes on Linux only")
def test_scratch_memory_is_bounded():
    """2047 nodes over 128 000 elements: all their values and slopes at once would take 4 GB."""
    done = subprocess.run([sys.executable, "-c", MEMORY_CHECK], capture_output=True, text=True, timeout=300)
    assert int(done.stdout) < 100, done.stderr
