"""Rivals: the known losses that a learned one must beat, trained under the protocol of candidates."""

from collections.abc import Sequence

from evomal.engine import Fitness
from evomal.errors import EvomalError, InputError
from evomal.losses.catalogue import named_loss
from evomal.losses.contract import Kind
from evomal.methods.judging import Executor, Failure
from evomal.progress import StageStepsDone
from evomal.tasks.metrics import Metric
from evomal.users_code import place_of_function

RIVALS: dict[Kind, tuple[str, ...]] = {
    "classification": ("ce", "label-smoothing", "sparse-label-smoothing", "focal", "focal-sparse-label-smoothing"),
    "multilabel": ("ce", "label-smoothing", "focal"),
    "regression": ("mse", "mae", "huber"),
}
"""By the kind of task; the first is the baseline, the task's own loss. Absolute cross-entropy is none of them: with the
weights it has by default it is cross-entropy."""


def train_rivals(
    names: Sequence[str],
    executor: Executor,
    kind: Kind,
    *,
    seed: int | None = None,
    report: StageStepsDone | None = None,
) -> list[Fitness | Failure]:
    """What training with each of these losses came to, with the search's seed or another."""
    return executor.run(
        "evaluate_losses", [named_loss(name, kind=kind) for name in names], seed=seed, report=report
    )  # fmt: skip


def require_baseline(name: str, result: Fitness | Failure, metric: Metric) -> None:
    """Stop where the task's own loss cannot be trained with or judged: then no candidate can be, either.

    That its training diverges is no reason, as another loss may be one that does not.

    Raises:
        EvomalError: What the model, the metric or a library raised, with its type, message and place.
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
