"""The results of comparisons as data: every table, page, file and figure is rendered from these classes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, PlainSerializer, PlainValidator, TypeAdapter, ValidationError

from evomal.engine import Score
from evomal.engine.scores import CurvePoint
from evomal.errors import InputError
from evomal.notebooks import Displayed
from evomal.verdict.statistics import Paired
from evomal.verdict.words import Verdict

Variant = Literal["plain", "tuned", "rescaled"]
VERSION = 1
"""The version of the documents that `to_dict` returns."""


class Document:
    """A result that can be written as JSON values and read again."""

    format: ClassVar[str]
    title: ClassVar[str]
    file_name: ClassVar[str]
    """The name, without its ending, of the files that hold the result in the folder of a comparison."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON values.

        Returns:
            A dictionary with `format` and `version` besides the fields of the class. Numbers of scores that are not
            finite are None.

        Example:
            >>> import evomal
            >>> task = evomal.load_task("diabetes", model="mlp:hidden=8")
            >>> found = evomal.compare(task, losses=["huber"], seeds=1, final_steps=20, device="cpu")
            >>> evomal.Comparison.from_dict(found.to_dict()) == found
            True
        """
        content = TypeAdapter(type(self)).dump_python(self, mode="json")
        return {"format": self.format, "version": VERSION, **content}

    @classmethod
    def from_dict(cls, content: Any) -> Self:
        """Return the result that `to_dict` wrote.

        Args:
            content: What `to_dict` returned, or the content of its JSON file.

        Returns:
            The result, equal to the first one except that numbers of scores that are not finite are NaN.

        Raises:
            InputError: If the content is not such a document, or is of a version that this evomal does not read.
        """
        if not isinstance(content, Mapping) or content.get("format") != cls.format:
            raise InputError(f"is not a document of the format {cls.format}, which evomal writes since version 0.2")
        if content.get("version") != VERSION:
            raise InputError(f"has version {content.get('version')!r:.20}, but this evomal reads version {VERSION}")
        try:
            found: Self = TypeAdapter(cls).validate_python(content)
        except (ValidationError, RecursionError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": "nested too deeply"}
            place = ".".join(map(str, first["loc"]))
            raise InputError(f"is not what evomal writes: {place:.60}: {first['msg']:.200}") from None
        return found


def score_to_dict(score: Score) -> dict[str, Any]:
    """The score as JSON values; numbers that are not finite, which JSON does not have, are None.

    Metrics are sorted, as they are in the log of trainings: a resumed comparison then writes the same file.
    """
    return {
        "test": _number(score.test), "validation": _number(score.validation),
        "metrics": {name: _number(score.metrics[name]) for name in sorted(score.metrics)},
        "curve": [[point.step, _number(point.training_loss), _number(point.validation)] for point in score.curve],
        "seed": score.seed, "steps": score.steps, "outcome": score.outcome, "sentence": score.sentence,
        "milestones": list(score.milestones),
    }  # fmt: skip


def score_from_dict(content: Mapping[str, Any]) -> Score:
    """The score that `score_to_dict` wrote, with NaN for None; raises InputError for anything else."""
    try:
        return Score(
            test=_value(content["test"]), validation=_value(content["validation"]),
            metrics={name: _value(number) for name, number in content["metrics"].items()},
            curve=[CurvePoint(step, _value(loss), _value(validation)) for step, loss, validation in content["curve"]],
            seed=int(content["seed"]), steps=int(content["steps"]), outcome=str(content["outcome"]),
            sentence=str(content["sentence"]), milestones=tuple(content["milestones"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"a recorded score is not what evomal writes: {error}") from None


RecordedScore = Annotated[Score, PlainValidator(score_from_dict), PlainSerializer(score_to_dict)]


def cost_of(score: Score, value: float, *, higher_is_better: bool) -> float:
    """The score's value on a split as a cost, lower is better; inf if the training diverged."""
    cost = -value if higher_is_better else value
    return cost if math.isfinite(cost) and not score.diverged else math.inf


@dataclass(frozen=True)
class Command:
    """A command line as it was given."""

    words: tuple[str, ...]
    """`evomal` and everything after it."""
    folder: str
    """The working folder, which relative paths among the words start from."""


@dataclass(frozen=True)
class Trained:
    """One loss in one variant: its learning rate, its factor, and a score for each evaluation seed."""

    formula: str
    lr: float
    factor: float
    scores: tuple[RecordedScore, ...]

    def __repr__(self) -> str:
        tests = ", ".join("diverged" if score.diverged else f"{score.test:.4g}" for score in self.scores)
        return f"Trained({self.formula!r:.60}, lr={self.lr:g}, factor={self.factor:g}, test=[{tests}])"


@dataclass(frozen=True)
class Entry:
    """A row of the table: the losses of one contestant in one variant."""

    name: str
    variant: Variant
    losses: tuple[Trained | None, ...]
    """One loss that was given, or one for each search; None where a search found none."""
    difference: Paired | None = None
    """To the baseline in the same variant, for `rescaled` to the plain one; None for the baseline itself."""

    def costs(self, *, higher_is_better: bool) -> list[list[float]]:
        """The test cost of each loss with each seed; inf where a training diverged or nothing was found."""
        return [
            [math.inf]
            if loss is None
            else [cost_of(score, score.test, higher_is_better=higher_is_better) for score in loss.scores]
            for loss in self.losses
        ]


