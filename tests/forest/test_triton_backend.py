"""The Triton kernels against autograd in double precision: on CUDA where there is one, elsewhere in the interpreter."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.operators import PAPER
from evomal.forest.codes import Link
from evomal.forest.programs import ACTIVATIONS, Programs
from evomal.losses import ExpressionLoss
from evomal.losses.expression_loss import evaluate
from tests.processes import check_in_interpreter

triton_backend = pytest.importorskip("evomal.forest.triton_backend", reason="Triton has no wheel for this platform")

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LINKED = {Link.IDENTITY: lambda z: z, Link.SOFTMAX: lambda z: z.softmax(-1), Link.SIGMOID: torch.sigmoid}
SIZES = (1, 2, 3, 6, 11, 18, 29, 60)
CASES = [  # link, outputs, softplus, shared
    (Link.IDENTITY, 1, False, True),
    (Link.IDENTITY, 3, True, False),
    (Link.SIGMOID, 1, True, False),
    (Link.SIGMOID, 3, False, True),
    (Link.SOFTMAX, 3, True, True),
    (Link.SOFTMAX, 10, False, False),
]
TIES = (
    "min(f, y)",
    "max(y, f)",
    "min(mul(f, y), max(f, square(f)))",
    "add(abs(sub(f, y)), sign(f))",
    "mul(log(sub(f, y)), sqrt(f))",
    "tanh(aq(sign(sub(y, f)), max(f, 1)))",
)


@dataclass(frozen=True)
class Case:
    """What a backend is asked."""

    trees: list[Expression]
    weights: list[Tensor]
    outputs: Tensor
    targets: Tensor
    tangents: Tensor
    link: Link
    softplus: bool

    @classmethod
    def drawn(cls, trees, link, samples, outputs, softplus, shared, device="cpu", spread=0.1):
        rng = torch.Generator().manual_seed(outputs + 100 * int(link))
        weights = [1 + spread * torch.randn(tree.edges, generator=rng) for tree in trees]
        z = torch.randn(*(() if shared else (len(trees),)), samples, outputs, generator=rng)
        if link is Link.SOFTMAX:
            targets = torch.eye(outputs)[torch.randint(outputs, (samples,), generator=rng)]
        elif link is Link.SIGMOID:
            targets = torch.randint(2, (samples, outputs), generator=rng).float()
        else:
            targets = torch.randn(samples, outputs, generator=rng)
        tangents = torch.randn(len(trees), samples, outputs, generator=rng)
        return cls(trees, weights, z.to(device), targets.to(device), tangents.to(device), link, softplus)

    @property
    def programs(self):
        return Programs.of(self.trees, device=self.outputs.device)

    def packed(self, programs):
        """Weights for the kernels; NaN in the places they must not read as a weight."""
        packed = programs.packed([weights.tolist() for weights in self.weights])
        return torch.where(programs.edges(), packed, torch.nan)

    def loss(self, tree, outputs, weights):
        value = evaluate(tree, LINKED[self.link](outputs), self.targets.to(outputs.dtype), weights)
        return ACTIVATIONS["softplus" if self.softplus else "identity"](value).sum(-1)

    def by_autograd(self, number, dtype, nudge=0.0):
        """Values, gradient and mixed gradient of one tree, its outputs and weights multiplied by 1 + nudge · noise."""
        tree, rng = self.trees[number], torch.Generator().manual_seed(number)
        outputs = self.outputs if self.outputs.ndim == 2 else self.outputs[number]
        outputs, weights = (
            (tensor.cpu() * (1 + nudge * torch.randn(tensor.shape, generator=rng, dtype=dtype))).to(outputs.device)
            for tensor in (outputs, self.weights[number])
        )
        outputs, weights = outputs.requires_grad_(), weights.requires_grad_()
        values = self.loss(tree, outputs, weights)
        gradient, *_ = torch.autograd.grad(values.sum(), outputs, create_graph=True)
        along = (gradient * self.tangents[number].to(dtype)).sum()
        if along.requires_grad and tree.edges:
            (mixed,) = torch.autograd.grad(along, weights, allow_unused=True, materialize_grads=True)
        else:
            mixed = torch.zeros_like(weights)
        return [part.detach().double() for part in (values, gradient, mixed)]


def random_tree(size, rng, space=PAPER):
    """A tree of exactly so many nodes that uses f first, and y where there is a second terminal."""
    unary = [token for token in space.operators if token not in space.binary]
    tokens, missing = [], [size]
    while missing:
        nodes = missing.pop()
        if nodes == 1:
            tokens.append(str(rng.choice(space.terminals)))
        elif nodes == 2 or rng.random() < 0.3:
            tokens.append(str(rng.choice(unary)))
            missing.append(nodes - 1)
        else:
            tokens.append(str(rng.choice(space.binary)))
            first = int(rng.integers(1, nodes - 1))
            missing += [nodes - 1 - first, first]
    terminals = [place for place, token in enumerate(tokens) if token in space.terminals]
    tokens[terminals[-1]], tokens[terminals[0]] = "y", "f"
    return Expression(tokens)


def random_trees(sizes, space=PAPER):
    rng = np.random.default_rng(4)
    return [random_tree(size, rng, space) for size in sizes]


def full_tree(height):
    """All binary, with values that stay small: 2047 nodes at height 10."""
    rng, tokens = np.random.default_rng(height), []
    missing = [height]
    while missing:
        left = missing.pop()
        tokens.append(str(rng.choice(("aq", "min", "max", "sub") if left else PAPER.terminals)))
        missing += [left - 1] * (2 if left else 0)
    tokens[-1], tokens[-2] = "y", "f"
    return Expression(tokens)


def leaning_tree(height):
    """As many pending second arguments as a tree of this height can have."""
    return Expression(["sub"] * height + ["f"] + ["y"] * height)


def assert_near(found, exact, *others):
    """Within 1e-4 of the largest number, or ten times what single precision and a tiny nudge do to torch's own."""
    assert exact.isfinite().all()
    allowed = max(1e-4 * float(exact.abs().max()), *(10 * float((other - exact).abs().max()) for other in others))
    assert float((found.double() - exact).abs().max()) <= allowed + 1e-7


