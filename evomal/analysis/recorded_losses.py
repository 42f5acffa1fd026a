"""Losses to use again, made of what a run recorded."""

from collections.abc import Mapping
from typing import Any, get_args

from evomal.analysis.chosen_runs import Run
from evomal.errors import EvomalError
from evomal.losses import load_loss
from evomal.losses.contract import Kind, Loss
from evomal.methods import learned_loss
from evomal.runs import RecordedCandidate
from evomal.runs.candidates import genome_from
from evomal.runs.run_loop import BEST_NAME
from evomal.tasks.datasets import DATASETS
from evomal.tasks.metrics import is_metric_of
from evomal.units import Units

_ACTIVATIONS = ("identity", "softplus")
_USUAL_CLASSES = 10


def kind_of(run: Run) -> Kind | None:
    """What the task asks for: by its dataset, by the run's loss file, or by a metric that one kind alone has."""
    dataset = _dataset(run)
    if dataset in DATASETS:
        return DATASETS[dataset].kind
    try:
        return load_loss(run.folder / BEST_NAME).kind
    except EvomalError:
        kinds = [kind for kind in get_args(Kind) if is_metric_of(run.metric, kind)]
        return kinds[0] if len(kinds) == 1 else None


def units_of(run: Run) -> Units | None:
    """Those of the task's targets, which the run's loss file has; None where they are raw, or there is no such file."""
    try:
        return load_loss(run.folder / BEST_NAME).units
    except EvomalError:
        return None


def classes_of(run: Run) -> int:
    """How many the task has where that is known, else ten: as many as shapes are drawn for."""
    dataset = _dataset(run)
    return (DATASETS[dataset].classes if dataset in DATASETS else 0) or _USUAL_CLASSES


def loss_of(run: Run, candidate: RecordedCandidate) -> Loss | None:
    """The loss of a candidate; None where its kind is not known or a stranger recorded what is no loss."""
    kind, activation = kind_of(run), run.settings.get("activation")
    if kind is None:
        return None
    try:
        return learned_loss(
            genome_from(candidate.genome),
            candidate.weights,
            kind=kind,
            activation=activation if activation in _ACTIVATIONS else _ACTIVATIONS[0],
        )
    except (EvomalError, LookupError, TypeError, ValueError):
        return None


def _dataset(run: Run) -> str:
    """Of the first task; empty where none is recorded as `search` does."""
    tasks = run.settings.get("task")
    first: Any = next(iter(tasks.values()), None) if isinstance(tasks, Mapping) else None
    name = first.get("dataset") if isinstance(first, Mapping) else None
    return name if isinstance(name, str) else ""
