"""Who takes part in a comparison: losses that are given, and losses that methods find."""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from evomal.engine.resolve import loss_for_task, resolve_loss
from evomal.errors import InputError
from evomal.losses import CATALOGUE, ExpressionLoss, Loss
from evomal.losses.catalogue import is_specified, name_of
from evomal.methods import readable
from evomal.methods.baseline import TASK_LOSSES
from evomal.methods.candidates import Genome
from evomal.runs.display import SearchListener
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.verdict.loss_names import identity_of, is_described, module_name, told_apart

AnyLoss = nn.Module | str | os.PathLike[str]
Losses = Mapping[str, AnyLoss] | Sequence[AnyLoss]
"""Losses by names of the caller's choice, or losses that are named by what they are."""

STRONG = {
    "classification": ("label-smoothing", "focal"),
    "multilabel": ("focal",),
    "regression": ("huber", "mae"),
}
"""What a learned loss must beat besides the task's own loss."""

SEARCHES = "searches"
"""The folder of a comparison's searches, each in `METHOD-SEED` below it."""


@dataclass(frozen=True)
class ComparedLoss:
    """One loss of a contestant: the only one, or what one search found."""

    loss: nn.Module
    formula: str
    identity: str
    """Text that two losses share only where they are the same."""


@dataclass(frozen=True)
class Contestant:
    """A name in the table, and its losses: one that is given, or one for each search seed."""

    name: str
    losses: tuple[ComparedLoss | None, ...]
    """None where a search found nothing."""
    fitnesses: tuple[float | None, ...] = ()
    """Of each search, on its own validation split."""

    def is_same(self, other: "Contestant") -> bool:
        """Whether its losses are the other's."""
        identities = [[found and found.identity for found in one.losses] for one in (self, other)]
        return identities[0] == identities[1]

    @property
    def searched(self) -> bool:
        """Whether its losses come from searches."""
        return bool(self.fitnesses)


def baseline_contestant(task: Task) -> Contestant:
    """The baseline: the task's own loss."""
    return given(TASK_LOSSES[task.kind], task)


def given(loss: AnyLoss, task: Task) -> Contestant:
    """A loss by its name, its file, or as a module."""
    module = resolve_loss(loss, task)
    if isinstance(loss, nn.Module):
        name = module_name(module)
    else:
        name = str(loss) if is_specified(str(loss)) else Path(loss).stem
    return Contestant(name, (compared_loss(module),))


def given_contestants(
    losses: Losses, task: Task, *, beside: Contestant | None = None, taken: Sequence[str] = ()
) -> list[Contestant]:  # fmt: skip
    """The losses that take part, under names that tell them apart.

    Args:
        losses: A mapping from names to losses, whose names are kept; or a sequence of losses, of which those with equal
            names get what sets them apart: files the name of their folder, modules their options or a number.
        task: The task they are for.
        beside: The baseline, which takes part anyway and so is left out where it is among the losses.
        taken: Names that others have: the methods of a comparison.

    Returns:
        One contestant per loss, in their order.

    Raises:
        InputError: A name of the mapping is taken or empty, or a loss is given twice.
    """
    if isinstance(losses, str | os.PathLike | nn.Module):
        raise InputError(f"losses must be a list of losses, or a mapping from names to them, but got {losses!r:.60}")
    listed = list(losses.values()) if isinstance(losses, Mapping) else list(losses)
    found = _numbered([given(loss, task) for loss in listed])
    if isinstance(losses, Mapping):
        return _named(dict(zip(losses, found, strict=True)), beside, taken)
    _require_each_once(listed)
    short = [contestant.name for contestant in found]
    named = [
        replace(contestant, name=_with_folder(loss, contestant.name))
        if short.count(contestant.name) > 1
        else contestant
        for loss, contestant in zip(listed, found, strict=True)
    ]
    base = [] if beside is None else [beside]
    everyone = [*base, *(one for one in named if beside is None or not one.is_same(beside))]
    modules = [compared.loss for one in everyone for compared in one.losses if compared is not None]
    names = told_apart([one.name for one in everyone], modules, taken=taken)
    return [replace(one, name=name) for one, name in zip(everyone, names, strict=True)][len(base) :]


