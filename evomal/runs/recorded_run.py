"""A recorded search as data: its task, its candidates and its ending, as read from a run folder.

Generations are counted from 0, as in the record; figures and texts for people count from 1.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from evomal.checks import Kind
from evomal.errors import EvomalError, InputError
from evomal.extras import data_frame
from evomal.losses.files import find_loss
from evomal.losses.loss import Loss
from evomal.methods import METHODS, learned_loss
from evomal.methods.candidates import Candidate, State, best_of
from evomal.methods.several_tasks import ACROSS
from evomal.runs.finals import Final
from evomal.runs.generations import Generation, candidate_columns, summarised
from evomal.runs.leads import Scores
from evomal.runs.measured_rivals import Headroom
from evomal.runs.store import BEST_NAME
from evomal.runs.trials_of_tasks import TaskValues, recorded_rule
from evomal.tasks import Hardships
from evomal.tasks.datasets import DATASETS
from evomal.tasks.metric_display import ShownMetric, is_metric_of, recorded_direction
from evomal.text import plural
from evomal.units import Units

if TYPE_CHECKING:
    from pandas import DataFrame

UNKNOWN = "unknown"
"""The task, method or metric of a run that does not record it as `search` does."""

_ACTIVATIONS = ("identity", "softplus")
_DEFAULT_CLASSES = 10


class RunState(StrEnum):
    """How far a run got, or why it cannot be read."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    RUNNING = "running"
    DAMAGED = "damaged"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Run:
    """A search, as far as it has been recorded; times are in UTC."""

    folder: Path
    state: RunState
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Everything that the run records about its task, method, settings and versions; each of these parts is a mapping
    or missing."""
    candidates: tuple[Candidate, ...] = ()
    created: str = ""
    written: str | None = None
    """When the last candidates were recorded; None if there are none yet."""
    ending: str | None = None
    """Why the run is complete; None if it is not."""
    forced: tuple[str, ...] = ()
    """Differences in settings or versions despite which the run was resumed."""
    rivals: Mapping[str, float] = field(default_factory=dict)
    """Fitness of the known losses before the first generation, the baseline first; infinite if one diverged."""
    headroom: Headroom | None = None
    """The known losses on every rung; None if each was trained once, at the task's own learning rate."""
    final: Final | None = None
    """The best candidates and the rivals trained with fresh seeds; None if there is no complete final."""
    by_task: tuple[TaskValues, ...] = ()
    """The final on each of several tasks; empty for one task, and if fitness is the mean of their costs."""
    problem: str = ""
    """Why the run is damaged or unreadable."""
    own_kind: Kind | None = None
    """The kind of task of a search without a folder; None if the run was recorded, because `kind` then looks it up."""

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}, {self.state}, {plural(self.generations, 'generation')}, best={self.best!r})"

    @cached_property
    def computed(self) -> tuple[Candidate, ...]:
        """All candidates but elites, for which nothing was computed."""
        return tuple(candidate for candidate in self.candidates if not candidate.is_carried)

    @cached_property
    def trained(self) -> tuple[Candidate, ...]:
        """Candidates whose fitness was measured, each once, in the order of the record."""
        return tuple(candidate for candidate in self.computed if candidate.state is State.EVALUATED)

    @cached_property
    def comparable(self) -> tuple[Candidate, ...]:
        """Trained candidates that reached the longest rung; fitness on shorter rungs cannot be compared."""
        longest = max((len(candidate.rungs) for candidate in self.trained), default=0)
        return tuple(candidate for candidate in self.trained if len(candidate.rungs) == longest)

    @cached_property
    def best(self) -> Candidate | None:
        """The winner of the final, or without a final the candidate of lowest fitness."""
        return best_of(self.candidates) if self.final is None else self.final.winner[0]

    @property
    def scores(self) -> Scores | None:
        """The scores of the best candidate in the final; None without a final."""
        return None if self.final is None else self.final.winner[1]

    @property
    def generations(self) -> int:
        """The number of recorded generations."""
        return 1 + max((candidate.generation for candidate in self.candidates), default=-1)

    @cached_property
    def history(self) -> tuple[Generation, ...]:
        """The result of each recorded generation."""
        return summarised(self.candidates)

    def to_dataframe(self) -> "DataFrame":
        """Return the candidates as a pandas DataFrame, in the order of the record.

        Returns:
            One row per candidate: task, method and seed of the search; generation and index, from 0; origin, state and
            sentence; the loss as text with its weights and size; fitness, and the value of the metric, NaN where there
            is none; the number of rungs it was trained on, and its learning rate as a multiple of the task's own;
            the seconds it took.

        Raises:
            InputError: pandas is not installed.

        Example:
            >>> frame = load_run("runs/diabetes-evomal-0").to_dataframe()  # doctest: +SKIP
            >>> frame.groupby("generation").fitness.min()  # doctest: +SKIP
        """
        return data_frame(candidate_columns(self))

    @property
    def is_complete(self) -> bool:
        """Whether the search came to its end."""
        return self.ending is not None

    @cached_property
    def task(self) -> str:
        """Names, models and hardships of the tasks."""
        return " + ".join(map(_task_label, self._tasks)) or UNKNOWN

    @property
    def task_names(self) -> list[str]:
        """The names of the tasks alone."""
        return [str(task["name"]) for task in self._tasks]

    @property
    def method(self) -> str:
        """The name of the method."""
        return known_text(self.settings.get("method"))

    @property
    def seed(self) -> int | None:
        """The seed of the search."""
        seed = self.settings.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def metric(self) -> str:
        """The name of the metric behind fitness; across several tasks, the name of what `across_tasks` computes."""
        rule = recorded_rule(self.settings)
        return known_text(self._first_task.get("metric")) if rule is None else ACROSS[rule].name

    @cached_property
    def higher_is_better(self) -> bool:
        """Whether higher values of the metric are better.

        Older records do not say. For them it follows from the name of the metric, or for a user's own metric from the
        sign of the value in the loss file.
        """
        if recorded_rule(self.settings) is not None:
            return False
        recorded = self._first_task.get("higher_is_better", recorded_direction(self.metric))
        if isinstance(recorded, bool):
            return recorded
        loss = self._best_loss()
        provenance: Mapping[str, Any] = {} if loss is None else loss.provenance
        fitness, value = provenance.get("fitness"), provenance.get("value")
        return isinstance(fitness, float) and isinstance(value, float) and fitness != 0 and value == -fitness

    @property
    def hardware(self) -> str:
        """The device, and for a CPU the number of threads."""
        device, threads = known_text(self.settings.get("device")), self.settings.get("threads")
        return f"{device}, {plural(threads, 'thread')}" if device == "cpu" and isinstance(threads, int) else device

    @cached_property
    def kind(self) -> Kind | None:
        """The kind of task, from its dataset, the run's loss file or a metric that only one kind has; else None."""
        if self.own_kind is not None or self._dataset in DATASETS:
            return self.own_kind or DATASETS[self._dataset].kind
        if (loss := self._best_loss()) is not None:
            return loss.kind
        kinds = [kind for kind in get_args(Kind) if is_metric_of(self.metric, kind)]
        return kinds[0] if len(kinds) == 1 else None

    @cached_property
    def units(self) -> Units | None:
        """The units of the targets, from the run's loss file; None if targets are raw or there is no such file."""
        loss = self._best_loss()
        return None if loss is None else loss.units

    @property
    def classes(self) -> int:
        """The number of classes of the dataset; ten if the dataset is unknown."""
        return (DATASETS[self._dataset].classes if self._dataset in DATASETS else 0) or _DEFAULT_CLASSES

    def value(self, fitness: float) -> float:
        """The value of the metric for a fitness."""
        return self.shown_metric.value(fitness)

    @property
    def shown_metric(self) -> ShownMetric:
        """How fitness is shown to people."""
        return ShownMetric(self.metric, self.higher_is_better)

    def loss(self, candidate: Candidate) -> Loss | None:
        """The loss of a candidate; None if the kind of task is unknown, or the candidate is not a loss."""
        activation = self.settings.get("activation")
        if self.kind is None:
            return None
        try:
            return learned_loss(
                candidate.form,
                candidate.weights,
                kind=self.kind,
                activation=activation if activation in _ACTIVATIONS else _ACTIVATIONS[0],
            )
        except (EvomalError, LookupError, TypeError, ValueError):
            return None

    @cached_property
    def _tasks(self) -> list[Mapping[str, Any]]:
        """The tasks as `search` records them; what other programs wrote instead is left out."""
        found = self.settings.get("task", {}).values()
        return [task for task in found if isinstance(task, Mapping) and "name" in task]

    @property
    def _first_task(self) -> Mapping[str, Any]:
        return self._tasks[0] if self._tasks else {}

    @property
    def _dataset(self) -> str:
        first = next(iter(self.settings.get("task", {}).values()), None)
        name = first.get("dataset") if isinstance(first, Mapping) else None
        return name if isinstance(name, str) else ""

    def _best_loss(self) -> Loss | None:
        if self.own_kind is not None:
            return None
        try:
            return find_loss(self.folder / BEST_NAME)
        except EvomalError:
            return None


