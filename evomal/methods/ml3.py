"""ML³: the loss is a small network, trained by unrolled differentiation alone (Bechtle et al., 2021).

One generation is a pass of meta steps, from the weights that the last one ended with, then a training to measure its
fitness. The specification's ML³ is a single pass (`ml3-single`), which moves each weight by a quarter at most; `ml3`
makes as many passes as other methods have generations, and the best of them is the result: stronger than the paper's.
Pass g takes the meta steps from g · meta_steps on, so that every pass sees starts and batches of its own. Adam begins
each pass anew, so that the recorded weights are all it takes to go on.
"""

from collections.abc import Sequence
from typing import Any

import torch

from evomal.expression import Expression
from evomal.losses.contract import Kind
from evomal.losses.neural import NeuralLoss, layers_of, starting_layers, weights_of
from evomal.methods.judging import Case, Executor, Judge, Learned, Stage, concluded, still_open
from evomal.methods.method import Method, SearchContext, Workload
from evomal.methods.outcomes import Outcome
from evomal.methods.proposals import Proposal
from evomal.methods.strategy import FixedForm
from evomal.progress import StageStepsDone
from evomal.randomness import torch_generator

NETWORK = "network"
"""The name of the form: the MLP of (f, y) that `NeuralLoss` is."""


class _NetworkJudge(Judge):
    """Tunes the network, then trains with it."""

    def __init__(self, context: SearchContext, executor: Executor) -> None:
        super().__init__(executor)
        self._context = context

    def _judged(self, proposals: Sequence[Proposal], generation: int, report: StageStepsDone | None) -> list[Outcome]:
        cases = [Case(proposal, list(proposal.weights) or self._start()) for proposal in proposals]
        rows = [case.weights for case in cases]
        passes = [generation] * len(cases)
        for case, result in self._worked_on("optimise_networks", cases, rows, passes, report=report):
            case.tuned(result)
        self._trained(still_open(cases), report)
        return concluded(cases)

    def _training(self, losses: Sequence[Learned]) -> tuple[Stage, list[Sequence[Any]]]:
        return "evaluate_losses", [[network_loss(weights, self._context.kind) for _, weights in losses]]

    def _start(self) -> list[float]:
        layers = starting_layers(generator=torch_generator(self._context.seed, "starting network"))
        weights: list[float] = weights_of(layers).tolist()
        return weights


def network_loss(weights: Sequence[float], kind: Kind) -> NeuralLoss:
    """The loss with these weights, as optimisation gives them."""
    return NeuralLoss(layers_of(torch.tensor(list(weights), dtype=torch.float64)), kind=kind)


def _pass_after_pass(context: SearchContext, _: Sequence[Expression]) -> FixedForm:
    return FixedForm(NETWORK, generations=context.settings.generations)


def _single_pass(context: SearchContext, _: Sequence[Expression]) -> FixedForm:
    return FixedForm(NETWORK)


_WORKLOAD = Workload({"optimise_networks": None, "evaluate_losses": None})
ML3 = Method(
    "ml3", "tunes a small network as the loss, pass after pass, and takes the best pass", _pass_after_pass,
    _NetworkJudge, _WORKLOAD, of_expressions=False,
)  # fmt: skip
ML3_SINGLE = Method(
    "ml3-single", "tunes a small network as the loss in one pass, as in the paper", _single_pass, _NetworkJudge,
    _WORKLOAD, of_expressions=False,
)  # fmt: skip
