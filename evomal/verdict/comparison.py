"""The results of comparisons as data: every table, page, file and figure is rendered from these classes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import PydanticCustomError

from evomal.engine import Score
from evomal.engine.left_out import LeftOut
from evomal.engine.scores import CurvePoint
from evomal.errors import InputError
from evomal.extras import Displayed, data_frame
from evomal.tasks.named_metrics import largest_difference
from evomal.text import short_repr
from evomal.verdict.statistics import Paired, paired_searches
from evomal.verdict.words import Verdict

if TYPE_CHECKING:
    from pandas import DataFrame

Variant = Literal["plain", "tuned", "rescaled"]
VERSION = 1
"""The version of the documents that `to_dict` returns."""

# A document may be untrusted, and everything in it is shown: no part of it may be larger than a comparison needs.
MOST_ENTRIES, _MOST_LOSSES, _MOST_SCORES = 1_000, 1_000, 100_000


def _at_most(length: int) -> AfterValidator:
    """Limits the length of a text. Pydantic's own limit refuses lone surrogates, which file names may have."""

    def checked(text: str) -> str:
        if len(text) > length:
            raise PydanticCustomError("too_long", "must have at most {length} characters", {"length": length})
        return text

    return AfterValidator(checked)


_Name = Annotated[str, _at_most(1_000)]
_Text = Annotated[str, _at_most(100_000)]
_Formula = Annotated[str, _at_most(1_000_000)]
_Whole = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
_Number = Annotated[FiniteFloat, Field(strict=True)]
_Rates = Annotated[tuple[_Number, ...], Field(max_length=MOST_ENTRIES)]
_Numbers = Annotated[tuple[_Whole, ...], Field(max_length=_MOST_SCORES)]


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
            raise InputError(_refusal(error)) from None
        return found


def score_to_dict(score: Score) -> dict[str, Any]:
    """The score as JSON values; numbers that are not finite, which JSON does not have, are None.

    Metrics are sorted, as they are in the log of trainings: a resumed comparison then writes the same file.
    """
    return {
        "test": _finite(score.test), "validation": _finite(score.validation),
        "metrics": {name: _finite(score.metrics[name]) for name in sorted(score.metrics)},
        "curve": [[point.step, _finite(point.training_loss), _finite(point.validation)] for point in score.curve],
        "seed": score.seed, "steps": score.steps, "outcome": score.outcome, "sentence": score.sentence,
        "milestones": list(score.milestones), "left_out": list(score.left_out),
    }  # fmt: skip


class _ScoreDocument(BaseModel):
    """What `score_to_dict` returns."""

    model_config = ConfigDict(extra="forbid")

    test: _Number | None
    validation: _Number | None
    metrics: dict[_Name, _Number | None]
    curve: list[tuple[_Whole, _Number | None, _Number | None]]
    seed: _Whole
    steps: _Whole
    outcome: Literal["trained", "diverged"]
    sentence: _Text
    milestones: _Numbers
    left_out: Annotated[tuple[_Number, ...], Field(max_length=MOST_ENTRIES)] = ()


def score_from_dict(content: Any) -> Score:
    """The score that `score_to_dict` wrote, with NaN for None; raises InputError for anything else."""
    try:
        found = _ScoreDocument.model_validate(content)
    except (ValidationError, RecursionError) as error:
        raise InputError(f"a recorded score {_refusal(error)}") from None
    return Score(
        test=_value(found.test), validation=_value(found.validation),
        metrics={name: _value(number) for name, number in found.metrics.items()},
        curve=[CurvePoint(step, _value(loss), _value(validation)) for step, loss, validation in found.curve],
        seed=found.seed, steps=found.steps, outcome=found.outcome, sentence=found.sentence, milestones=found.milestones,
        left_out=found.left_out,
    )  # fmt: skip


def _refusal(error: ValidationError | RecursionError) -> str:
    """The first thing that pydantic found wrong with a document."""
    if not isinstance(error, ValidationError):
        return "is not what evomal writes: it is nested too deeply"
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"is not what evomal writes: {place:.60}: {first['msg']:.200}"


RecordedScore = Annotated[Score, PlainValidator(score_from_dict), PlainSerializer(score_to_dict)]


def cost_of(score: Score, value: float, *, higher_is_better: bool) -> float:
    """The score's value on a split as a cost, lower is better; inf if the training diverged."""
    cost = -value if higher_is_better else value
    return cost if math.isfinite(cost) and not score.diverged else math.inf


@dataclass(frozen=True)
class Command:
    """A command line as it was given."""

    words: Annotated[tuple[_Text, ...], Field(max_length=10_000)]
    """`evomal` and everything after it."""
    folder: _Text
    """The working folder, which relative paths among the words start from."""


@dataclass(frozen=True)
class Trained:
    """One loss in one variant: its learning rate, its factor, and a score for each evaluation seed."""

    formula: _Formula
    lr: _Number
    factor: _Number
    scores: Annotated[tuple[RecordedScore, ...], Field(min_length=1, max_length=_MOST_SCORES)]
    weight_decay: _Number | None = None
    """The weight decay, where it was tuned; None: the recipe's."""

    def __repr__(self) -> str:
        tests = ", ".join("diverged" if score.diverged else f"{score.test:.4g}" for score in self.scores)
        decay = "" if self.weight_decay is None else f"weight_decay={self.weight_decay:g}, "
        return f"Trained({self.formula!r:.60}, lr={self.lr:g}, {decay}factor={self.factor:g}, test=[{tests}])"


