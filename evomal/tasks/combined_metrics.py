"""Metrics made of others: a weighted sum, and the worst value over groups of rows."""

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.tasks.named_metrics import Needs
from evomal.text import plural, short_repr

if TYPE_CHECKING:  # it imports this module
    from evomal.tasks.metrics import Metric

PARTS = ("validation", "test")
"""The parts of a task that metrics are measured on."""
_DIGITS = 16


class Combined(ABC):
    """What a metric that is made of others computes: see `weighted` and `worst_group`."""

    @abstractmethod
    def __call__(self, outputs: Tensor, targets: Tensor, *, weights: Tensor | None, part: str | None) -> float:
        """The value; rows of weight 0 do not count, and `part` says which part of the task the rows are."""

    @abstractmethod
    def of_kind(self, choose: Callable[[Any], "Metric"]) -> "Combined":
        """The same with its metrics resolved by `choose` for a kind of task."""

    @abstractmethod
    def check(self, targets: Tensor, part: str, *, samples: int, needs: Needs) -> None:
        """Raise unless it can be measured on a part of a task: see `Metric.check`."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """What decides its values besides its name."""

    @property
    @abstractmethod
    def members(self) -> tuple["Metric", ...]:
        """The metrics that it is made of."""

    @property
    def is_by_part(self) -> bool:
        """Whether it knows the rows of each part, so that the parts cannot be drawn anew."""
        return False

    def of_rows(self, rows: Mapping[str, Tensor], total: int) -> "Combined":
        """The same for a task whose parts consist of these rows of the `total` ones that were given."""
        return self


@dataclass(frozen=True, eq=False)
class WeightedSum(Combined):
    """Values times their weights, added up; as costs if the metrics differ in their direction."""

    terms: Sequence[tuple[float, "Metric"]]
    is_of_costs: bool

    def __call__(self, outputs: Tensor, targets: Tensor, *, weights: Tensor | None, part: str | None) -> float:
        values = [(weight, one, one(outputs, targets, weights=weights, part=part)) for weight, one in self.terms]
        return sum(weight * (one.cost(value) if self.is_of_costs else value) for weight, one, value in values)

    def of_kind(self, choose: Callable[[Any], "Metric"]) -> "WeightedSum":
        return dataclasses.replace(self, terms=[(weight, choose(one)) for weight, one in self.terms])

    def check(self, targets: Tensor, part: str, *, samples: int, needs: Needs) -> None:
        for _, one in self.terms:
            one.check(targets, part, samples=samples, needs=needs)

    def record(self) -> dict[str, Any]:
        return {one.name: one.record() for _, one in self.terms if one.record()}

    @property
    def members(self) -> tuple["Metric", ...]:
        return tuple(one for _, one in self.terms)

    @property
    def is_by_part(self) -> bool:
        return any(one.is_by_part for _, one in self.terms)

    def of_rows(self, rows: Mapping[str, Tensor], total: int) -> "WeightedSum":
        return dataclasses.replace(self, terms=[(weight, one.of_rows(rows, total)) for weight, one in self.terms])


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each row, as a number, and what the groups are called."""

    numbers: Tensor
    names: tuple[str, ...]

    @classmethod
    def of(cls, given: Any, place: str) -> "Groups":
        """From one number or text per row."""
        try:
            values = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given)
            if values.ndim != 1 or not len(values) or values.dtype.kind not in "biufUSO":
                raise TypeError
            names, numbers = np.unique(values, return_inverse=True)
        except (TypeError, ValueError, RuntimeError):  # the last from tensors without numbers, as on the device meta
            raise InputError(f"{place} must have one number or text per row but got {short_repr(given)}") from None
        return cls(torch.from_numpy(numbers.astype(np.int64)), tuple(map(str, names.tolist())))

    def __len__(self) -> int:
        return len(self.numbers)

    def select(self, rows: Tensor) -> "Groups":
        """Those of some rows."""
        return dataclasses.replace(self, numbers=self.numbers[rows])


