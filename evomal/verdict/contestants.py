"""The losses of a comparison, each under a name of its own."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from evomal.engine.behaviour import loss_values
from evomal.engine.full_training import AnyLoss
from evomal.engine.procedures import Procedure, require_fitting, split_procedure
from evomal.engine.resolve import resolve_loss
from evomal.engine.task_data import digest
from evomal.errors import InputError
from evomal.losses import Loss
from evomal.losses.catalogue import TASK_LOSSES, is_specified
from evomal.losses.files import loss_document
from evomal.runs.canonical import checksum
from evomal.tasks.task import Task
from evomal.text import short_repr

Losses = Mapping[str, AnyLoss] | Sequence[AnyLoss]
"""Losses under names of the caller's choice, or losses that are named after what they are."""

_LONGEST_OPTIONS = 40  # characters; a number is easier to read than longer options
_MOST_NUMBERS = 4  # of a tensor
_PLAIN = (bool, int, float, str)


@dataclass(frozen=True)
class ComparedLoss:
    """One loss of a contestant: the only one, or the result of one search."""

    loss: nn.Module
    formula: str
    identity: str
    """Text that two losses share only if they are the same."""
    procedure: Procedure | None = None
    """What is done besides training with the loss."""

    @classmethod
    def of(
        cls, module: nn.Module, formula: str | None = None, procedure: Procedure | None = None, *, task: Task
    ) -> "ComparedLoss":
        """The loss with its formula and its identity on a task."""
        shown = formula or formula_of(module)
        return cls(
            module, shown if procedure is None else f"{shown} + {procedure}", identity_of(module, task), procedure
        )

    @property
    def key(self) -> str:
        """Text that two losses share only if they, and their procedures, are the same."""
        return self.identity if self.procedure is None else f"{self.identity} + {self.procedure}"


@dataclass(frozen=True)
class Contestant:
    """A name in the table and its losses: one that is given, or one for each search seed."""

    name: str
    losses: tuple[ComparedLoss | None, ...]
    """None where a search found nothing."""
    fitnesses: tuple[float | None, ...] = ()
    """The fitness of each search's loss on its own validation split; empty for a loss that is given."""

    @property
    def found(self) -> list[ComparedLoss]:
        """The losses without the gaps of searches that found nothing."""
        return [loss for loss in self.losses if loss is not None]

    @property
    def is_learned(self) -> bool:
        """Whether a search found the losses, now or before."""
        given = [loss.loss for loss in self.found]
        return bool(self.fitnesses) or any(isinstance(loss, Loss) and loss.is_learned for loss in given)

    def is_same(self, other: "Contestant") -> bool:
        """Whether both have the same losses."""
        return [loss.key for loss in self.found] == [loss.key for loss in other.found]


def baseline_contestant(task: Task) -> Contestant:
    """The baseline: the task's own loss."""
    return given_contestant(TASK_LOSSES[task.kind], task)


def given_contestant(loss: AnyLoss, task: Task) -> Contestant:
    """A loss that is given by its name, its file, or as a module; a procedure may follow name or file."""
    trained, procedure = split_procedure(loss)
    module = resolve_loss(trained, task)
    if procedure is not None:
        require_fitting(procedure, task.kind)
    if isinstance(trained, nn.Module):
        name = _module_name(module)
    else:
        name = str(trained) if is_specified(str(trained)) else Path(trained).stem
    followed = "" if procedure is None else f"+{procedure}"
    return Contestant(f"{name}{followed}", (ComparedLoss.of(module, procedure=procedure, task=task),))


def given_contestants(
    losses: Losses, task: Task, *, baseline: Contestant | None = None, taken: Sequence[str] = ()
) -> list[Contestant]:
    """One contestant per loss, all under different names.

    Args:
        losses: A mapping from names to losses, whose names are kept; or a sequence. In a sequence, losses with equal
            names are distinguished: files by the name of their folder, modules by their options or a number.
        task: The task they are for.
        baseline: The baseline, which takes part anyway and is therefore left out if it is among the losses.
        taken: Names that others have: the methods of a comparison.

    Returns:
        The contestants, in the order of the losses.

    Raises:
        InputError: If a name of the mapping is taken or empty, or a loss is given twice.
    """
    if not isinstance(losses, list | tuple | Mapping):
        received = short_repr(losses)
        raise InputError(f"losses must be a list of losses, or a mapping from names to them, but got {received}")
    listed = list(losses.values()) if isinstance(losses, Mapping) else list(losses)
    found = _numbered([given_contestant(loss, task) for loss in listed])
    if isinstance(losses, Mapping):
        return _named(dict(zip(losses, found, strict=True)), baseline, taken)
    _require_each_once(listed)
    names = [contestant.name for contestant in found]
    found = [
        replace(one, name=_with_folder(loss, one.name)) if names.count(one.name) > 1 else one
        for loss, one in zip(listed, found, strict=True)
    ]
    base = [] if baseline is None else [baseline]
    everyone = [*base, *(one for one in found if baseline is None or not one.is_same(baseline))]
    modules = [loss.loss for one in everyone for loss in one.found]
    distinct = distinct_names([one.name for one in everyone], modules, taken=taken)
    return [replace(one, name=name) for one, name in zip(everyone, distinct, strict=True)][len(base) :]


def require_distinct_names(names: Sequence[str]) -> None:
    """Raise InputError if two contestants have the same name."""
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"contestants must have different names but {name!r} is the name of {count}")


def formula_of(module: nn.Module) -> str:
    """A formula for people, or the name of the module's class."""
    return module.formula() if isinstance(module, Loss) else type(module).__name__