@dataclass(frozen=True)
class Entry:
    """A row of the table: the losses of one contestant in one variant."""

    name: _Name
    variant: Variant
    losses: Annotated[tuple[Trained | None, ...], Field(max_length=_MOST_LOSSES)]
    """One loss that was given, or one for each search; None where a search found none."""
    difference: Paired | None = None
    """To the baseline in the same variant, for `rescaled` to the plain one; None for the baseline itself."""
    learned: bool = False
    """Whether searches found the losses; False, too, in documents from before this was recorded."""

    def costs(self, *, higher_is_better: bool) -> list[list[float]]:
        """The test cost of each loss with each seed; inf where a training diverged or nothing was found."""
        return [
            [math.inf]
            if loss is None
            else [cost_of(score, score.test, higher_is_better=higher_is_better) for score in loss.scores]
            for loss in self.losses
        ]

    @property
    def left_out(self) -> list[LeftOut]:
        """The test metric of each loss with each seed without each block of test samples: see `Score.left_out`."""
        return [[] if loss is None else [score.left_out for score in loss.scores] for loss in self.losses]


def difference_between(one: Entry, other: Entry, *, metric: str, higher_is_better: bool) -> Paired:
    """Return the test costs of one row minus those of the first loss of another, with the same seeds and test rows."""
    costs, base = (row.costs(higher_is_better=higher_is_better) for row in (one, other))
    left_out = one.left_out, other.left_out[0]
    return paired_searches(costs, base[0], largest=largest_difference(metric), left_out=left_out)


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

    task: _Name
    record: dict[str, Any]
    """What the task says about its data, model and recipe."""
    metric: _Name
    higher_is_better: bool
    steps: _Whole
    milestones: _Numbers
    """Steps at which the learning rate was divided by ten."""
    seeds: Annotated[_Numbers, Field(min_length=1)]
    search_seeds: _Numbers
    tune_lr: _Whole
    """The number of learning rates that were asked for in the variant `tuned`; 0 without that variant."""
    rates: _Rates
    """The learning rates that were tried for every loss: more than asked for if the baseline's best was at an end."""
    baseline: _Name
    entries: Annotated[tuple[Entry, ...], Field(max_length=MOST_ENTRIES)]
    verdicts: Annotated[dict[_Name, Verdict], Field(max_length=MOST_ENTRIES)]
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

    @property
    def has_rows(self) -> bool:
        """Whether all intervals include the choice of the test rows."""
        known = [found for found in self.differences.values() if found.low is not None]
        return bool(known) and all(found.error_of_rows is not None for found in known)

    @property
    def has_tuned_decay(self) -> bool:
        """Whether the weight decay was tuned, too."""
        return any(loss is not None and loss.weight_decay is not None for one in self.entries for loss in one.losses)

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
        given: dict[str, Any] = {"name": name, "variant": variant}
        for what, value in given.items():
            if not isinstance(value, str):
                raise InputError(f"{what} must be a string but got {short_repr(value)}")
        for entry in self.entries:
            if (entry.name, entry.variant) == (name, variant):
                return entry
        raise InputError(f"there is no row {name!r} ({variant}) in this comparison")

    def to_dataframe(self) -> "DataFrame":
        """Return the trainings as a pandas data frame.

        Returns:
            One row per training: name and variant, the number of the search from 0, the formula, the learning rate and
            the factor of the loss, its weight decay if that was tuned, the seed, whether it was trained, the metric on
            test and validation, and under `test_…` the usual metrics on test. A search that found no loss is a row
            without numbers.

        Raises:
            InputError: If pandas is not installed.

        Example:
            >>> frame = evomal.compare(task, losses=["huber"], seeds=5).to_dataframe()  # doctest: +SKIP
            >>> frame.groupby(["name", "variant"]).test.mean()  # doctest: +SKIP
        """
        from evomal.verdict.tables import training_columns  # here, as tables are made of comparisons

        return data_frame(training_columns(self))

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
    source: _Name | None
    """The name of the task on which the losses were searched for; None if they were given."""
    fitnesses: dict[_Name, tuple[float | None, ...]]
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

    comparisons: Annotated[dict[FiniteFloat, Comparison], Field(max_length=MOST_ENTRIES)]
    search_each: bool
    """Whether methods searched at each learning rate, or only at the untuned one."""
    command: Command | None = None

    def __repr__(self) -> str:
        rates = ", ".join(f"{rate:g}" for rate in self.comparisons)
        names = list(dict.fromkeys(entry.name for found in self.comparisons.values() for entry in found.entries))
        return f"RateCurve(rates=[{rates}], losses={names}, search_each={self.search_each})"

    def __str__(self) -> str:
        return "\n\n".join(f"lr {rate:g}\n{found}" for rate, found in self.comparisons.items())


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _value(number: float | None) -> float:
    return math.nan if number is None else float(number)