@dataclass(frozen=True)
class Runs:
    """The runs found in some folders."""

    runs: tuple[Run, ...]
    sentence: str = ""
    """Why there is no run."""
    notes: tuple[str, ...] = ()
    """Which runs could not be read, and in which settings runs of one method differ."""

    def by_method(self) -> dict[tuple[str, str], dict[str, list[Run]]]:
        """The runs by task and metric, then by method, in the order of `evomal methods`."""
        groups: dict[tuple[str, str], dict[str, list[Run]]] = {}
        rank = {method: place for place, method in enumerate(METHODS)}
        for run in sorted(
            self.runs, key=lambda run: (run.task, run.metric, rank.get(run.method, len(rank)), run.method)
        ):
            groups.setdefault((run.task, run.metric), {}).setdefault(run.method, []).append(run)
        return groups

    def only(self) -> Run:
        """The only run. Raises InputError if there is none, or several."""
        if not self.runs:
            raise InputError(self.sentence)
        if len(self.runs) > 1:
            first = self.runs[0].folder
            raise InputError(f"one run was expected but got {len(self.runs)}: name one of them, such as {first}")
        return self.runs[0]


def _task_label(task: Mapping[str, Any]) -> str:
    parts = [known_text(task["name"])]
    if "model" in task:
        parts.append(known_text(task["model"]))
    hardships = task.get("hardships")
    if isinstance(hardships, Mapping):
        none = dataclasses.asdict(Hardships())
        parts += [f"{name} {value}" for name, value in hardships.items() if value != none.get(name, value)]
    return ", ".join(parts)


def known_text(value: Any) -> str:
    """The value if it is a string that is not empty, else `UNKNOWN`."""
    return value if isinstance(value, str) and value else UNKNOWN
