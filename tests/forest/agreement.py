"""What it means that a backend agrees with `ExpressionLoss` alone.

The rule: a tree's row (its losses, gradients or mixed gradients) may differ from autograd in double precision by a
share of the row's scale, 1e-8 in double and 1e-4 in single precision, or in single precision by ten times what plain
torch operations differ in single precision. The scale of a row is the size of the terms it is summed from, not of the
sum: through softmax, say, a constant ∂M/∂f cancels to zero, and no precision gets a share of that right.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from torch import Tensor

from evomal.expression import Expression
from evomal.expression.operators import PREDICTION
from evomal.forest import Link, Programs, torch_backend
from evomal.losses import ExpressionLoss

KINDS = {Link.IDENTITY: "regression", Link.SIGMOID: "multilabel", Link.SOFTMAX: "classification"}


@dataclass(frozen=True)
class Case:
    """A forest and what it is asked; in double precision unless converted."""

    trees: Sequence[Expression]
    programs: Programs
    weights: Tensor
    outputs: Tensor
    targets: Tensor
    tangents: Tensor
    link: Link
    softplus: bool
    priors: Sequence[float] | None = None
    progress: float = 0.0

    def to(self, *, dtype: torch.dtype | None = None, device: str | None = None) -> "Case":
        moved = {
            name: getattr(self, name).to(device=device, dtype=dtype)
            for name in ("weights", "outputs", "targets", "tangents")
        }
        programs = self.programs
        if device is not None:
            programs = Programs.of(self.trees, device=device, priors=_tensor(self.priors))
            programs.progress.fill_(self.progress)
        return replace(self, programs=programs, **moved)

    def gradients(self, backend) -> tuple[Tensor, Tensor]:
        return backend.gradients(
            self.programs, self.weights, self.outputs, self.targets, self.link, softplus=self.softplus
        )

    def mixed(self, backend) -> Tensor:
        return backend.mixed(
            self.programs, self.weights, self.outputs, self.targets, self.tangents, self.link, softplus=self.softplus
        )

    def descended(self, backend, *, steps: int, lr: float, scale: float) -> Tensor:
        return backend.descended(
            self.programs, self.weights, self.outputs, self.targets, self.link,
            softplus=self.softplus, steps=steps, lr=lr, scale=scale,
        )  # fmt: skip

    def own_outputs(self, tree: int) -> Tensor:
        return self.outputs[tree] if self.outputs.dim() == 3 else self.outputs

    def loss(self, tree: int, weights: Tensor | None = None) -> ExpressionLoss:
        """The tree's loss of every sample or output, with the edges' weights of its row or these."""
        found = ExpressionLoss(
            self.trees[tree],
            self.weights[tree, 1 : self.trees[tree].size] if weights is None else weights,
            kind=KINDS[self.link],
            activation="softplus" if self.softplus else "identity",
            reduction="none",
            priors=self.priors,
        )
        found.progress = self.progress
        return found


def case(
    trees: Sequence[Expression],
    link: Link,
    *,
    samples: int = 6,
    outputs: int = 3,
    softplus: bool = False,
    shared: bool = False,
    seed: int = 0,
    spread: float = 0.1,
    is_extended: bool = False,
) -> Case:
    """Random outputs, tangents and weights around 1; targets as the link has them; random priors for extended trees."""
    rng = torch.Generator().manual_seed(seed)
    priors, progress = None, 0.0
    if is_extended:
        progress = 0.25
        # In single precision, as losses keep them.
        drawn = torch.rand(outputs, generator=rng) + 0.1
        priors = (
            None if link is Link.IDENTITY else (drawn / drawn.sum() if link is Link.SOFTMAX else drawn / 2).tolist()
        )
    programs = Programs.of(trees, priors=_tensor(priors))
    programs.progress.fill_(progress)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=rng, dtype=torch.float64)

    if link is Link.SOFTMAX:
        targets = torch.eye(outputs, dtype=torch.float64)[torch.randint(outputs, (samples,), generator=rng)]
    else:
        targets = normal(samples, outputs) if link is Link.IDENTITY else normal(samples, outputs).sign().clamp(min=0)
    weights = [(1 + spread * normal(tree.edges)).tolist() for tree in trees]
    return Case(
        trees, programs, programs.packed(weights, dtype=torch.float64),
        normal(samples, outputs) if shared else normal(len(trees), samples, outputs),
        targets, normal(len(trees), samples, outputs), link, softplus, priors, progress,
    )  # fmt: skip


@st.composite
def small_cases(draw, trees: Callable[[Link], SearchStrategy[Expression]], *, is_extended: bool = False) -> Case:
    """Few trees and samples; weights of one, where arguments tie, or around it."""
    link = draw(st.sampled_from(list(Link)))
    return case(
        draw(st.lists(trees(link), min_size=1, max_size=3)),
        link,
        samples=draw(st.integers(1, 4)),
        outputs=draw(st.integers(2 if link is Link.SOFTMAX else 1, 3)),
        softplus=draw(st.booleans()),
        shared=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
        spread=draw(st.sampled_from([0.0, 0.1])),
        is_extended=is_extended,
    )


def _tensor(priors: Sequence[float] | None) -> Tensor | None:
    return None if priors is None else torch.tensor(priors, dtype=torch.float64)


@dataclass(frozen=True)
class Reference:
    """Losses [P, B], gradients [P, B, K] and mixed gradients [P, N] by autograd, and the scale [P] of each."""

    losses: Tensor
    gradients: Tensor
    mixed: Tensor
    scales: dict[str, Tensor]


def reference(given: Case) -> Reference:
    """Every tree as an `ExpressionLoss` of its own."""
    count, width = given.weights.shape
    losses, gradients, scales = [], [], {"losses": [], "gradients": [], "mixed": []}
    mixed = torch.zeros(count, width, dtype=given.weights.dtype)
    for tree in range(count):
        outputs = given.own_outputs(tree).clone().requires_grad_()
        weights = given.weights[tree, 1 : given.trees[tree].size].clone().requires_grad_()
        loss = given.loss(tree, weights)
        values = loss(outputs, _of_a_task(given))
        values = values.sum(1) if values.dim() == 2 else values
        gradient = derivative(values.sum(), outputs, create_graph=True)
        mixed[tree, 1 : given.trees[tree].size] = derivative((given.tangents[tree] * gradient).sum(), weights)
        losses.append(values.detach())
        gradients.append(gradient.detach())
        for name, scale in _scales(given, loss, tree).items():
            scales[name].append(scale)
    return Reference(
        torch.stack(losses), torch.stack(gradients), mixed, {name: torch.stack(rows) for name, rows in scales.items()}
    )


def _of_a_task(given: Case) -> Tensor:
    """The targets as tasks have them: class indices, and bits that are whole numbers."""
    if given.link is Link.SOFTMAX:
        return given.targets.argmax(1)
    return given.targets.long() if given.link is Link.SIGMOID else given.targets


def derivative(total: Tensor, variable: Tensor, *, create_graph: bool = False, retain_graph: bool = False) -> Tensor:
    if not total.requires_grad:
        return torch.zeros_like(variable)
    (found,) = torch.autograd.grad(
        total, variable, create_graph=create_graph, retain_graph=create_graph or retain_graph, materialize_grads=True
    )
    return found


def _scales(given: Case, loss: ExpressionLoss, tree: int) -> dict[str, Tensor]:
    """The largest term a loss or gradient is summed from, and the sum of the terms' sizes for the mixed gradient."""
    outputs, size = given.own_outputs(tree), given.tangents[tree].abs()
    found = loss.predicted(outputs, given.link)
    terminals = {PREDICTION: found} if isinstance(found, Tensor) else found
    f = terminals[PREDICTION]
    if given.link is Link.SOFTMAX:
        size = size + (f * size).sum(1, keepdim=True)
    if len(terminals) > 1:  # such as the margin, along which the tangent of another output counts as a whole
        size = size + size.max()
    free = {token: values.clone().requires_grad_() for token, values in terminals.items()}
    value = loss.value(free, given.targets)
    # A power whose base is 1 has no slope but a second derivative of the size of its value.
    slope = value.detach().abs() if {"pow", "exp"} & set(given.trees[tree].tokens) else torch.zeros_like(f)
    for token, values in free.items():
        factor = f if token == PREDICTION and given.link is not Link.IDENTITY else torch.ones_like(f)
        slope = slope + factor * derivative(value.sum(), values, retain_graph=True).abs()
    return {
        "losses": value.detach().abs().max(),
        "gradients": slope.max(),
        "mixed": (slope * size).sum(),
    }


