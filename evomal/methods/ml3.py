"""ML³: the loss is a small network, trained by unrolled differentiation alone (Bechtle et al., 2021).

One generation is a pass over the meta steps that every candidate of a search sees, from the weights the last one ended
with, then a training to measure its fitness; the best of them is the result. Adam begins each pass anew, so that the
recorded weights are all it takes to go on.
"""

from collections.abc import Sequence

import torch

from evomal.engine.engine import Report
from evomal.expression import Expression
from evomal.losses.contract import Kind
from evomal.losses.neural import NeuralLoss, layers_of, starting_layers, weights_of
from evomal.methods.executing import Executor
from evomal.methods.judging import Case, Judge, concluded, still_open
from evomal.methods.method import Brief, Method, Workload
from evomal.randomness import torch_generator
from evomal.strategies import FixedForm, Outcome, Proposal

NETWORK = "network"
"""The name of the form: the MLP of (f, y) that `NeuralLoss` is."""


class _NetworkJudge(Judge):
    """Tunes the network, then trains with it."""

    def __init__(self, brief: Brief, executor: Executor) -> None:
        super().__init__(executor)
        self._brief = brief

    def _judged(self, proposals: Sequence[Proposal], report: Report | None) -> list[Outcome]:
        cases = [Case(proposal, list(proposal.weights) or self._start()) for proposal in proposals]
        rows = [case.weights for case in cases]
        for case, result in self._worked_on("optimise_networks", cases, rows, report=report):
            case.tuned(result)
        left = still_open(cases)
        losses = [network_loss(case.weights, self._brief.kind) for case in left]
        for case, fitness in self._worked_on("evaluate_losses", left, losses, report=report):
            case.measured(fitness)
        return concluded(cases)

    def _start(self) -> list[float]:
        layers = starting_layers(generator=torch_generator(self._brief.seed, "starting network"))
        weights: list[float] = weights_of(layers).tolist()
        return weights


def network_loss(weights: Sequence[float], kind: Kind) -> NeuralLoss:
    """The loss with these weights, as optimisation gives them."""
    return NeuralLoss(layers_of(torch.tensor(list(weights), dtype=torch.float64)), kind=kind)


def _tuned_on(brief: Brief, _: Sequence[Expression]) -> FixedForm:
    return FixedForm(NETWORK, generations=brief.settings.generations)


ML3 = Method(
    "ml3", "tunes a small network as the loss", _tuned_on, _NetworkJudge,
    Workload({"optimise_networks": None, "evaluate_losses": None}), of_expressions=False,
)  # fmt: skip
