"""Whether a gain is only a learning rate: every loss at its best learning rate, and with the baseline's gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from evomal.engine import Score
from evomal.engine.resolve import initial_model
from evomal.engine.row_losses import RowLoss
from evomal.engine.rows import RowRule
from evomal.losses.loss import Loss
from evomal.randomness import isolated_torch
from evomal.tasks.inputs import called
from evomal.tasks.parts import Batches
from evomal.tasks.task import Task
from evomal.users_code import users_code
from evomal.verdict.comparison import cost_of
from evomal.verdict.contestants import ComparedLoss
from evomal.verdict.trials import ComparedTrial, Trials

TUNING_SEEDS = range(2000, 2002)
"""The seeds of each learning rate that is tried; neither a search nor a final training uses them."""
SETTLING_SEEDS = range(2002, 2005)
"""Further seeds of the learning rate that a loss is left with: two may miss that some trainings fail there."""
_MOST_FURTHER = 4  # learning rates beyond the first ones, at either end
_FEWEST_TO_EXTEND = 3  # learning rates: with two, each is at an end
_BATCHES = 8
_ROUNDING = 2e-3  # of rates that were multiplied several times, each time rounded to four digits


@dataclass(frozen=True)
class Tuning:
    """The learning rates that were tried, in order, and the best of them for each loss, by its key."""

    rates: tuple[float, ...]
    best: dict[str, float]


def tuned(
    losses: Sequence[ComparedLoss], baseline: ComparedLoss, trials: Trials, number: int, task: Task
) -> Tuning:  # fmt: skip
    """Try that number of learning rates, and further ones while the first or the last is the best of a main loss.

    The best rate has the lowest mean validation cost; a rate at which a training diverges is not chosen. It is trained
    with further seeds, and stays the best only if it is with all of them. Neither the baseline nor the loss with the
    lowest cost should be left at an end of the rates, beyond which a better one may lie: against a badly tuned one, a
    loss would seem to gain. Every loss gets the same rates, among them those that searches found for their losses.
    """
    rates = tried_rates(trials.own_lr, number)
    known = (_rounded(trials.own_lr), *rates)
    found = [rate for rate in found_rates(losses) if number > 1 and _equal(rate, known) is None]
    curves = {loss.key: _RateCurve(loss, task) for loss in losses}
    trainings = len(TUNING_SEEDS) * len({loss.identity for loss in losses})  # procedures share them

    def try_rates(some: Sequence[float]) -> None:
        _train([(curve, rate) for rate in some for curve in curves.values()], TUNING_SEEDS, trials)

    if found:
        trials.expect(trainings * len(found))
    try_rates([*rates, *found])
    while _FEWEST_TO_EXTEND <= number <= len(rates) < number + _MOST_FURTHER:
        leader = min(curves.values(), key=lambda curve: curve.mean(curve.best(rates)))
        main = {curves[baseline.key].loss.identity, leader.loss.identity}
        _settle([curve for curve in curves.values() if curve.loss.identity in main], rates, trials)
        best, ratio = {curve.best(rates) for curve in (curves[baseline.key], leader)}, rates[1] / rates[0]
        if rates[-1] in best:
            beyond = _rounded(rates[-1] * ratio)
        elif rates[0] in best:
            beyond = _rounded(rates[0] / ratio)
        else:
            break
        if (same := _equal(beyond, found)) is not None:
            beyond = same
        else:
            trials.expect(trainings)
            try_rates([beyond])
        rates = sorted([*rates, beyond])
    tried = sorted({*rates, *found})
    if len(tried) > 1:
        _settle([*curves.values()], tried, trials)
    return Tuning(tuple(tried), {key: curve.best(tried) for key, curve in curves.items()})


class _RateCurve:
    """The validation costs of one loss at every learning rate that was tried."""

    def __init__(self, loss: ComparedLoss, task: Task) -> None:
        self.loss, self._higher_is_better = loss, task.metric.higher_is_better
        self._costs: dict[float, dict[int, float]] = {}
        """By rate and seed."""

    def add(self, rate: float, seed: int, score: Score) -> None:
        """Add what a training came to."""
        cost = cost_of(score, score.validation, higher_is_better=self._higher_is_better)
        self._costs.setdefault(rate, {})[seed] = cost

    def mean(self, rate: float) -> float:
        """Returns the mean cost at a rate."""
        return sum(self._costs[rate].values()) / len(self._costs[rate])

    def best(self, rates: Sequence[float]) -> float:
        """Returns the rate with the lowest mean, the lower one of equals."""
        return min(rates, key=lambda rate: (self.mean(rate), rate))

    def is_settled(self, rate: float) -> bool:
        """Whether the rate was tried with all seeds."""
        return self._costs[rate].keys() >= {*SETTLING_SEEDS}


def _settle(curves: Sequence[_RateCurve], rates: Sequence[float], trials: Trials) -> None:
    """Train with further seeds at each best rate, until the best one is one that has been."""
    while missing := {
        (curve.loss.identity, best): None for curve in curves if not curve.is_settled(best := curve.best(rates))
    }:
        trials.expect(len(SETTLING_SEEDS) * len(missing))
        # Procedures share the trainings of their loss, if they are asked for together.
        pairs = [
            (curve, rate) for identity, rate in missing for curve in curves
            if curve.loss.identity == identity and not curve.is_settled(rate)
        ]  # fmt: skip
        _train(pairs, SETTLING_SEEDS, trials)


def _train(pairs: Sequence[tuple[_RateCurve, float]], seeds: Sequence[int], trials: Trials) -> None:
    """Train losses at learning rates."""
    made = [[ComparedTrial(curve.loss, rate, seed, test=False) for seed in seeds] for curve, rate in pairs]
    scores = trials.run([trial for row in made for trial in row])
    for (curve, rate), row in zip(pairs, made, strict=True):
        for trial in row:
            curve.add(rate, trial.seed, scores[trial])


def found_rates(losses: Sequence[ComparedLoss]) -> list[float]:
    """The learning rates that searches found for their losses, as their files name them."""
    named = [loss.loss.provenance.get("learning_rate") for loss in losses if isinstance(loss.loss, Loss)]
    rates = [_rounded(float(rate)) for rate in named if isinstance(rate, int | float) and not isinstance(rate, bool)]
    return sorted({rate for rate in rates if math.isfinite(rate) and rate > 0})


def tried_rates(own: float, number: int) -> list[float]:
    """That number of learning rates, evenly spaced by their ratio, from a tenth to ten times the untuned one.

    Thousands of them are fewer, as they are rounded.
    """
    if number == 1:
        return [own]
    return sorted({_rounded(own * 10 ** (2 * index / (number - 1) - 1)) for index in range(number)})


def matching_factor(task: Task, loss: nn.Module, baseline: nn.Module) -> float:
    """The factor that gives the loss the mean gradient norm of the baseline at initialisation.

    It is 1 for a loss whose gradient there is zero or not finite: no factor would change that.
    """
    own, other = (
        sum(gradient_norm(task, criterion, seed=seed) for seed in TUNING_SEEDS) / len(TUNING_SEEDS)
        for criterion in (loss, baseline)
    )
    factor = other / own if own > 0 else math.nan
    return factor if math.isfinite(factor) and factor > 0 else 1.0


def gradient_norm(task: Task, loss: nn.Module, *, seed: int) -> float:
    """The mean norm of the gradient by the model's parameters at the seed's initial weights, over a few batches."""
    model = initial_model(task, seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    batches = Batches(len(task.train), task.recipe.batch_size, seed=seed, purpose="gradient norm")
    criterion, rows = RowLoss(loss), RowRule(task, torch.device("cpu"), torch.float32)
    norms = []
    with users_code(f"training on {task.name}"), torch.enable_grad(), isolated_torch(seed, "gradient norm"):
        for index in range(_BATCHES):
            batch = task.train.select(batches[index]).to("cpu", torch.float32)
            value = criterion(called(model, batch.inputs), rows.of_loss(batch))
            gradients = torch.autograd.grad(value, trained, materialize_grads=True)
            whole = torch.cat([gradient.double().reshape(-1) for gradient in gradients])
            norms.append(float(torch.linalg.vector_norm(whole)))
    return sum(norms) / len(norms)


def _equal(rate: float, rates: Sequence[float]) -> float | None:
    """Returns the one of the rates that differs from a rate by rounding at most; None if none does."""
    return next((other for other in rates if math.isclose(rate, other, rel_tol=_ROUNDING)), None)


def _rounded(rate: float) -> float:
    return float(f"{rate:.4g}")
