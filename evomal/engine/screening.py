"""Properties of untrained losses on a few samples, by which a search filters candidates (EvoMAL, section 3.5)."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from torch.func import vjp

from evomal.checks import Kind
from evomal.engine.functional_model import Parameters
from evomal.engine.resolve import initial_model, resolve_loss
from evomal.engine.row_losses import RowLoss, prepared_loss
from evomal.engine.rows import Rows
from evomal.engine.scores import TrialLoss
from evomal.engine.task_data import TaskData
from evomal.expression import Expression
from evomal.forest import Forest
from evomal.losses.loss import WeightedTree
from evomal.randomness import generator, isolated_torch
from evomal.tasks.inputs import select
from evomal.tasks.labels import IGNORED

Weights = Sequence[Sequence[float]]

_MARGINS = (-8.0, -5.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0)
_RESIDUALS = (-10.0, -3.0, -1.0, -0.3, -0.1, 0.1, 0.3, 1.0, 3.0, 10.0)
_VALUES = (-1.5, 0.0, 1.5)  # of standardised targets


class Screening:
    """The untrained model's outputs on some training samples, and what losses do with them.

    Rows have the weights that they have in trainings.
    """

    def __init__(self, data: TaskData, *, samples: int, seed: int) -> None:
        self._data, self._metric = data, data.task.metric
        model, train = data.model, data.train
        chosen = generator(seed, "filter samples").choice(len(train), min(samples, len(train)), replace=False)
        rows = torch.from_numpy(chosen).to(model.device)
        if self._metric.needs_every_class:
            rows = _with_every_class(rows, train.targets)
        self._inputs, self._seed = select(train.inputs, rows), seed
        batch = train.select(rows)
        found = data.rows.of_metric(batch)
        self._kept = self._counted_rows(found, samples)
        self._targets = found.targets if self._kept is None else found.targets.index_select(0, self._kept)
        self._weights = None if data.rows.weighs_alike(batch) else data.rows.of_loss(batch).weights
        """`[B]`: the weights of the rows in a loss; None: all that count count alike."""
        self._sample_weights = None if batch.weights is None else found.weights
        if self._kept is not None:
            self._weights, self._sample_weights = (
                None if own is None else own.index_select(0, self._kept)
                for own in (self._weights, self._sample_weights)
            )
        with torch.no_grad(), self._model_at_start() as (parameters, run):
            self._outputs = run(parameters)

    def _counted_rows(self, rows: Rows, samples: int) -> Tensor | None:
        """Returns some rows that count, as many as samples were asked for; None: every sample is a row that counts."""
        if rows.weights is None and not rows.positions:
            return None
        counted = torch.arange(len(rows.targets), device=rows.targets.device)
        if rows.weights is not None:
            counted = counted[rows.weights > 0]
        chosen = generator(self._seed, "filter rows").choice(len(counted), min(samples, len(counted)), replace=False)
        kept = torch.from_numpy(chosen).to(counted.device)
        if self._metric.needs_every_class:
            kept = _with_every_class(kept, rows.targets.index_select(0, counted))
        return counted.index_select(0, kept)

    def gradient_norms(self, expressions: Sequence[Expression], weights: Weights) -> Tensor:
        """`[P, B]`: the norm of each sample's gradient at the untrained outputs."""
        forest, packed = self._forest(expressions, weights)
        return self._gradient_norms(forest, packed).cpu()

    def _gradient_norms(self, forest: Forest, packed: Tensor) -> Tensor:
        norms = forest.gradient_norms(self._outputs, self._targets, packed)
        # Relative to their mean, so that weights which are all alike change nothing.
        return norms if self._weights is None else norms * (self._weights / self._weights.mean())

    def profiles(self, expressions: Sequence[Expression], weights: Weights) -> Tensor:
        """`[P, B]`: norms of the gradient on a grid from wrong to right outputs, relative to those at the start.

        Losses that differ by a factor have the same profile.
        """
        forest, packed = self._forest(expressions, weights)
        norms = self._gradient_norms(forest, packed)
        outputs, targets = _grid(self._data.task.kind, self._outputs, self._targets)
        on_grid = forest.gradient_norms(outputs, targets, packed)
        together = torch.cat((norms, on_grid), 1)
        return (together / norms.square().mean(1, keepdim=True).sqrt()).cpu()

    def matching_factors(self, losses: Sequence[TrialLoss], reference: str = "") -> list[float]:
        """Returns what each loss must be multiplied by for its gradient at the start to have the reference's norm.

        The gradient is that by the untrained model's parameters. The factor is 1 where it is zero or not finite: no
        factor would change that.

        `reference`: the name of a known loss; the baseline if it is empty, or if that loss has no gradient here.
        """
        task = self._data.task
        data, device = self._data, self._outputs.device
        rows = Rows(self._targets, self._weights, is_masked_only=self._weights is None)
        known = [resolve_loss(reference, task).to(device)] if reference else []
        prepared = [
            prepared_loss(loss, task, device, data.activation, is_extended=data.is_extended)
            for loss in (*known, *losses)
        ]
        with self._model_at_start() as (parameters, run):
            outputs, pull = vjp(run, parameters)[:2]
            outputs = outputs.detach()

            def norm(cotangent: Tensor) -> float:
                gradients = [gradient.double().reshape(-1) for gradient in pull(cotangent)[0].values()]
                return float(torch.linalg.vector_norm(torch.cat(gradients)))

            wanted = norm(_output_gradient(self._data.task_loss, outputs, rows))
            norms = [norm(gradient) for gradient in self._gradients(prepared, outputs, rows)]
        for own in norms[: len(known)]:
            wanted = own if math.isfinite(own) and own > 0 else wanted
        factors = [wanted / own if own > 0 else math.nan for own in norms[len(known) :]]
        return [factor if math.isfinite(factor) and factor > 0 else 1.0 for factor in factors]

    def _gradients(self, losses: Sequence[TrialLoss], outputs: Tensor, rows: Rows) -> list[Tensor]:
        """Returns the gradient of each loss by the outputs."""
        trees = [loss for loss in losses if isinstance(loss, WeightedTree)]
        of_trees: Iterator[Tensor] = iter(())
        if trees:
            forest, packed = self._forest([tree.expression for tree in trees], [tree.edge_weights for tree in trees])
            of_trees = iter(forest.gradients(outputs, rows.targets, packed, rows.weights)[1])
        return [
            next(of_trees) if isinstance(loss, WeightedTree) else _output_gradient(RowLoss(loss), outputs, rows)
            for loss in losses
        ]

    @contextlib.contextmanager
    def _model_at_start(self) -> Iterator[tuple[Parameters, Callable[[Parameters], Tensor]]]:
        """A context with the initial parameters, and the outputs for the samples as a function of parameters."""
        data, model = self._data, self._data.model
        parameters, constants = model.views(model.flattened(initial_model(data.task, self._seed)).to(model.device))

        def run(own: Parameters) -> Tensor:
            outputs = model(own, self._inputs, constants)
            return outputs if self._kept is None else outputs.index_select(0, self._kept)

        with isolated_torch(self._seed, "filter dropout", device=model.device):
            yield parameters, run

    def gains(self, expressions: Sequence[Expression], weights: Weights, *, steps: int, lr: float) -> list[float]:
        """Returns by how much the metric's cost falls when the outputs themselves are optimised; −∞ for divergence."""
        forest, packed = self._forest(expressions, weights)
        descended = forest.descended(self._outputs, self._targets, packed, steps=steps, lr=lr)
        if self._weights is not None:
            # Adam takes the same steps whatever a row's weight is, except for none at all.
            descended = torch.where(self._weights.unsqueeze(-1) > 0, descended, self._outputs)
        before = self._cost(self._outputs)
        finite = torch.isfinite(descended).all(2).all(1).tolist()
        pairs = zip(descended, finite, strict=True)
        costs = [self._cost(outputs) if is_finite else math.inf for outputs, is_finite in pairs]
        return [before - cost if math.isfinite(cost) else -math.inf for cost in costs]

    def _cost(self, outputs: Tensor) -> float:
        cost = self._metric.cost(self._metric(outputs, self._targets, weights=self._sample_weights))
        return cost if math.isfinite(cost) else math.inf

    def _forest(self, expressions: Sequence[Expression], weights: Weights) -> tuple[Forest, Tensor]:
        forest = self._data.forest(expressions)
        return forest, forest.programs.packed(weights, dtype=self._outputs.dtype)