def assert_agrees(case, nudge=1e-6):
    programs = case.programs
    arguments = programs, case.packed(programs), case.outputs, case.targets
    values, gradient = triton_backend.gradients(*arguments, case.link, softplus=case.softplus)
    mixed = triton_backend.mixed(*arguments, case.tangents, case.link, softplus=case.softplus)
    assert values.shape == case.tangents.shape[:2]
    assert gradient.shape == case.tangents.shape
    assert mixed.shape == (programs.count, programs.width)
    assert not mixed[~programs.edges()].any()
    for number, tree in enumerate(case.trees):
        answers = zip(
            (values[number], gradient[number], mixed[number, 1 : tree.size]),
            case.by_autograd(number, torch.float64),
            case.by_autograd(number, torch.float32),
            case.by_autograd(number, torch.float64, nudge),
            strict=True,
        )
        for found, exact, single, nudged in answers:
            if exact.numel():
                assert_near(found, exact.to(found.device), single.to(found.device), nudged.to(found.device))


def assert_ties_agree(device="cpu"):
    """Exact ties and the points 0 and ±1, without weights that would part them."""
    points = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0], device=device)
    trees = [Expression.parse(source) for source in TIES]
    case = Case.drawn(trees, Link.IDENTITY, 25, 1, False, True, device, spread=0.0)
    case = replace(case, outputs=points.repeat(5)[:, None], targets=points.repeat_interleave(5)[:, None])
    assert_agrees(case, nudge=0.0)


def assert_accurate_at_every_scale(device="cpu"):
    """tanh near 0 and softplus far below it: small results keep their digits."""
    scales = torch.tensor([1e-30, 1e-7, 1e-3, 0.1, 0.62, 0.63, 1.0, 5.0, 20.0, 80.0], device=device)
    points = torch.cat((scales, -scales))[:, None]
    for tokens, softplus, expected, tolerance in (
        (["tanh", "f"], False, points.double().tanh(), 1e-6),
        (["f"], True, -torch.nn.functional.logsigmoid(-points.double()), 1e-5),
    ):
        programs = Programs.of([Expression(tokens)], device=device)
        weights = torch.ones(1, programs.width, device=device)
        values, _ = triton_backend.gradients(programs, weights, points, points, Link.IDENTITY, softplus=softplus)
        torch.testing.assert_close(values[0].double(), expected[:, 0], rtol=tolerance, atol=0)