@dataclass(frozen=True, eq=False)
class WorstGroup(Combined):
    """The value of a metric in that group of rows where it is worst."""

    metric: "Metric"
    groups: Mapping[str, Groups] | Groups | None
    """By part, or of all rows that a task is made from; None: the classes of the targets."""

    @property
    def members(self) -> tuple["Metric", ...]:
        return (self.metric,)

    def __call__(self, outputs: Tensor, targets: Tensor, *, weights: Tensor | None, part: str | None) -> float:
        values = []
        for _, rows in self._members(targets, part):
            if weights is None or bool((weights[rows] > 0).any()):
                own = None if weights is None else weights[rows]
                values.append(self.metric(outputs[rows], targets[rows], weights=own, part=part))
        # With NaN, Python's `max` depends on the order; torch returns NaN.
        worst = torch.tensor([self.metric.cost(value) for value in values], dtype=torch.float64).max()
        return self.metric.cost(worst.item())

    def _members(self, targets: Tensor, part: str | None) -> Iterator[tuple[str, Tensor]]:
        """Each group's name and rows; of several rows per sample all belong to the sample's group."""
        if self.groups is None:
            for number in torch.unique(targets[targets >= 0]).tolist():
                yield f"class {number}", targets == number
            return
        if isinstance(self.groups, Groups) or part is None or part not in self.groups:
            raise InputError(
                "the groups of a metric must be known by part: give worst_group groups={'validation': …, 'test': …}, "
                "or one group per row of the arrays to Task.from_arrays"
            )
        groups = self.groups[part]
        if len(targets) % len(groups):
            rows = plural(len(groups), f"{part} row")
            raise InputError(f"the metric has groups of {rows}, but there are {len(targets)}")
        numbers = groups.numbers.to(targets.device).repeat_interleave(len(targets) // len(groups))
        for number in torch.unique(numbers).tolist():
            yield f"group {groups.names[number]}", numbers == number

    def of_kind(self, choose: Callable[[Any], "Metric"]) -> "WorstGroup":
        return dataclasses.replace(self, metric=choose(self.metric))

    def check(self, targets: Tensor, part: str, *, samples: int, needs: Needs) -> None:
        if self.groups is None and targets.is_floating_point():
            raise InputError("the worst class is known for classification only: give worst_group the groups of rows")
        if isinstance(self.groups, Mapping) and part in self.groups and len(self.groups[part]) != samples:
            raise InputError(
                f"the groups of {part} rows must be as many as there are rows, {samples}, "
                f"but got {len(self.groups[part])}"
            )
        for name, rows in self._members(targets, part):
            needs.check(self.metric, targets[rows], f"{name} of {place_of(part)}")

    def record(self) -> dict[str, Any]:
        if self.groups is None:
            return self.metric.record()
        by_part = {"all": self.groups} if isinstance(self.groups, Groups) else self.groups
        found = hashlib.sha256()
        for part, groups in sorted(by_part.items()):
            names = [groups.names[number] for number in groups.numbers.tolist()]
            found.update(repr((part, names)).encode())
        return {"groups": found.hexdigest()[:_DIGITS], **self.metric.record()}

    @property
    def is_by_part(self) -> bool:
        return self.groups is not None

    def of_rows(self, rows: Mapping[str, Tensor], total: int) -> "WorstGroup":
        if not isinstance(self.groups, Groups):
            return self
        groups = self.groups
        if len(groups) != total:
            raise InputError(
                f"groups must have one entry for each of {plural(total, 'row')} of the arrays but got {len(groups)}"
            )
        return dataclasses.replace(self, groups={part: groups.select(numbers) for part, numbers in rows.items()})


def place_of(part: str) -> str:
    """What a part is called in sentences."""
    return f"the {part} split"


def groups_by_part(given: Any) -> Mapping[str, Groups] | Groups | None:
    """The groups that a user gives: by part, one per row of the arrays of a task, or the classes of the targets."""
    if isinstance(given, str):
        if given != "class":
            raise InputError(f"groups must be one per row, given by part, or 'class' but got {short_repr(given)}")
        return None
    if not isinstance(given, Mapping):
        return Groups.of(given, "groups")
    if set(given) != set(PARTS):
        raise InputError(f"groups must be given for validation and test but got {', '.join(map(str, given)) or 'none'}")
    return {part: Groups.of(given[part], f"groups of {part} rows") for part in PARTS}
