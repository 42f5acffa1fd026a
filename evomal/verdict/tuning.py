"""Whether a gain is only a learning rate: every loss at its best one, and with the baseline's gradient.

The same for weight decay, where that is tuned, too: SGD multiplies it by the learning rate, so that a small loss at a
high learning rate has more of it than a large one at a low rate.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
_FEWEST_SEEDS, _MOST_SEEDS = 5, 40  # of the setting that a loss is left with
_NEAR = 4.0  # times a learning rate: where a training diverges at one so much higher, some may at this one, too
_MOST_FURTHER = 4  # learning rates beyond the first ones, at either end
_FEWEST_TO_EXTEND = 3  # learning rates: with two, each is at an end
_BATCHES = 8
_DECAY_RATIO = 10.0
_LEAST_DECAY, _MOST_DECAY = 1e-2, 1e3  # as multiples of the recipe's
_ROUNDING = 2e-3  # of rates that were multiplied several times, each time rounded to four digits


def settling_seeds(seeds: int) -> range:
    """Further seeds of the setting that a loss is left with, in a comparison of that many seeds.

    In all they are twice as many as the loss is judged with, from 5 to 40: a rate at which one training in ten
    fails is the best one with five seeds as often as not, and the same five are lucky for all losses.
    """
    return _further_seeds(min(max(_FEWEST_SEEDS, 2 * seeds), _MOST_SEEDS))


def _further_seeds(in_all: int) -> range:
    return range(TUNING_SEEDS.stop, TUNING_SEEDS.start + in_all)


class Setting(NamedTuple):
    """What is tuned: a learning rate, and a weight decay as a multiple of the recipe's."""

    lr: float
    decay: float = 1.0


@dataclass(frozen=True)
class Tuning:
    """The learning rates that were tried, in order, and the best setting of each loss, by its key."""

    rates: tuple[float, ...]
    best: dict[str, Setting]


def tuned(
    losses: Sequence[ComparedLoss], baseline: ComparedLoss, trials: Trials, number: int, task: Task, *, seeds: int,
    decays: bool = False,
) -> Tuning:  # fmt: skip
    """Try that number of learning rates, and further ones while the first or the last is the best of a main loss.

    The best rate has the lowest mean validation cost; a rate at which a training diverges is not chosen. It is trained
    with further seeds (`settling_seeds`), and stays the best only if it is with all of them; with forty in all if the
    loss diverged at a rate up to four times as high, as few seeds miss that one training in fifteen still does.

    Neither the baseline nor the loss with the lowest cost should be left at an end of the rates, beyond which a better
    one may lie: against a badly tuned one, a loss would seem to gain. Every loss gets the same rates, among them those
    that searches found for their losses.

    With `decays`, the weight decay is tuned as well: from its best learning rate on, each loss goes to neighbouring
    weight decays, and to neighbours among the learning rates that were tried, as long as one of them is better.
    """
    rates = tried_rates(trials.own_lr, number)
    known = (_rounded(trials.own_lr), *rates)
    found = [rate for rate in found_rates(losses) if number > 1 and _equal(rate, known) is None]
    curves, settling = {loss.key: _TunedLoss(loss, task) for loss in losses}, settling_seeds(seeds)
    trainings = len(TUNING_SEEDS) * len({loss.identity for loss in losses})  # procedures share them

    def try_rates(some: Sequence[float]) -> None:
        _train([(curve, Setting(rate)) for rate in some for curve in curves.values()], TUNING_SEEDS, trials)

    if found:
        trials.expect(trainings * len(found))
    try_rates([*rates, *found])
    while _FEWEST_TO_EXTEND <= number <= len(rates) < number + _MOST_FURTHER:
        leader = min(curves.values(), key=lambda curve: curve.mean(curve.best_of(rates)))
        main = {curves[baseline.key].loss.identity, leader.loss.identity}
        _settle([curve for curve in curves.values() if curve.loss.identity in main], trials, settling, rates)
        best, ratio = {curve.best_of(rates).lr for curve in (curves[baseline.key], leader)}, rates[1] / rates[0]
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
        _settle([*curves.values()], trials, settling)
    if decays:
        _tune_decays([*curves.values()], tried, trials, settling)
    return Tuning(tuple(tried), {key: curve.best for key, curve in curves.items()})