def assert_descends(device="cpu", steps=6):
    for link, outputs, softplus in ((Link.SOFTMAX, 3, True), (Link.IDENTITY, 1, False), (Link.SIGMOID, 2, False)):
        trees = [Expression.parse(source) for source in ("abs(log(mul(y, f)))", "square(sub(y, tanh(f)))")]
        case = Case.drawn(trees, link, 4, outputs, softplus, True, device)
        programs = case.programs
        found = triton_backend.descended(
            programs, case.packed(programs), case.outputs, case.targets, link,
            softplus=softplus, steps=steps, lr=0.05, scale=0.25,
        )  # fmt: skip
        for number, tree in enumerate(trees):
            outputs = case.outputs.double().requires_grad_()
            adam = torch.optim.Adam([outputs], lr=0.05)
            for _ in range(steps):
                adam.zero_grad()
                (0.25 * case.loss(tree, outputs, case.weights[number].double()).sum()).backward()
                adam.step()
            torch.testing.assert_close(found[number].double(), outputs.detach(), rtol=1e-4, atol=2e-5)


def assert_keeps_nan_apart(device="cpu"):
    """Of three trees and three samples, one tree overflows and one sample is NaN."""
    trees = [Expression.parse(source) for source in ("min(f, y)", "mul(y, square(square(f)))", "max(y, f)")]
    case = Case.drawn(trees, Link.IDENTITY, 3, 1, False, False, device)
    case.outputs[1] = 1e15
    case.outputs[:, 2] = torch.nan
    programs = case.programs
    arguments = programs, case.packed(programs), case.outputs, case.targets
    values, gradient = triton_backend.gradients(*arguments, case.link, softplus=False)
    assert values.isfinite().tolist() == [[True, True, False], [False] * 3, [True, True, False]]
    assert values[:, 2].isnan().all()
    assert gradient[0, :2].isfinite().all()
    assert gradient[2, :2].isfinite().all()
    arguments = programs, case.packed(programs), case.outputs[:, :2], case.targets[:2]
    mixed = triton_backend.mixed(*arguments, case.tangents[:, :2], case.link, softplus=False)
    assert mixed.isfinite().all(1).tolist() == [True, False, True]


def assert_tight_scratch_agrees(device="cpu"):
    """A single program does all the work, and the link of three outputs is torch's."""
    limits = triton_backend._SCRATCH_BYTES, triton_backend._WIDEST_TILED_ROW
    case = Case.drawn(random_trees((3, 6, 11)), Link.SOFTMAX, 70, 3, True, False, device)
    try:
        triton_backend._SCRATCH_BYTES = 1
        assert_agrees(case)
        triton_backend._WIDEST_TILED_ROW = dict.fromkeys(limits[1], 2)
        assert_agrees(replace(case, outputs=case.outputs[0]))
    finally:
        triton_backend._SCRATCH_BYTES, triton_backend._WIDEST_TILED_ROW = limits


INTERPRETED = """
from tests.forest import test_triton_backend as checks

for case in checks.CASES[::2]:
    checks.assert_agrees(checks.Case.drawn(checks.random_trees(checks.SIZES[:-2]), case[0], 5, *case[1:]))
for case in checks.CASES[1::2]:
    checks.assert_agrees(checks.Case.drawn(checks.random_trees(checks.SIZES[2:-3]), case[0], 5, *case[1:]))
checks.assert_agrees(checks.Case.drawn([checks.leaning_tree(64)], checks.Link.IDENTITY, 2, 1, False, True))
checks.assert_ties_agree()
checks.assert_accurate_at_every_scale()
checks.assert_descends(steps=3)
checks.assert_keeps_nan_apart()
checks.assert_tight_scratch_agrees()
"""


def test_the_kernels_in_the_interpreter():
    check_in_interpreter(INTERPRETED)


@pytest.mark.parametrize(("link", "kind"), [(1, "classification"), (2, "multilabel"), (0, "regression")])
def test_what_the_kernels_are_compared_with_is_expression_loss(link, kind):
    case = Case.drawn([Expression.parse("abs(log(mul(y, f)))")], Link(link), 4, 3, True, True)
    loss = ExpressionLoss(case.trees[0], case.weights[0], kind=kind, activation="softplus", reduction="none")
    expected = loss(case.outputs, case.targets).reshape(4, -1).sum(1)
    torch.testing.assert_close(case.loss(case.trees[0], case.outputs, case.weights[0]), expected)


