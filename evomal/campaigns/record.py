"""The result of a campaign as data: every table, page and figure of it is rendered from these classes.

`campaign.json` holds every score of every seed, and for every cell its settings, commit, hardware and time, but no
curves: those are in the folders of the cells.
"""

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FiniteFloat, ValidationError

from evomal.campaigns.layout import laid_out, rounded
from evomal.engine import Score
from evomal.engine.left_out import LeftOut
from evomal.errors import InputError
from evomal.files import read_foreign, write_atomically
from evomal.losses.catalogue import is_specified
from evomal.methods import METHODS
from evomal.runs.canonical import parsed
from evomal.tasks.named_metrics import largest_difference
from evomal.verdict.comparison import Comparison, Entry, Trained, Variant
from evomal.verdict.statistics import Paired, paired, paired_searches
from evomal.verdict.words import Verdict

FILE_NAME = "campaign.json"
LEARNED = "learned"
"""The value of `recommended` if a search recommends its own loss."""
LONGEST = 64_000_000
"""Bytes of the file of a result."""

Read = TypeVar("Read", bound=BaseModel)


class FrozenModel(BaseModel):
    """A part of a file of results: immutable, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Provenance(FrozenModel):
    """With which code, on which hardware and in what time something was computed."""

    commit: str
    """The commit of evomal's source, with `+` if files were changed; its version outside a repository."""
    hardware: str
    seconds: FiniteFloat | None
    """Wall-clock time of all calls together; None if it was not recorded."""


FinalOn = Literal["own rows", "new splits", "rows of the search"]


class SearchCell(FrozenModel):
    """One search and what came of it."""

    method: str
    preset: str
    seed: int
    settings: dict[str, Any] = {}
    """Settings that differ from the preset."""
    made: Provenance
    generations: int | None = None
    counts: dict[str, int] = {}
    """The number of candidates in each state."""
    formula: str | None = None
    """Of the best loss; None if nothing survived."""
    family: str | None = None
    """The known loss that it resembles, in words; None also if it was not recorded."""
    fitness: FiniteFloat | None = None
    """The value of the metric in its training in the search."""
    lr: FiniteFloat | None = None
    recommended: str | None = None
    """`learned`, or the name of the known loss that the search recommends; None without a final."""
    rival: str | None = None
    """The best known loss in the final."""
    lead: tuple[FiniteFloat, FiniteFloat] | None = None
    """The lead over that rival on validation, and half its interval; None if a training diverged."""
    final_on: FinalOn | None = None
    """Rows that only its final used, splits drawn anew for each training, or rows that also chose the losses."""
    half_on_other_rows: FiniteFloat | None = None
    """Half of the interval that allows for other validation rows as well; None where that is not known."""
    headroom: dict[str, FiniteFloat | None] = {}
    """The validation cost of each known loss by the search's own protocol."""
    history: tuple[FiniteFloat | None, ...] = ()
    """The best value of each generation."""

    @property
    def contestant(self) -> str:
        """The name under which the losses of such searches are compared, where a task has several presets."""
        return f"{self.method} ({self.preset})"


class TrainedLoss(FrozenModel):
    """One loss in one variant: its learning rate and its test metric with every seed."""

    formula: str = ""
    lr: FiniteFloat | None = None
    """None if it was not recorded."""
    factor: FiniteFloat = 1.0
    test: tuple[FiniteFloat | None, ...]
    """None where the training diverged."""
    left_out: tuple[tuple[FiniteFloat, ...], ...] = ()
    """For every seed, the metric without each block of test samples (`Score.left_out`); empty if it is not known."""
    weight_decay: FiniteFloat | None = None
    """The weight decay, where it was tuned."""


class ComparedRow(FrozenModel):
    """The losses of one contestant in one variant."""

    name: str
    variant: Variant
    losses: tuple[TrainedLoss | None, ...]
    """One loss that was given, or one for each search; None where a search found none."""


class ComparisonCell(FrozenModel):
    """The final trainings of a task."""

    made: Provenance
    steps: int
    milestones: tuple[int, ...] = ()
    seeds: tuple[int, ...]
    tune_lr: int
    rates: tuple[FiniteFloat, ...] = ()
    baseline: str
    settings: dict[str, Any] = {}
    rows: tuple[ComparedRow, ...]
    verdicts: dict[str, tuple[str, str]] = {}
    """Kind and sentence by contestant."""

    @property
    def trainings(self) -> int:
        """The number of final trainings, without those of tuning."""
        return sum(len(loss.test) for row in self.rows for loss in row.losses if loss is not None)


class FigureCell(FrozenModel):
    """A figure that needed trainings of its own: what it shows, in words."""

    kind: str
    made: Provenance
    lines: tuple[str, ...]