def identity_of(module: nn.Module, task: Task) -> str:
    """Text that two losses share only if their documents, or all that can be seen of them, are equal.

    What cannot be seen, such as the code of a user's loss, shows in the values that it has for outputs of the task.
    """
    if (description := _description(module)) is not None:
        return checksum(description)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    seen = {
        "class": type(module).__qualname__,
        "text": repr(module),
        "attributes": {
            f"{place}.{name}": repr(value)
            for place, part in module.named_modules()
            for name, value in _attributes(part).items()
        },
        "losses": [description for part in module.modules() if (description := _description(part)) is not None],
        "tensors": digest(tensors.values(), " ".join(tensors)),
        "values": loss_values(module, task),
    }
    return checksum(seen)


def distinct_names(names: Sequence[str], modules: Sequence[nn.Module], *, taken: Sequence[str] = ()) -> list[str]:
    """The names, with additions that distinguish losses of equal names.

    The first of them keeps its name; the options in which another one differs from it follow in brackets: `ce` and
    `ce (weight=[1, 2])`. If no option differs, or the options are long, a number follows: `learned` and `learned 2`.

    Args:
        names: One name per loss; some may be equal.
        modules: The losses.
        taken: Names that others have.

    Returns:
        As many names, all different, none of them taken.
    """
    grouped: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        grouped.setdefault(name, []).append(place)
    found = list(names)
    for name, places in grouped.items():
        if len(places) > 1:
            for place, options in zip(places, _differing_options([modules[place] for place in places]), strict=True):
                found[place] = f"{name} ({options})" if options else name
    used = set(taken)
    for place, name in enumerate(found):
        number = 1
        while found[place] in used:
            number += 1
            found[place] = f"{name} {number}"
        used.add(found[place])
    return found


def _named(
    contestants: Mapping[str, Contestant], baseline: Contestant | None, taken: Sequence[str]
) -> list[Contestant]:  # fmt: skip
    """The contestants under the caller's names, without the baseline under its own name."""
    found = []
    reserved = [*taken, *([] if baseline is None else [baseline.name])]
    for name, contestant in contestants.items():
        if baseline is not None and name == baseline.name and contestant.is_same(baseline):
            continue
        if not str(name).strip() or name in reserved:
            rule = "must not be empty, or the name of a method or the baseline,"
            raise InputError(f"names of losses {rule} but got {name!r}")
        found.append(replace(contestant, name=str(name)))
    return found


def _require_each_once(losses: Sequence[AnyLoss]) -> None:
    seen: set[object] = set()
    for loss in losses:
        key: object
        if isinstance(loss, nn.Module):
            key, shown = id(loss), f"the same {type(loss).__name__}"
        else:
            trained, procedure = split_procedure(loss)
            is_name = is_specified(str(trained))
            key, shown = (str(trained) if is_name else Path(str(trained)).resolve(), procedure), str(loss)
        if key in seen:
            raise InputError(f"losses must be different but {shown} is given twice")
        seen.add(key)


def _numbered(contestants: Sequence[Contestant]) -> list[Contestant]:
    """The same, with numbers in the identities of modules that look alike: they may compute something different."""
    count: Counter[str] = Counter()
    found = []
    for contestant in contestants:
        (loss,) = contestant.found
        count[loss.key] += 1
        if count[loss.key] > 1 and _description(loss.loss) is None:
            loss = replace(loss, identity=f"{loss.identity} {count[loss.key]}")
        found.append(replace(contestant, losses=(loss,)))
    return found


def _with_folder(loss: AnyLoss, name: str) -> str:
    if isinstance(loss, nn.Module) or is_specified(str(split_procedure(loss)[0])):
        return name
    return f"{Path(loss).resolve().parent.name}/{name}"


def _module_name(module: nn.Module) -> str:
    """The name of a loss that is given as a module: its own, `learned`, or its class."""
    if not isinstance(module, Loss):
        return type(module).__name__
    return module.catalogue_name or ("learned" if module.is_learned else type(module).__name__)


def _description(module: nn.Module) -> dict[str, Any] | None:
    """What a loss file would hold; None for a module that a file cannot hold completely."""
    try:
        return loss_document(module) if isinstance(module, Loss) else None
    except InputError:  # a user's subclass, whose additions a file cannot hold
        return None


def _differing_options(modules: Sequence[nn.Module]) -> list[str]:
    """For each module, the options in which it differs from the first; empty if they are too long."""
    options = [_options(module) for module in modules]
    first = options[0]
    texts = [
        ", ".join(f"{name}={_shown(value)}" for name, value in own.items() if value != first.get(name))
        for own in options
    ]
    return [text if len(text) <= _LONGEST_OPTIONS else "" for text in texts]


def _options(module: nn.Module) -> dict[str, Any]:
    """What a person would name to distinguish two modules of one class; for a learned loss, not its many weights."""
    found = _attributes(module)
    if not isinstance(module, Loss):
        return found
    return {
        name: found[name] for name in (*module.option_names, "weight", "ignore_index", "reduction") if name in found
    }


def _attributes(module: nn.Module) -> dict[str, Any]:
    """What a module was made with, if it is plain: numbers, texts, lists of them, and its own small tensors."""
    own: Mapping[str, Any] = {**vars(module), **module._buffers}
    return {
        name: value.tolist() if isinstance(value, Tensor) else value
        for name, value in own.items()
        if not name.startswith("_") and name != "training" and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.dim() <= 1
    if isinstance(value, list | tuple):
        return all(isinstance(entry, _PLAIN) for entry in value)
    return value is None or isinstance(value, _PLAIN)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        more = ", …" if len(value) > _MOST_NUMBERS else ""
        return f"[{', '.join(map(_shown, value[:_MOST_NUMBERS]))}{more}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
