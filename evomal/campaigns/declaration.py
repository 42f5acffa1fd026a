"""What a campaign measures: a TOML file with tasks, methods, presets, losses and seeds, read strictly."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from evomal.checks import MOST_STEPS, finite_number, path_to, suggestion, unknown_name, whole_number
from evomal.engine.procedures import require_fitting, split_procedure
from evomal.errors import InputError
from evomal.losses import CATALOGUE
from evomal.losses.catalogue import is_specified, specified_loss
from evomal.losses.files import is_loss_file
from evomal.methods import method_named
from evomal.settings import SearchSettings
from evomal.settings.fields import PRESETS
from evomal.settings.texts import document, rule_of
from evomal.tasks import TASKS, Hardships, Task, load_task, task_from_file
from evomal.tasks.datasets import DATASETS
from evomal.tasks.loading import loadable_model
from evomal.text import short_repr

STRONG = "strong"
"""Among the losses of a campaign: the known losses that fit the task."""
_MOST_TASKS, _MOST_NAMES, _MOST_SEEDS = 100, 100, 1_000
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")
_HARDSHIPS = ("label_noise", "asymmetric", "outliers", "imbalance", "fraction")

_Names = Annotated[tuple[str, ...], Field(strict=False, max_length=_MOST_NAMES)]
_Text = Annotated[str, Field(min_length=1, max_length=2_000)]


SEARCH_FIGURES = ("search-curves", "filters", "run-times")
"""Figures that are drawn from the records of searches."""
TRAINED_FIGURES = ("training-curves", "landscapes", "representations", "learning-rates")
"""Figures that need trainings of their own."""


class FigurePlan(BaseModel):
    """The figures of a task, and what those that need trainings show beside the learned losses."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    kinds: _Names = SEARCH_FIGURES
    losses: _Names | None = None
    """Known losses; None: those of the task, without `strong` and procedures."""
    seeds: Annotated[int, Field(ge=1, le=_MOST_SEEDS)] = 1
    """Trainings with each loss; representations show the first."""
    rates: Annotated[tuple[float, ...], Field(strict=False, max_length=_MOST_NAMES)] = ()
    """The learning rates of `learning-rates`."""
    rate_steps: Annotated[int, Field(ge=1, le=MOST_STEPS)] | None = None
    """The training steps of `learning-rates`; None: those of the comparison."""

    @model_validator(mode="after")
    def _are_known(self) -> Self:
        for name in self.kinds:
            if name not in (*SEARCH_FIGURES, *TRAINED_FIGURES):
                raise unknown_name("figure", name, (*SEARCH_FIGURES, *TRAINED_FIGURES))
        for name in self.losses or ():
            specified_loss(name)
        if ("learning-rates" in self.kinds) != bool(self.rates):
            raise InputError(f"rates must be given with the figure learning-rates, and only then, but got {self.rates}")
        for rate in self.rates:
            finite_number("rates", rate, above=0)
        return self


class TaskProtocol(BaseModel):
    """How the losses of a task are searched for and compared; a task takes what it leaves out from the campaign."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    presets: Annotated[_Names, Field(min_length=1)] = ("quick",)
    """Presets of the searches; every method searches with each of them."""
    methods: _Names = ()
    """Methods that search; the baseline takes part anyway."""
    losses: _Names = (STRONG,)
    """Known losses; `strong` stands for those that fit the task. A procedure may follow one: `ce+temperature`."""
    learned_on: _Names = ()
    """Other tasks of the campaign whose learned losses are compared here, too."""
    search_seeds: Annotated[int, Field(ge=1, le=_MOST_SEEDS)] = 1
    """The number of searches of each method and preset; seeds count from 0."""
    seeds: Annotated[int, Field(ge=1, le=_MOST_SEEDS)] = 5
    """The number of evaluation seeds, which no search uses."""
    tune_lr: Annotated[int, Field(ge=0, le=_MOST_SEEDS)] = 9
    """The number of learning rates that are tried for every loss; 0 for the task's own only."""
    tune_decay: bool = False
    """Whether the weight decay of every loss is tuned, too."""
    rescale: bool = True
    """Whether every loss is also trained with the baseline's gradient at the start."""
    settings: dict[str, Any] = {}
    """Settings of searches and final trainings that differ from the preset."""
    evaluation: dict[str, Any] = {}
    """Settings of the final trainings alone, such as `final_steps`."""
    figures: FigurePlan = FigurePlan()
    """The figures, and what they show."""

    @field_validator("presets", "methods", "losses", "learned_on")
    @classmethod
    def _are_known(cls, names: tuple[str, ...], about: ValidationInfo) -> tuple[str, ...]:
        for place, name in enumerate(names):
            if name in names[:place]:
                raise InputError(f"names must be different but {name!r} is given twice")
            if about.field_name == "methods":
                method_named(name)
            elif about.field_name == "presets" and name not in PRESETS:
                raise unknown_name("preset", name, PRESETS)
            elif about.field_name == "losses" and name != STRONG:
                trained = str(split_procedure(name)[0])
                if not _names_loss_file(trained):
                    specified_loss(trained)
        return names

    @model_validator(mode="after")
    def _settings_are_known(self) -> Self:
        for name in (*self.settings, *self.evaluation):
            if name not in SearchSettings.model_fields:
                raise unknown_name("setting", name, SearchSettings.model_fields)
        for preset in self.presets:
            SearchSettings.preset(preset, **self.settings).with_changes(**self.evaluation)
        return self

    @model_validator(mode="after")
    def _decay_can_be_tuned(self) -> Self:
        if self.tune_decay and not self.tune_lr:
            raise InputError("tune_decay needs tune_lr to be at least 1 but got 0")
        trained = [kind for kind in self.figures.kinds if kind in TRAINED_FIGURES]
        if self.tune_decay and trained:
            raise InputError(f"tune_decay cannot be combined with {trained[0]}, which trains with the task's own decay")
        return self