@dataclass(frozen=True)
class Comparison(Document, Displayed):
    """The result of `evomal.compare`: every training, the differences to the baseline, and a verdict per loss.

    Print it to see the table of the command line.

    Example:
        >>> import evomal
        >>> task = evomal.load_task("diabetes", model="mlp:hidden=8")
        >>> found = evomal.compare(task, losses=["huber"], seeds=2, rescale=False, final_steps=20, device="cpu")
        >>> [(entry.name, entry.variant, len(entry.losses[0].scores)) for entry in found.entries]
        [('mse', 'plain', 2), ('huber', 'plain', 2)]
        >>> found.differences["huber", "plain"].n
        2
    """

    format: ClassVar[str] = "evomal-comparison"
    title: ClassVar[str] = "Comparison"
    file_name: ClassVar[str] = "comparison"

    task: str
    record: dict[str, Any]
    """What the task says of its data, model and recipe."""
    metric: str
    higher_is_better: bool
    steps: int
    milestones: tuple[int, ...]
    """Steps at which the learning rate was divided by ten."""
    seeds: tuple[int, ...]
    search_seeds: tuple[int, ...]
    tune_lr: int
    """The number of learning rates that were asked for in the variant `tuned`; 0 without that variant."""
    rates: tuple[float, ...]
    """The learning rates that were tried for every loss: more than asked for if the baseline's best was at an end."""
    baseline: str
    entries: tuple[Entry, ...]
    verdicts: dict[str, Verdict]
    tuning: Paired | None = None
    """The tuned baseline compared with the untuned one, on the test split; None if nothing was tuned."""
    command: Command | None = None
    """The command line, if the comparison was made by `evomal compare`."""
    folder: Annotated[Path | None, Field(exclude=True)] = field(default=None, compare=False)
    """Where the comparison was recorded; not part of the document."""

    @property
    def differences(self) -> dict[tuple[str, Variant], Paired]:
        """The difference to the baseline of each name and variant."""
        return {(one.name, one.variant): one.difference for one in self.entries if one.difference is not None}

    def entry(self, name: str, variant: Variant = "plain") -> Entry:
        """Return the row of that name and variant.

        Args:
            name: The name of a loss, a method or the baseline.
            variant: `plain`, `tuned` or `rescaled`.

        Returns:
            The row.

        Raises:
            InputError: If there is no such row.
        """
        for entry in self.entries:
            if (entry.name, entry.variant) == (name, variant):
                return entry
        raise InputError(f"there is no row {name!r} ({variant}) in this comparison")

    def __repr__(self) -> str:
        kinds = ", ".join(f"{name}: {found.kind}" for name, found in self.verdicts.items())
        about = f"{self.task!r}, baseline={self.baseline!r}, seeds={len(self.seeds)}, steps={self.steps}"
        return f"Comparison({about}, verdicts={{{kinds}}})"

    def __str__(self) -> str:
        from evomal.verdict.tables import comparison_text  # here, as tables are made of comparisons

        return comparison_text(self).rstrip("\n")


@dataclass(frozen=True)
class Transfer(Document):
    """The result of `evomal.transfer`: the comparison on the target task, and the searches on the source task."""

    format: ClassVar[str] = "evomal-transfer"
    title: ClassVar[str] = "Transfer"
    file_name: ClassVar[str] = "transfer"

    comparison: Comparison
    source: str | None
    """The name of the task on which the losses were searched for; None if they were given."""
    fitnesses: dict[str, tuple[float | None, ...]]
    """For each method, the fitness of each search's loss on the source's validation split."""
    command: Command | None = None

    def __repr__(self) -> str:
        return f"Transfer(source={self.source!r}, {self.comparison!r})"

    def __str__(self) -> str:
        return str(self.comparison)


@dataclass(frozen=True)
class RateCurve(Document):
    """The result of `evomal.verdict.rate_curve`: a comparison of the same contestants at each learning rate."""

    format: ClassVar[str] = "evomal-learning-rates"
    title: ClassVar[str] = "Comparison at several learning rates"
    file_name: ClassVar[str] = "learning-rates"

    comparisons: dict[float, Comparison]
    search_each: bool
    """Whether methods searched at each learning rate, or only at the untuned one."""
    command: Command | None = None

    def __repr__(self) -> str:
        rates = ", ".join(f"{rate:g}" for rate in self.comparisons)
        names = list(dict.fromkeys(entry.name for found in self.comparisons.values() for entry in found.entries))
        return f"RateCurve(rates=[{rates}], losses={names}, search_each={self.search_each})"

    def __str__(self) -> str:
        return "\n\n".join(f"lr {rate:g}\n{found}" for rate, found in self.comparisons.items())


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _value(number: float | None) -> float:
    return math.nan if number is None else float(number)