def _tune_decays(curves: Sequence["_TunedLoss"], rates: Sequence[float], trials: Trials, settling: range) -> None:
    """Try the neighbours of each loss's best setting, until all of those have been tried."""
    while pairs := [
        (curve, setting) for curve in curves for setting in _neighbours(curve.best, rates) if not curve.has(setting)
    ]:
        trials.expect(len(TUNING_SEEDS) * len({(curve.loss.identity, setting) for curve, setting in pairs}))
        _train(pairs, TUNING_SEEDS, trials)
        _settle(curves, trials, settling)


def _neighbours(best: Setting, rates: Sequence[float]) -> list[Setting]:
    """The next weight decays at the same learning rate, and the next learning rates at the same weight decay."""
    power, place = round(math.log(best.decay, _DECAY_RATIO)), rates.index(best.lr)
    decays = [_DECAY_RATIO ** (power + step) for step in (1, -1)]
    return [
        *(Setting(best.lr, decay) for decay in decays if _LEAST_DECAY <= decay <= _MOST_DECAY),
        *(Setting(rates[next_one], best.decay) for next_one in (place - 1, place + 1) if 0 <= next_one < len(rates)),
    ]


class _TunedLoss:
    """The validation costs of one loss at every setting that was tried."""

    def __init__(self, loss: ComparedLoss, task: Task) -> None:
        self.loss, self._higher_is_better = loss, task.metric.higher_is_better
        self._costs: dict[Setting, dict[int, float]] = {}
        """By setting and seed."""

    def add(self, setting: Setting, seed: int, score: Score) -> None:
        """Add what a training came to."""
        cost = cost_of(score, score.validation, higher_is_better=self._higher_is_better)
        self._costs.setdefault(setting, {})[seed] = cost

    def has(self, setting: Setting) -> bool:
        """Whether the setting was tried."""
        return setting in self._costs

    def mean(self, setting: Setting) -> float:
        """Returns the mean cost at a setting."""
        return sum(self._costs[setting].values()) / len(self._costs[setting])

    @property
    def best(self) -> Setting:
        """The setting with the lowest mean; of equal ones that with the lower rate, then the usual decay."""
        return min(self._costs, key=lambda one: (self.mean(one), one.lr, abs(math.log(one.decay)), one.decay))

    def best_of(self, rates: Sequence[float]) -> Setting:
        """Returns the best setting with one of these rates and the recipe's weight decay."""
        return min(map(Setting, rates), key=lambda one: (self.mean(one), one.lr))

    def is_settled(self, setting: Setting, seeds: range) -> bool:
        """Whether the setting was tried with all seeds."""
        return self._costs.get(setting, {}).keys() >= {*seeds}

    def missing(self, setting: Setting, seeds: range) -> range:
        """The seeds that the setting is still to be tried with, more of them where divergence is near."""
        if not self.is_settled(setting, seeds):
            return seeds
        every = _further_seeds(_MOST_SEEDS)
        is_enough = self.is_settled(setting, every) or not self._is_near_divergence(setting)
        return range(0) if is_enough else every[len(seeds) :]

    def _is_near_divergence(self, setting: Setting) -> bool:
        higher = (one for one in self._costs if setting.lr < one.lr <= _NEAR * setting.lr)
        return any(one.decay == setting.decay and not math.isfinite(self.mean(one)) for one in higher)


def _settle(curves: Sequence[_TunedLoss], trials: Trials, seeds: range, rates: Sequence[float] | None = None) -> None:
    """Train with further seeds at each best setting, or best rate of some, until the best is one that has been."""

    def best_of(curve: _TunedLoss) -> Setting:
        return curve.best if rates is None else curve.best_of(rates)

    while missing := {
        (curve.loss.identity, best, further): None for curve in curves
        if (further := curve.missing(best := best_of(curve), seeds))
    }:  # fmt: skip
        trials.expect(sum(len(further) for _, _, further in missing))
        for group in dict.fromkeys(further for _, _, further in missing):
            # Procedures share the trainings of their loss, if they are asked for together.
            pairs = [
                (curve, setting) for identity, setting, further in missing for curve in curves
                if further == group and curve.loss.identity == identity and curve.has(setting)
                and not curve.is_settled(setting, group)
            ]  # fmt: skip
            _train(pairs, group, trials)


def _train(pairs: Sequence[tuple[_TunedLoss, Setting]], seeds: Sequence[int], trials: Trials) -> None:
    """Train losses at settings."""
    made = [
        [ComparedTrial(curve.loss, setting.lr, seed, decay=setting.decay, test=False) for seed in seeds]
        for curve, setting in pairs
    ]
    scores = trials.run([trial for row in made for trial in row])
    for (curve, setting), row in zip(pairs, made, strict=True):
        for trial in row:
            curve.add(setting, trial.seed, scores[trial])


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