def test_double_precision_is_refused():
    case = Case.drawn([Expression.parse("sub(y, f)")], Link.SIGMOID, 2, 1, False, True)
    programs = case.programs
    with pytest.raises(InputError, match=r"compute in torch\.float32 but got torch\.float64"):
        triton_backend.gradients(
            programs, case.packed(programs), case.outputs.double(), case.targets, case.link, softplus=False
        )


def test_too_many_outputs_for_a_descent_are_refused():
    case = Case.drawn([Expression.parse("sub(y, f)")], Link.SIGMOID, 1, 16385, False, True)
    programs = case.programs
    with pytest.raises(InputError, match="at most 16384 outputs per sample but got 16385"):
        triton_backend.descended(
            programs, case.packed(programs), case.outputs, case.targets, case.link,
            softplus=False, steps=1, lr=0.1, scale=1.0,
        )  # fmt: skip


@needs_cuda
@pytest.mark.parametrize("case", CASES, ids=str)
def test_on_cuda(case):
    link, outputs, softplus, shared = case
    assert_agrees(Case.drawn(random_trees(SIZES), link, 130, outputs, softplus, shared, "cuda"))


@needs_cuda
@pytest.mark.parametrize("outputs", [64, 1000, 4096])
def test_on_cuda_with_many_classes(outputs):
    for shared in (False, True):
        assert_agrees(Case.drawn(random_trees(SIZES), Link.SOFTMAX, 9, outputs, True, shared, "cuda"))


@needs_cuda
@pytest.mark.parametrize("outputs", [1, 10, 1000])
def test_on_cuda_with_a_large_tree(outputs):
    trees = [full_tree(10), *random_trees((5, 40))]
    assert_agrees(Case.drawn(trees, Link.SIGMOID, 20, outputs, False, False, "cuda", spread=0.01))


@needs_cuda
@pytest.mark.parametrize(
    "check", [assert_ties_agree, assert_accurate_at_every_scale, assert_descends, assert_keeps_nan_apart]
)
def test_on_cuda_at_the_edges(check):
    check("cuda")


@needs_cuda
def test_on_cuda_with_little_scratch_memory():
    assert_tight_scratch_agrees("cuda")
    assert_agrees(Case.drawn([leaning_tree(64)], Link.IDENTITY, 200, 1, False, True, "cuda"))


@needs_cuda
@pytest.mark.parametrize("outputs", [1000, 16384])
def test_on_cuda_a_descent_over_many_classes(outputs):
    case = Case.drawn([Expression.parse("abs(log(mul(y, f)))")], Link.SOFTMAX, 3, outputs, False, True, "cuda")
    programs = case.programs
    options = {"softplus": False, "steps": 20, "lr": 0.05, "scale": 1.0}
    arguments = programs, case.packed(programs), case.outputs, case.targets, case.link
    found = triton_backend.descended(*arguments, **options)
    before, _ = triton_backend.gradients(*arguments, softplus=False)
    after, _ = triton_backend.gradients(programs, case.packed(programs), found, *arguments[3:], softplus=False)
    assert (after < before).all()


@needs_cuda
def test_a_captured_launch_serves_other_trees():
    case = Case.drawn(random_trees((5, 9, 14)), Link.SOFTMAX, 32, 10, True, False, "cuda")
    other = replace(case, trees=case.trees[::-1], weights=case.weights[::-1])
    programs = case.programs
    weights = case.packed(programs)

    def asked():
        arguments = programs, weights, case.outputs, case.targets
        return (
            *triton_backend.gradients(*arguments, case.link, softplus=True),
            triton_backend.mixed(*arguments, case.tangents, case.link, softplus=True),
            triton_backend.descended(*arguments, case.link, softplus=True, steps=3, lr=0.1, scale=1.0),
        )

    asked()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = asked()
    programs.nodes.copy_(other.programs.nodes)
    programs.sizes.copy_(other.programs.sizes)
    weights.copy_(other.packed(programs))
    graph.replay()
    for found, expected in zip(captured, asked(), strict=True):
        assert torch.equal(found, expected)


def test_without_priors_every_output_has_the_default_one():
    programs = Programs.of([Expression.parse("mul(t, sub(y, f))")])
    assert triton_backend._extras(programs, Link.IDENTITY, 3)[:3].tolist() == [1.0, 1.0, 1.0]
    assert len(triton_backend._extras(programs, Link.IDENTITY, 3)) == 2 * 3 + 1