def assert_agrees(given: Case, backend, dtype: torch.dtype, exact: Reference | None = None) -> None:
    """Hold a backend in one dtype against the reference, by the rule above."""
    # What the backend is given is exact: rounding the input is not its error.
    given = given.to(dtype=dtype)
    exact = exact or reference(given.to(dtype=torch.float64))
    plain = _results(given, torch_backend) if dtype == torch.float32 else None
    for name, found in _results(given, backend).items():
        expected = getattr(exact, name)
        assert found.dtype == dtype
        assert found.shape == expected.shape
        for tree in range(len(expected)):
            allowed = allowance(
                expected[tree], exact.scales[name][tree], None if plain is None else plain[name][tree], dtype
            )
            if not allowed.isfinite():
                continue  # autograd itself diverged
            difference = (found[tree].double() - expected[tree]).abs().max()
            assert difference <= allowed, f"{name} of {given.trees[tree]}: off by {difference:.1e} > {allowed:.1e}"
        if dtype == torch.float64 and name == "losses":
            assert torch.equal(found.isnan(), expected.isnan())
            assert torch.equal(found.isinf(), expected.isinf())


def allowance(expected: Tensor, scale: Tensor, plain: Tensor | None, dtype: torch.dtype) -> Tensor:
    """How far a row may be off."""
    scale = torch.maximum(expected.abs().max(), scale)
    if dtype == torch.float64 or plain is None:
        return 1e-8 * scale
    return torch.maximum(1e-4 * scale, 10 * (plain.double() - expected).abs().max())


def _results(given: Case, backend) -> dict[str, Tensor]:
    losses, gradients = given.gradients(backend)
    return {"losses": losses, "gradients": gradients, "mixed": given.mixed(backend)}
