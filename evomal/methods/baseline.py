"""The baseline and its rivals: known losses in an ordinary training loop, nothing learned (EvoMAL, section 4.1).

The baseline is the task's own loss. It and the rivals are trained under the protocol of candidates, so that a learned
loss can be compared with them.
"""

import re
from collections.abc import Sequence

from evomal.checks import Kind
from evomal.engine import Fitness, TrialLoss
from evomal.engine.resolve import class_priors
from evomal.errors import EvomalError, InputError
from evomal.losses.catalogue import TASK_LOSSES, named_loss, specified_loss
from evomal.methods.candidates import Candidate
from evomal.methods.evaluation import Evaluator, Executor, Failure
from evomal.methods.strategy import FixedForm, Method
from evomal.progress import StageStepsDone
from evomal.tasks.metrics import Metric
from evomal.tasks.task import Task
from evomal.users_code import place_of_function

RIVALS: dict[Kind, tuple[str, ...]] = {
    "classification": ("ce", "label-smoothing", "sparse-label-smoothing", "focal", "focal-sparse-label-smoothing"),
    "multilabel": ("ce", "label-smoothing", "focal"),
    "regression": ("mse", "mae", "huber"),
}
"""The known losses of the paper by kind of task, the baseline first; `strong_rivals` has more. Absolute cross-entropy
is not among them: with its default weights it is cross-entropy."""

_STRONG: dict[Kind, tuple[str, ...]] = {
    "classification": ("ce", "label-smoothing", "focal", "gce", "sce", "nce-rce", "poly-1"),
    "multilabel": ("ce", "label-smoothing", "focal", "gce"),
    # The usual scales suit errors of standard deviation 1. Those of standardised targets are smaller, above all where
    # outliers have inflated the deviation that the targets were divided by: with smaller scales these losses are as
    # good as learned ones, or better, on two tables with outliers (docs/results/options.md, fresh.md).
    "regression": (
        "mse", "mae", "huber", "log-cosh", "cauchy", "cauchy:c=0.3", "welsch", "welsch:c=0.3", "tukey", "tukey:c=2",
    ),
}  # fmt: skip
_FOR_IMBALANCE = ("balanced-softmax", "balanced-softmax:tau=1.5", "class-weighted-ce")
_QUANTILE = re.compile(r"\bpinball:quantile=([0-9.e-]+)")
_IMBALANCE = 3.0  # the size of the largest training class divided by that of the smallest


def strong_rivals(*tasks: Task) -> tuple[str, ...]:
    """Returns the known losses that a learned loss should beat on a task, or on several of one kind.

    Those made for classes of unequal size are among them if the largest training class has more than three times as
    many rows as the smallest, on any of the tasks, and the loss of a quantile if the metric is of that quantile.

    Args:
        *tasks: The tasks.

    Returns:
        Names of losses, some with options (`tukey:c=2`), the baseline first.

    Example:
        >>> import numpy as np
        >>> from torch import nn
        >>> from evomal import Task
        >>> x, y = np.random.default_rng(0).normal(size=(50, 3)), np.arange(50.0)
        >>> strong_rivals(Task.from_arrays(x, y, model=lambda: nn.Linear(3, 1), kind="regression"))[:3]
        ('mse', 'mae', 'huber')
    """
    names = _STRONG[tasks[0].kind]
    if has_unequal_classes(*tasks):
        names += _FOR_IMBALANCE
    quantiles = [quantile for task in tasks for quantile in _QUANTILE.findall(task.metric.name)]
    # The loss of the median is half of mae.
    return names + tuple(f"quantile:quantile={one}" for one in dict.fromkeys(quantiles) if float(one) != 0.5)


def has_unequal_classes(*tasks: Task) -> bool:
    """Whether the largest training class has more than three times as many rows as the smallest, on any task."""
    shares = (class_priors(task) for task in tasks if task.kind == "classification")
    return any(priors.max() > _IMBALANCE * priors.min() for priors in shares)


def train_rivals(
    names: Sequence[str],
    executor: Executor,
    kind: Kind,
    *,
    seed: int | None = None,
    report: StageStepsDone | None = None,
) -> list[Fitness | Failure]:
    """The results of training with each of these losses, with the seed of the search or another.

    A name may have options, as in `tukey:c=2`. Losses with class priors take those of the executor's task.
    """
    losses = [specified_loss(name, kind=kind) for name in names]
    return executor.run("evaluate_losses", losses, seed=seed, report=report)


def require_baseline(name: str, result: Fitness | Failure, metric: Metric) -> None:
    """Stop if training or measuring with the task's own loss raises: then no candidate would do better.

    A baseline that diverges is no reason to stop, since another loss may not diverge.

    Raises:
        EvomalError: The model, the metric or a library raised; the sentence has the type, the message and the place.
        InputError: The metric has no finite value for a trained model whose outputs are finite.
    """
    if isinstance(result, Failure):
        sentence = f"the task cannot be trained with its own loss, {name}: {result.raised or result.sentence}"
        raise EvomalError(sentence) from (None if result.raised is None else result.raised.error)
    if result.is_undefined:
        place = place_of_function(metric.function)
        where = f" ({place})" if place else ""
        raise InputError(
            f"the metric {metric.name}{where} must be a finite number for a model trained with the task's own loss, "
            f"{name}, but {result.sentence}"
        )


class _NamedLossEvaluator(Evaluator):
    """Trains with the losses of the names that are proposed."""

    def losses_of(self, candidates: Sequence[Candidate]) -> list[TrialLoss]:
        return [named_loss(candidate.genome, kind=self._context.kind) for candidate in candidates]


BASELINE = Method(
    "baseline",
    "trains with the task's own loss and learns nothing",
    lambda context, _: FixedForm(TASK_LOSSES[context.kind]),
    _NamedLossEvaluator,
    {"evaluate_losses": None},
    searches_expressions=False,
)
