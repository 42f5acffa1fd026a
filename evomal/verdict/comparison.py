"""What a comparison came to, as data."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evomal.engine import Score
from evomal.errors import InputError
from evomal.tasks.task import Task
from evomal.verdict.statistics import Paired
from evomal.verdict.tuning import cost_of
from evomal.verdict.words import Verdict

Variant = Literal["plain", "tuned", "rescaled"]


@dataclass(frozen=True)
class Trained:
    """One loss in one variant: its learning rate, its factor, and a score for each evaluation seed."""

    formula: str
    lr: float
    factor: float
    scores: tuple[Score, ...]

    def __repr__(self) -> str:
        tests = ", ".join("diverged" if score.diverged else f"{score.test:.4g}" for score in self.scores)
        return f"Trained({self.formula!r:.60}, lr={self.lr:g}, factor={self.factor:g}, test=[{tests}])"


@dataclass(frozen=True)
class Entry:
    """A row of the table: a contestant's losses in one variant; None where a search found none."""

    name: str
    variant: Variant
    losses: tuple[Trained | None, ...]

    def costs(self, task: Task) -> list[list[float]]:
        """What each loss came to in each seed, as something to be minimised; inf where it came to nothing."""
        return [[math.inf] if loss is None else [cost_of(score, task) for score in loss.scores] for loss in self.losses]


@dataclass(frozen=True)
class Comparison:
    """All that was trained, and what it says; printed, it is the table of the command line."""

    task: Task
    steps: int
    seeds: tuple[int, ...]
    search_seeds: tuple[int, ...]
    trials: int
    """Learning rates asked for in the variant `tuned`; 0 where none were."""
    rates: tuple[float, ...]
    """Those that were tried, for every loss: more than asked for, where the baseline's best was at an end."""
    baseline: str
    entries: tuple[Entry, ...]
    differences: dict[tuple[str, Variant], Paired]
    """To the baseline in the same variant (rescaled: to the plain one)."""
    verdicts: dict[str, Verdict]
    tuning: Paired | None = None
    """The tuned baseline against itself at its own rate, on the test split; None where nothing was tuned."""
    folder: Path | None = None
    milestones: tuple[int, ...] = ()
    """Steps at which the learning rate was divided by ten."""

    def entry(self, name: str, variant: Variant = "plain") -> Entry:
        """The row of that name."""
        for entry in self.entries:
            if (entry.name, entry.variant) == (name, variant):
                return entry
        raise InputError(f"there is no row {name!r} ({variant}) in this comparison")

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name}: {found.kind}" for name, found in self.verdicts.items())
        about = f"{self.task.name!r}, baseline={self.baseline!r}, seeds={len(self.seeds)}, steps={self.steps}"
        return f"Comparison({about}, verdicts={{{kinds}}})"

    def __str__(self) -> str:
        from evomal.verdict import tables  # here, as tables are made of comparisons

        return tables.text(self).rstrip("\n")