def _grid(kind: Kind, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Returns outputs from far on the wrong side of some targets to far on the right side, and these targets."""
    count = outputs.shape[1]
    if kind == "regression":
        residuals = torch.tensor(_RESIDUALS, dtype=outputs.dtype, device=outputs.device)
        values = torch.tensor(_VALUES, dtype=outputs.dtype, device=outputs.device)
        wanted = values.repeat_interleave(len(residuals))[:, None].expand(-1, count)
        return wanted + residuals.repeat(len(values))[:, None], wanted.contiguous()
    margins = torch.tensor(_MARGINS, dtype=outputs.dtype, device=outputs.device)
    if kind == "classification" and count > 1:
        grid = outputs.new_zeros(len(margins), count)
        grid[:, 0] = margins
        return grid, targets.new_zeros(len(margins))
    grid = margins.repeat(2)[:, None].expand(-1, count).contiguous()
    bits = torch.cat((torch.ones_like(margins), torch.zeros_like(margins)))
    return grid, (bits if targets.dim() == 1 else bits[:, None].expand(-1, count)).to(targets.dtype).contiguous()


def _output_gradient(loss: Callable[[Tensor, Rows], Tensor], outputs: Tensor, rows: Rows) -> Tensor:
    given = outputs.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(given, rows), given)
    return gradient


def _with_every_class(rows: Tensor, targets: Tensor) -> Tensor:
    """Returns the rows, and the first row of each class, or of each label present and absent, that they lack."""
    has_labels = targets.dim() == 2 and targets.is_floating_point()
    added = []
    for column in torch.split(targets, 1, dim=1) if has_labels else [targets.reshape(len(targets), -1)]:
        for value in torch.unique(column):
            has_value = (column == value).any(1)
            if value != IGNORED and not bool(has_value[rows].any()):
                added.append(has_value.nonzero()[0])
    return torch.cat((rows, torch.cat(added))) if added else rows
