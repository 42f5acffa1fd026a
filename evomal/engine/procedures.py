"""Procedures: what is done during a training, or with the trained model, besides choosing a loss.

A procedure follows a loss and a plus sign: `ce+early-stopping`. The training itself is that of the loss alone, so that
one training serves the loss and all its procedures. Whatever a procedure chooses, it chooses on the validation split.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evomal.checks import MOST_POINTS, finite_number, options_in, unknown_name, whole_number
from evomal.engine.engine import Engine
from evomal.engine.resolve import class_priors
from evomal.engine.scores import Evaluated, Fitness, Reached, Score, Trial, fitness_of_outputs, score_of
from evomal.errors import InputError
from evomal.losses.catalogue import is_specified
from evomal.losses.files import is_loss_file
from evomal.progress import StepsDone
from evomal.tasks.task import Task

_SHARPEST = 100.0  # a model that separates the validation split would be sharpened without end
_ITERATIONS, _TOLERANCE = 100, 1e-14
_MOST_TAU, _TAUS = 100.0, tuple(number / 10 for number in range(31))

Adjustment = Callable[[Tensor], Tensor]
"""A function from the outputs of a model to those that are scored."""


@dataclass(frozen=True)
class Procedure:
    """A procedure and its options, which are the fields of the class; this one does nothing."""

    name: ClassVar[str] = "none"
    purpose: ClassVar[str] = "the trained model as it is"
    citation: ClassVar[str] = ""
    kinds: ClassVar[tuple[str, ...]] = ("classification", "multilabel", "regression")

    def __str__(self) -> str:
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        changed = [f"{field.name}={options[field.name]:g}" for field in dataclasses.fields(self)
                   if options[field.name] != field.default]  # fmt: skip
        return f"{self.name}:{','.join(changed)}" if changed else self.name

    def horizons(self, steps: int) -> tuple[int, ...]:
        """The numbers of steps at which it looks at a training of that many steps, increasing."""
        return (steps,)

    def adjustment(self, validation: Evaluated, task: Task) -> Adjustment | None:
        """What is done to the outputs of a model that has these outputs on validation; None: nothing."""
        return None


@dataclass(frozen=True)
class EarlyStopping(Procedure):
    """Early stopping (Prechelt, 1998): the validation metric is computed at several points of the training.

    Args:
        points: The number of points, evenly spaced; the best counts, of equal ones the first.
    """

    name = "early-stopping"
    purpose = "the model at that point of its training at which its validation metric was best"
    citation = "Prechelt, 1998"
    points: int = 20

    def __post_init__(self) -> None:
        whole_number("points", self.points, at_least=1, at_most=MOST_POINTS)

    def horizons(self, steps: int) -> tuple[int, ...]:
        spacing = max(1, steps // self.points)
        return (*range(spacing, steps, spacing), steps)


@dataclass(frozen=True)
class LogitAdjustment(Procedure):
    """Post-hoc logit adjustment (Menon et al., 2021, equation 9): outputs minus tau times the log of the class priors.

    Args:
        tau: How much of the priors is taken out; 1 makes a calibrated model right for classes of equal size.
    """

    name = "logit-adjustment"
    purpose = "outputs minus tau times the log of the class shares of the training data"
    citation = "Menon et al., 2021"
    kinds = ("classification",)
    tau: float = 1.0

    def __post_init__(self) -> None:
        finite_number("tau", self.tau, at_least=0, at_most=_MOST_TAU)

    def adjustment(self, validation: Evaluated, task: Task) -> Adjustment:
        shift = _log_priors(task, validation.outputs)
        return lambda outputs: outputs - self.tau * shift


@dataclass(frozen=True)
class TunedLogitAdjustment(Procedure):
    """Post-hoc logit adjustment with the tau of 0, 0.1, …, 3 that has the best validation metric; of equal ones the
    first."""

    name = "tuned-logit-adjustment"
    purpose = "the same with the tau from 0 to 3 that has the best validation metric"
    citation = "Menon et al., 2021"
    kinds = ("classification",)

    def adjustment(self, validation: Evaluated, task: Task) -> Adjustment:
        found = [LogitAdjustment(tau).adjustment(validation, task) for tau in _TAUS]
        return min(found, key=lambda one: fitness_of_outputs(task, _adjusted(validation, one)).value)


@dataclass(frozen=True)
class TemperatureScaling(Procedure):
    """Temperature scaling (Guo et al., 2017): outputs divided by the temperature that minimises the validation NLL."""

    name = "temperature"
    purpose = "outputs divided by the temperature that minimises the negative log-likelihood of validation"
    citation = "Guo et al., 2017"
    kinds = ("classification", "multilabel")

    def adjustment(self, validation: Evaluated, task: Task) -> Adjustment:
        temperature = fitted_temperature(validation)
        return lambda outputs: outputs / temperature


PROCEDURES: dict[str, type[Procedure]] = {
    kind.name: kind for kind in (EarlyStopping, LogitAdjustment, TunedLogitAdjustment, TemperatureScaling)
}
"""The procedures by name."""


def specified_procedure(spec: str) -> Procedure:
    """Makes the procedure that a text names, such as `early-stopping` or `logit-adjustment:tau=0.5`.

    Raises:
        InputError: There is no such procedure, it has no such option, or an option breaks its rule.
    """
    name = spec.partition(":")[0]
    if name not in PROCEDURES:
        raise unknown_name("procedure", name, PROCEDURES)
    defaults: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(PROCEDURES[name])}
    try:
        return PROCEDURES[name](**options_in(spec, defaults))
    except InputError as error:
        raise InputError(str(error) if str(error).startswith(name) else f"{name}: {error}") from None


def split_procedure(
    loss: nn.Module | str | os.PathLike[str],
) -> tuple[nn.Module | str | os.PathLike[str], Procedure | None]:
    """The loss and the procedure that follows it, as in `ce+temperature` or `mine.json+temperature`, if one does."""
    if isinstance(loss, nn.Module) or not isinstance(loss, str | os.PathLike):
        return loss, None
    text = os.fspath(loss)
    first, plus, rest = str(text).rpartition("+")
    is_meant = rest.partition(":")[0] in PROCEDURES or (is_specified(first) and rest[:1].isalpha())
    if not plus or not is_meant or is_loss_file(text):
        return loss, None
    return first, specified_procedure(rest)


def require_fitting(procedure: Procedure, kind: str) -> None:
    """Raise InputError if the procedure is not for tasks of this kind."""
    if kind not in procedure.kinds:
        raise InputError(f"the task is {kind}, but {procedure.name} is for {', '.join(procedure.kinds)}")


class Judge:
    """Scores one training under a procedure, from what the training has reached at the procedure's horizons.

    Args:
        procedure: The procedure; None: the trained model as it is.
        task: The task that is trained on.
        steps: The steps of the whole training.
    """

    def __init__(self, procedure: Procedure | None, task: Task, steps: int) -> None:
        self._procedure, self._task = procedure or Procedure(), task
        self.horizons = self._procedure.horizons(steps)
        self._best: tuple[int, Fitness, Evaluated | None] | None = None

    def see(self, step: int, reached: Reached) -> None:
        """Take note of a training after that number of steps; steps that are not horizons are ignored."""
        if step not in self.horizons:
            return
        fitness, tested = reached.fitness, reached.tested
        if reached.validation is not None and not fitness.diverged:
            adjustment = self._procedure.adjustment(reached.validation, self._task)
            if adjustment is not None:
                fitness = fitness_of_outputs(self._task, _adjusted(reached.validation, adjustment))
                tested = None if tested is None else _adjusted(tested, adjustment)
        if self._best is None or self._best[1].diverged or fitness.value < self._best[1].value:
            # A copy, as the outputs of one member would keep those of its whole stack in memory.
            kept = None if tested is None else tested._replace(outputs=tested.outputs.clone())
            self._best = step, fitness, kept

    def score(self, **about: Any) -> Score:
        """The score at the best horizon, where alone the test split counts; `about`: the options of `score_of`."""
        assert self._best is not None
        step, fitness, tested = self._best
        return score_of(self._task, fitness, tested, **{"steps": step, **about})


def scores_under(
    engine: Engine, trials: Sequence[tuple[Trial, Sequence[Procedure | None]]], *, test: bool,
    report: StepsDone | None = None,
) -> list[list[Score]]:  # fmt: skip
    """Run each trial once, and return its score under each of its procedures; None: the trained model as it is."""
    (task,), steps = engine.tasks, engine.settings.training_steps
    judges = [[Judge(procedure, task, steps) for procedure in procedures] for _, procedures in trials]

    def watch(place: int, horizon: int, reached: Reached) -> None:
        for judge in judges[place]:
            judge.see(horizon, reached)

    horizons = sorted({step for row in judges for judge in row for step in judge.horizons})
    results = engine.run_trials(
        [trial for trial, _ in trials], horizons=horizons, test=test, watch=watch, report=report
    )  # fmt: skip
    return [
        [judge.score(seed=found[-1].seed, milestones=found[-1].milestones) for judge in row]
        for found, row in zip(results, judges, strict=True)
    ]


def fitted_temperature(validation: Evaluated) -> float:
    """The temperature that minimises the negative log-likelihood of the outputs, between 1/100 and 100.

    By L-BFGS over the logarithm of the temperature, on the CPU in double precision.
    """
    outputs, targets = validation.outputs.detach().to("cpu", torch.float64), validation.targets.to("cpu")
    weights = None if validation.weights is None else validation.weights.to("cpu", torch.float64)
    is_binary = targets.dim() > 1 or outputs.shape[1] == 1

    def cost(sharpness: Tensor) -> Tensor:
        if is_binary:
            logits, bits = outputs.reshape(targets.shape) * sharpness, targets.double()
            costs = F.binary_cross_entropy_with_logits(logits, bits, reduction="none")
        else:
            costs = F.cross_entropy(outputs * sharpness, targets, reduction="none")
        if weights is None:
            return costs.mean()
        rows = costs.reshape(len(costs), -1).mean(1)
        return (rows * weights).sum() / weights.sum()

    logarithm = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [logarithm], max_iter=_ITERATIONS, tolerance_grad=_TOLERANCE, tolerance_change=_TOLERANCE,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = cost(logarithm.exp())
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.inference_mode(False), torch.enable_grad():
        optimizer.step(closure)  # type: ignore[no-untyped-call]
    sharpness = logarithm.detach().exp().clamp(1 / _SHARPEST, _SHARPEST)
    return float(1 / torch.nan_to_num(sharpness, nan=1.0))


def _adjusted(evaluated: Evaluated, adjustment: Adjustment) -> Evaluated:
    return evaluated._replace(outputs=adjustment(evaluated.outputs))


def _log_priors(task: Task, outputs: Tensor) -> Tensor:
    """The log of the share of each class; outputs beyond the classes count as the rarest. One logit has one number."""
    shares = class_priors(task).log()
    if outputs.shape[1] == 1:
        return (shares[1:] - shares[:1]).to(outputs)
    return F.pad(shares, (0, max(0, outputs.shape[1] - len(shares))), value=float(shares.min())).to(outputs)