class MeasuredTask(FrozenModel):
    """What was measured on one task."""

    name: str
    title: str
    task: str
    model: str = ""
    metric: str
    higher_is_better: bool = False
    rows: dict[str, int] = {}
    """The numbers of training, validation and test rows."""
    searches: tuple[SearchCell, ...] = ()
    comparison: ComparisonCell | None = None
    figures: tuple[FigureCell, ...] = ()

    def row(self, name: str, variant: Variant) -> ComparedRow | None:
        """The row of a contestant, if it was compared in that variant."""
        rows = () if self.comparison is None else self.comparison.rows
        return next((row for row in rows if (row.name, row.variant) == (name, variant)), None)

    def costs(self, name: str, variant: Variant) -> list[list[float]]:
        """The test cost of each loss with each seed; inf where a training diverged or a search found nothing."""
        row = self.row(name, variant)
        if row is None:
            raise InputError(f"{self.name}: there is no row {name!r} ({variant})")
        sign = -1.0 if self.higher_is_better else 1.0
        return [
            [math.inf] if loss is None else [math.inf if value is None else sign * value for value in loss.test]
            for loss in row.losses
        ]

    def left_out(self, name: str, variant: Variant) -> list[LeftOut]:
        """The test metric of each loss with each seed without each block of test samples."""
        row = self.row(name, variant)
        return [() if loss is None else loss.left_out for loss in (() if row is None else row.losses)]

    @property
    def has_rows(self) -> bool:
        """Whether intervals include the choice of the test rows."""
        rows = () if self.comparison is None else self.comparison.rows
        return bool(rows) and all(bool(loss.left_out) for row in rows for loss in row.losses if loss is not None)

    @property
    def has_tuned_decay(self) -> bool:
        """Whether the weight decay was tuned, too."""
        rows = () if self.comparison is None else self.comparison.rows
        return any(loss is not None and loss.weight_decay is not None for row in rows for loss in row.losses)

    @property
    def variant(self) -> Variant:
        """The variant that decides: tuned where it was measured."""
        assert self.comparison is not None
        return "tuned" if self.comparison.tune_lr else "plain"

    @property
    def contestants(self) -> list[str]:
        """The names of learned losses: of what searches found, and of loss files."""
        if self.comparison is None:
            return []
        names = dict.fromkeys(row.name for row in self.comparison.rows)
        return [name for name in names if name != self.comparison.baseline and _is_learned(name)]

    @property
    def known_losses(self) -> list[str]:
        """The names of the known losses, the baseline first."""
        if self.comparison is None:
            return []
        learned = self.contestants
        return [name for name in dict.fromkeys(row.name for row in self.comparison.rows) if name not in learned]

    def searches_of(self, contestant: str) -> list[SearchCell]:
        """The searches of a contestant, by seed."""
        found = [cell for cell in self.searches if contestant in (cell.method, cell.contestant)]
        return sorted(found, key=lambda cell: cell.seed)

    def mean(self, name: str) -> float:
        """The mean test cost of a known loss in the variant that decides; inf if a training diverged."""
        (costs,) = self.costs(name, self.variant)
        return statistics.fmean(costs)

    @property
    def best_known(self) -> str:
        """The known loss of lowest mean test cost: chosen on the test split, which favours it over learned losses."""
        return min(self.known_losses, key=lambda name: (self.mean(name), name))

    def search_means(self, contestant: str) -> list[float]:
        """The mean test cost of the loss of each search."""
        return [statistics.fmean(costs) for costs in self.costs(contestant, self.variant)]

    def recommended_means(self, contestant: str) -> list[float] | None:
        """The mean test cost of what each search recommends; None where that is nothing, or was not compared."""
        cells = self.searches_of(contestant)
        if not cells or any(cell.recommended is None for cell in cells) or self.not_compared(contestant):
            return None
        own = self.search_means(contestant)
        return [
            mean if cell.recommended == LEARNED else self.mean(str(cell.recommended))
            for mean, cell in zip(own, cells, strict=True)
        ]

    def not_compared(self, contestant: str) -> list[str]:
        """The known losses that searches recommend and the comparison does not have: they try more than it may list."""
        advised = {cell.recommended for cell in self.searches_of(contestant)} - {None, LEARNED, *self.known_losses}
        return sorted(map(str, advised))

    def worst_recommended(self, contestant: str) -> tuple[str, int]:
        """The loss of highest mean test cost among those that the searches recommend, as a row and a place in it."""
        means, cells = self.recommended_means(contestant), self.searches_of(contestant)
        assert means is not None
        worst = max(range(len(means)), key=lambda place: means[place])
        known = cells[worst].recommended
        return (contestant, worst) if known == LEARNED else (str(known), 0)

    def difference(self, name: str, other: str, variant: Variant | None = None, *, place: int | None = None) -> Paired:
        """A loss or contestant, or the loss of one of its searches, against another in the same variant.

        Negative is better. Against a known loss, what `evomal compare` says; two methods are compared search by search.
        """
        chosen = variant or self.variant
        others: Variant = "plain" if chosen == "rescaled" else chosen
        taken = slice(None) if place is None else slice(place, place + 1)
        own, against = self.costs(name, chosen)[taken], self.costs(other, others)
        largest = largest_difference(self.metric)
        if len(against) == 1:
            left_out = self.left_out(name, chosen)[taken], self.left_out(other, others)[0]
            return paired_searches(own, against[0], largest=largest, left_out=left_out)
        searches = min(len(own), len(against))
        own_means, other_means = (list(map(statistics.fmean, costs[:searches])) for costs in (own, against))
        return replace(paired(own_means, other_means, largest=largest), noun="search")

    def as_comparison(self) -> Comparison:
        """The comparison with its differences, as `evomal compare` returns it; scores have no curves."""
        found = self.comparison
        assert found is not None
        entries = tuple(
            Entry(
                row.name,
                row.variant,
                tuple(None if loss is None else _trained(loss, found) for loss in row.losses),
                None if row.name == found.baseline else self.difference(row.name, found.baseline, row.variant),
            )
            for row in found.rows
        )
        verdicts = {name: Verdict(kind, sentence) for name, (kind, sentence) in found.verdicts.items()}  # type: ignore[arg-type]
        return Comparison(
            task=self.title, record={}, metric=self.metric, higher_is_better=self.higher_is_better, steps=found.steps,
            milestones=found.milestones, seeds=found.seeds, search_seeds=(), tune_lr=found.tune_lr, rates=found.rates,
            baseline=found.baseline, entries=entries, verdicts=verdicts,
        )  # fmt: skip


