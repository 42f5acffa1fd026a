"""ML³: the loss is a small network, trained by unrolled differentiation alone.

Bechtle, Molchanov, Chebotar, Grefenstette, Righetti, Sukhatme and Meier, Meta Learning via Learned Loss, ICPR 2021.

One generation is a pass of meta steps, which starts from the weights that the last one ended with, then a training that
measures its fitness. The paper's ML³ is a single pass (`ml3-single`), which moves each weight by a quarter at most;
`ml3` makes as many passes as other methods have generations, and returns the best: stronger than the paper's.
Pass g takes the meta steps from g · meta_steps on, so that every pass sees its own initial weights and batches. Adam is
reset in each pass, so that the recorded weights are all that is needed to continue.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch

from evomal.checks import Kind
from evomal.engine import TrialLoss
from evomal.losses.neural import NeuralLoss, layers_of, starting_layers, weights_of
from evomal.methods.candidates import Candidate
from evomal.methods.evaluation import Evaluator, still_open, with_optimised
from evomal.methods.strategy import FixedForm, Method
from evomal.progress import StageStepsDone
from evomal.randomness import torch_generator

NETWORK = "network"
"""The name of the form: the MLP of (f, y) that `NeuralLoss` is."""


def network_loss(weights: Sequence[float], kind: Kind) -> NeuralLoss:
    """The loss with these weights, as the optimisation returns them."""
    return NeuralLoss(layers_of(torch.tensor(list(weights), dtype=torch.float64)), kind=kind)


class _NetworkEvaluator(Evaluator):
    """Optimises the network, then trains with it."""

    def _evaluate(self, candidates: list[Candidate], report: StageStepsDone | None) -> None:
        places = still_open(candidates)
        for place in places:
            candidates[place] = replace(candidates[place], weights=candidates[place].weights or self._start())
        rows = [list(candidates[place].weights) for place in places]
        passes = [candidates[place].generation for place in places]
        for place, result in self._run("optimise_networks", candidates, places, rows, passes, report=report):
            candidates[place] = with_optimised(candidates[place], result)
        self._train(candidates, still_open(candidates), report)

    def losses_of(self, candidates: Sequence[Candidate]) -> list[TrialLoss]:
        return [network_loss(candidate.weights, self._context.kind) for candidate in candidates]

    def _start(self) -> tuple[float, ...]:
        layers = starting_layers(generator=torch_generator(self._context.seed, "starting network"))
        return tuple(weights_of(layers).tolist())


ML3 = Method(
    "ml3",
    "tunes a small network as the loss, pass after pass, and takes the best pass",
    lambda context, _: FixedForm(NETWORK, generations=context.settings.generations),
    _NetworkEvaluator,
    {"optimise_networks": None, "evaluate_losses": None},
    searches_expressions=False,
)
ML3_SINGLE = replace(
    ML3,
    name="ml3-single",
    purpose="tunes a small network as the loss in one pass, as in the paper",
    make_strategy=lambda context, _: FixedForm(NETWORK),
)
