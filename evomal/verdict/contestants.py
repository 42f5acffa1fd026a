"""Who takes part in a comparison: losses that are given, and losses that methods find."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from evomal.engine.choices import chosen_loss
from evomal.errors import InputError
from evomal.losses import CATALOGUE, ExpressionLoss, Loss
from evomal.losses.catalogue import is_specified, name_of
from evomal.losses.files import described
from evomal.methods import readable
from evomal.methods.baseline import TASK_LOSSES
from evomal.runs.canonical import checksum
from evomal.runs.run_loop import search
from evomal.runs.watching import Watcher
from evomal.settings import SearchSettings
from evomal.strategies.proposals import Genome
from evomal.tasks.task import Task

AnyLoss = nn.Module | str | os.PathLike[str]

STRONG = {
    "classification": ("label-smoothing", "focal"),
    "multilabel": ("focal",),
    "regression": ("huber", "mae"),
}
"""What a learned loss must beat besides the task's own loss."""

SEARCHES = "searches"
"""The folder of a comparison's searches, each in `METHOD-SEED` below it."""


@dataclass(frozen=True)
class Candidate:
    """One loss of a contestant: the only one, or what one search found."""

    loss: nn.Module
    formula: str
    identity: str
    """Text that two losses share only where they are the same."""


@dataclass(frozen=True)
class Contestant:
    """A name in the table, and its losses: one that is given, or one for each search seed."""

    name: str
    candidates: tuple[Candidate | None, ...]
    """None where a search found nothing."""
    fitnesses: tuple[float | None, ...] = ()
    """Of each search, on its own validation split."""

    def is_same(self, other: "Contestant") -> bool:
        """Whether its losses are the other's."""
        identities = [[found and found.identity for found in one.candidates] for one in (self, other)]
        return identities[0] == identities[1]

    @property
    def searched(self) -> bool:
        """Whether its losses come from searches."""
        return bool(self.fitnesses)


def task_loss(task: Task) -> Contestant:
    """The baseline: the task's own loss."""
    return given(TASK_LOSSES[task.kind], task)


def given(loss: AnyLoss, task: Task) -> Contestant:
    """A loss by its name, its file, or as a module."""
    module = chosen_loss(loss, task)
    if isinstance(loss, nn.Module):
        name = (isinstance(module, Loss) and name_of(module)) or type(module).__name__
    else:
        name = str(loss) if is_specified(str(loss)) else Path(loss).stem
    return Contestant(name, (candidate_of(module),))


def all_given(losses: Sequence[AnyLoss], task: Task) -> list[Contestant]:
    """The losses under names that tell them apart: files of one name get that of their folder as well."""
    found = [given(loss, task) for loss in losses]
    names = [contestant.name for contestant in found]
    alike = [names.count(name) > 1 for name in names]
    return [
        replace(contestant, name=_with_folder(loss, contestant.name)) if is_alike else contestant
        for loss, contestant, is_alike in zip(losses, found, alike, strict=True)
    ]


def _with_folder(loss: AnyLoss, name: str) -> str:
    if isinstance(loss, nn.Module) or is_specified(str(loss)):
        return name
    return f"{Path(loss).resolve().parent.name}/{name}"


def searched(
    task: Task | Sequence[Task], method: str, settings: SearchSettings, *, seeds: Sequence[int],
    folder: Path | None, watcher: Watcher | None = None,
) -> Contestant:  # fmt: skip
    """What a method finds for each search seed; each search is recorded in a folder of its own."""
    candidates: list[Candidate | None] = []
    fitnesses: list[float | None] = []
    for seed in seeds:
        place = None if folder is None else folder / f"{method}-{seed}"
        found = search(task, method=method, seed=seed, settings=settings, folder=place, watcher=watcher).best
        if found is None:
            candidates.append(None)
            fitnesses.append(None)
            continue
        candidates.append(_found(found.genome, found.weights, found.loss()))
        fitnesses.append(found.fitness)
    return Contestant(method, tuple(candidates), tuple(fitnesses))


def candidate_of(module: nn.Module) -> Candidate:
    """A module as a candidate; what is not evomal's own is known by its printed form."""
    identity = checksum(described(module)) if isinstance(module, Loss) else repr(module)
    return Candidate(module, formula_of(module), identity)


def formula_of(module: nn.Module) -> str:
    """A formula for people, or the name of the module's class."""
    if isinstance(module, ExpressionLoss):
        weights = None if module.weights is None else module.weights.tolist()
        return module.expression.formula(weights)
    if isinstance(module, Loss) and (name := name_of(module)) is not None:
        return CATALOGUE[name].formula
    return type(module).__name__


def _found(genome: Genome, weights: Sequence[float], loss: Loss) -> Candidate:
    return Candidate(loss, readable(genome, weights), candidate_of(loss).identity)


def require_distinct(contestants: Sequence[Contestant]) -> None:
    """Raise where two contestants have the same name."""
    names = [contestant.name for contestant in contestants]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"contestants must have different names but {name!r} stands twice")