class CampaignResult(FrozenModel):
    """What a campaign measured so far."""

    format: Literal["evomal-campaign"] = "evomal-campaign"
    version: Literal[1] = 1
    name: str
    title: str
    about: str = ""
    command: str
    note: str = ""
    """What a reader must know about these numbers, such as that older code measured them."""
    tasks: tuple[MeasuredTask, ...]
    left: tuple[str, ...] = ()
    """The cells that are not done yet."""

    def task(self, name: str) -> MeasuredTask:
        """The task of that name."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise InputError(f"{self.name} has no task {name!r}")

    def write(self, path: Path) -> None:
        """Write the result as JSON, one line for each cell and row."""
        write_atomically(path, self.text().encode())

    def text(self) -> str:
        """The result as JSON text, one line for each search and row, with seven significant digits."""
        content = rounded(self.model_dump(mode="json", exclude_defaults=True))
        return laid_out({"format": self.format, "version": self.version, **content}) + "\n"


def read_result(path: Path) -> CampaignResult:
    """Read what `CampaignResult.write` wrote.

    Raises:
        InputError: The file cannot be read, or is not the result of a campaign.
    """
    return read_document(path, CampaignResult, "the result of a campaign")


def read_document(path: Path, kind: type[Read], what: str) -> Read:
    """Read a file of results; `what` it should be is part of the error if it is something else."""
    content = read_foreign(path, limit=LONGEST, follow_links=True)
    try:
        return kind.model_validate(parsed(content.decode()))
    except (ValidationError, RecursionError) as error:
        place = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else "its nesting"
        raise InputError(f"{path}: is not {what}: {place:.80} is not what evomal writes") from None
    except ValueError as error:  # also an InputError
        raise InputError(f"{path}: {error}") from None


def is_searched(name: str) -> bool:
    """Whether a row has the name of a method, and so a loss of each of its searches."""
    return name.split(" ")[0] in METHODS


def _is_learned(name: str) -> bool:
    """Whether a row has the name of a method or of a loss file, as opposed to that of a known loss or procedure."""
    return is_searched(name) or not is_specified(name.partition("+")[0])


def _trained(loss: TrainedLoss, cell: ComparisonCell) -> Trained:
    scores = tuple(
        Score(
            test=math.nan if value is None else value, validation=math.nan, metrics={}, curve=[], seed=seed,
            steps=cell.steps, outcome="diverged" if value is None else "trained",
            sentence="the training diverged" if value is None else "", milestones=cell.milestones, left_out=left_out,
        )
        for seed, value, left_out in zip(
            cell.seeds, loss.test, loss.left_out or ((),) * len(loss.test), strict=True
        )
    )  # fmt: skip
    return Trained(loss.formula, math.nan if loss.lr is None else loss.lr, loss.factor, scores, loss.weight_decay)