class CampaignTask(TaskProtocol):
    """One task of a campaign."""

    name: str
    """The name of its folder and of its cells."""
    title: _Text | None = None
    """What tables call it; its name by default."""
    task: _Text
    """A built-in task, or `file.py:function`, where the file lies beside the campaign."""
    model: _Text | None = None
    metric: _Text | None = None
    label_noise: float = 0.0
    asymmetric: bool = False
    outliers: float = 0.0
    imbalance: float = 1.0
    fraction: float = 1.0

    @field_validator("name")
    @classmethod
    def _is_a_file_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            rule = "must be 1 to 60 lower-case letters, digits, dots, dashes and underscores, a letter or digit first,"
            raise InputError(f"name {rule} but got {short_repr(name)}")
        return name

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        hardships = self.hardships
        if not self.names_python_file:
            if self.task not in TASKS:
                raise unknown_name("task", self.task, TASKS)
            loadable_model(self.task, self.model, metric=self.metric, hardships=hardships)
            kind = DATASETS[self.task].kind
            for loss, procedure in map(split_procedure, self.losses):
                name = str(loss).partition(":")[0]
                if name in CATALOGUE and kind not in (kinds := CATALOGUE[name].kinds):
                    raise InputError(f"the task is {kind}, but {loss} is for {', '.join(kinds)}")
                if procedure is not None:
                    require_fitting(procedure, kind)
        elif self.model is not None or hardships != Hardships():
            raise InputError(f"{self.task} brings its own model and data: model and hardships are for built-in tasks")
        return self

    @property
    def hardships(self) -> Hardships:
        """What is done to the training data."""
        return Hardships(**{name: getattr(self, name) for name in _HARDSHIPS})

    @property
    def names_python_file(self) -> bool:
        """Whether a Python file is run to make the task."""
        return ":" in self.task

    def load(self, folder: Path, data: Path | None = None) -> Task:
        """The task itself.

        Args:
            folder: The folder of the campaign's file, where Python files lie.
            data: The folder of the datasets.
        """
        if self.names_python_file:
            path, _, function = self.task.rpartition(":")
            found = task_from_file(f"{folder / path}:{function}")
            return found if self.metric is None else found.judged_by(self.metric)
        return load_task(self.task, self.model, data=data, metric=self.metric, hardships=self.hardships)