def _named(
    contestants: Mapping[str, Contestant], beside: Contestant | None, taken: Sequence[str]
) -> list[Contestant]:  # fmt: skip
    """The contestants under the caller's names, the baseline under its own left out."""
    found = []
    for name, contestant in contestants.items():
        if beside is not None and name == beside.name and contestant.is_same(beside):
            continue
        if not str(name).strip() or name in (*taken, beside and beside.name):
            rule = "must be texts that neither a method nor the task's own loss has"
            raise InputError(f"names of losses {rule} but got {name!r}")
        found.append(replace(contestant, name=str(name)))
    return found


def _require_each_once(losses: Iterable[AnyLoss]) -> None:
    seen: set[object] = set()
    for loss in losses:
        key: object
        if isinstance(loss, nn.Module):
            key, shown = id(loss), f"the same {type(loss).__name__}"
        else:
            key, shown = str(loss) if is_specified(str(loss)) else Path(loss).resolve(), str(loss)
        if key in seen:
            raise InputError(f"losses must be different but {shown} is given twice")
        seen.add(key)


def _numbered(contestants: Sequence[Contestant]) -> list[Contestant]:
    """The same, with numbers in the identities of modules that look alike: they may compute something different."""
    count: Counter[str] = Counter()
    found = []
    for contestant in contestants:
        (compared,) = contestant.losses
        assert compared is not None  # a given loss is there
        count[compared.identity] += 1
        if count[compared.identity] > 1 and not is_described(compared.loss):
            compared = replace(compared, identity=f"{compared.identity} {count[compared.identity]}")
        found.append(replace(contestant, losses=(compared,)))
    return found


def _with_folder(loss: AnyLoss, name: str) -> str:
    if isinstance(loss, nn.Module) or is_specified(str(loss)):
        return name
    return f"{Path(loss).resolve().parent.name}/{name}"


def searched(
    task: Task | Sequence[Task], method: str, settings: SearchSettings, *, on: Task, seeds: Sequence[int],
    folder: Path | None, listener: SearchListener | None = None, announce: Callable[[str], None] | None = None,
    number: int = 1, of: int | None = None,
) -> Contestant:  # fmt: skip
    """What a method finds for each search seed, as it is used `on` the task of the comparison.

    Each search is recorded in a folder of its own. `announce` is called before each search; `number` is that of the
    first one, among `of` in all.
    """
    losses: list[ComparedLoss | None] = []
    fitnesses: list[float | None] = []
    for place_in_order, seed in enumerate(seeds, number):
        if announce is not None:
            announce(f"searching with {method}, seed {seed} (search {place_in_order} of {of or len(seeds)})")
        place = None if folder is None else folder / f"{method}-{seed}"
        found = search(task, method=method, seed=seed, settings=settings, folder=place, listener=listener).best
        if found is None:
            losses.append(None)
            fitnesses.append(None)
            continue
        losses.append(_found(found.genome, found.weights, loss_for_task(found.loss(), on)))
        fitnesses.append(found.fitness)
    return Contestant(method, tuple(losses), tuple(fitnesses))


def compared_loss(module: nn.Module) -> ComparedLoss:
    """A module as a compared."""
    return ComparedLoss(module, formula_of(module), identity_of(module))


def formula_of(module: nn.Module) -> str:
    """A formula for people, or the name of the module's class."""
    if isinstance(module, ExpressionLoss):
        weights = None if module.weights is None else module.weights.tolist()
        return module.expression.formula(weights)
    if isinstance(module, Loss) and (name := name_of(module)) is not None:
        return CATALOGUE[name].formula
    return type(module).__name__


def _found(genome: Genome, weights: Sequence[float], loss: nn.Module) -> ComparedLoss:
    return ComparedLoss(loss, readable(genome, weights), compared_loss(loss).identity)


def require_distinct(contestants: Sequence[Contestant]) -> None:
    """Raise where two contestants have the same name."""
    names = [contestant.name for contestant in contestants]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"contestants must have different names but {name!r} stands twice")