class Campaign(TaskProtocol):
    """A table that is to be measured.

    Example:
        >>> Campaign(title="Two losses", tasks=[{"name": "small", "task": "diabetes"}], losses=["huber"]).tasks[0].seeds
        5
    """

    title: _Text
    about: _Text = ""
    """What the table is to settle, in a sentence or two."""
    hardware: _Text = "any"
    """The machine that it is planned for."""
    tasks: Annotated[tuple[CampaignTask, ...], Field(strict=False, min_length=1, max_length=_MOST_TASKS)]
    _file: Path = PrivateAttr(default=Path("campaign.toml"))

    @model_validator(mode="before")
    @classmethod
    def _complete_tasks(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("tasks"), list | tuple):
            return values
        common = {name: value for name, value in values.items() if name in TaskProtocol.model_fields}
        tasks = [_completed(task, common) if isinstance(task, dict) else task for task in values["tasks"]]
        return {**values, "tasks": tasks}

    @model_validator(mode="after")
    def _tasks_fit_together(self) -> Self:
        names = [task.name for task in self.tasks]
        for place, name in enumerate(names):
            if name in names[:place]:
                raise InputError(f"tasks must have different names but {name!r} is the name of two")
        for task in self.tasks:
            for other in task.learned_on:
                if other == task.name:
                    raise InputError(f"{task.name}: learned_on must name other tasks but names {other!r} itself")
                if other not in names:
                    raise InputError(f"{task.name}: learned_on: there is no task {other!r}: {suggestion(other, names)}")
        return self

    @property
    def name(self) -> str:
        """The name of its file, without the ending."""
        return self._file.stem

    @property
    def folder(self) -> Path:
        """The folder of its file, where Python files of tasks lie."""
        return self._file.parent

    @property
    def python_files(self) -> list[str]:
        """The tasks that are made by Python files, as `file.py:function`."""
        return [task.task for task in self.tasks if task.names_python_file]

    def reduced(
        self, *, methods: Sequence[str] | None = None, presets: Sequence[str] | None = None,
        search_seeds: int | None = None, transfer: bool = True,
    ) -> "Campaign":  # fmt: skip
        """The campaign with some of its methods and presets, and the first searches of each, for a first impression.

        What it measures is part of the whole campaign, which continues from it in the same folder.

        Args:
            methods: Names of methods, which must be among those of its tasks; None: all.
            presets: Names of presets, likewise; tasks that have none of them are not searched on.
            search_seeds: The most searches of each method and preset; None: all.
            transfer: Whether losses that are learned on other tasks are compared.

        Raises:
            InputError: No task has such a method or preset, or the number is less than 1.
        """
        for kind, wanted in (("method", methods), ("preset", presets)):
            known = list(dict.fromkeys(name for task in self.tasks for name in getattr(task, f"{kind}s")))
            for name in wanted or ():
                if name not in known:
                    raise unknown_name(f"{kind} of this campaign", name, known)
        if search_seeds is not None:
            whole_number("search_seeds", search_seeds, at_least=1)
        tasks = []
        for task in self.tasks:
            of_presets = tuple(name for name in task.presets if presets is None or name in presets)
            kept = tuple(name for name in task.methods if of_presets and (methods is None or name in methods))
            fewer = task.search_seeds if search_seeds is None else min(task.search_seeds, search_seeds)
            others = task.learned_on if transfer else ()
            changes = {"methods": kept, "presets": of_presets or task.presets, "search_seeds": fewer}
            tasks.append(task.model_copy(update={**changes, "learned_on": others}))
        return self.model_copy(update={"tasks": tuple(tasks)})

    def chosen(self, names: Sequence[str] | None) -> frozenset[str]:
        """The names of some of its tasks and of those that their losses are learned on; None: of all."""
        known = [task.name for task in self.tasks]
        names = known if names is None else names
        if not names:
            raise InputError("at least one task must be named but got none")
        for name in names:
            if name not in known:
                raise unknown_name("task", name, known)
        return frozenset([*names, *(other for task in self.tasks if task.name in names for other in task.learned_on)])


def _names_loss_file(text: str) -> bool:
    return is_loss_file(text) and not is_specified(text)


def _completed(task: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    """The task with what the campaign says for all tasks; settings are merged, everything else is replaced."""
    completed = {**common, **task}
    for name in ("settings", "evaluation"):
        first, own = common.get(name, {}), task.get(name, {})
        if isinstance(first, dict) and isinstance(own, dict):
            completed[name] = {**first, **own}
    return completed


def read_campaign(path: str | os.PathLike[str]) -> Campaign:
    """Read a campaign from its TOML file.

    Args:
        path: The file; see docs/campaigns.md for its keys.

    Returns:
        The campaign, named after the file, every task with all its settings.

    Raises:
        InputError: The file cannot be read, or something in it breaks a rule.

    Example:
        >>> read_campaign("campaigns/paper.toml").tasks[0].name  # doctest: +SKIP
        'diabetes'
    """
    file = path_to("path", path)
    values = document(file)
    try:
        found = Campaign.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{file}: {_sentence(error)}") from None
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
    found._file = file
    return found


def _sentence(error: ValidationError) -> str:
    """The first thing that is wrong: the place, the rule, the value received."""
    first = error.errors(include_url=False)[0]
    place, kind = ".".join(map(str, first["loc"])), first["type"]
    if kind == "value_error":
        return f"{place}: {first['ctx']['error']}" if place else str(first["ctx"]["error"])
    if kind == "missing":
        return f"{place} is missing"
    if kind == "extra_forbidden":
        known = CampaignTask if place.startswith("tasks.") else Campaign
        return f"there is no key {place!r}: {suggestion(str(first['loc'][-1]), known.model_fields, 'keys')}"
    if kind in ("too_short", "too_long"):
        return f"{place} must have {'at least 1 entry' if kind == 'too_short' else f'at most {_MOST_TASKS} entries'}"
    if kind == "string_too_long":
        return f"{place} must have at most {first['ctx']['max_length']:,} characters but has {len(first['input']):,}"
    return f"{place} must be {rule_of(first)} but got {short_repr(first['input'])}"
