"""Trainings outside the generations of a search, one row each: the rivals before them, and the final after them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from evomal.engine import Fitness
from evomal.errors import InputError
from evomal.methods import Failure
from evomal.runs.candidates import MAX_SENTENCE, MAX_WORD, RecordedCandidate, checked_text, number, whole
from evomal.runs.canonical import canonical

TrialStage = Literal["rivals", "final"]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One training: with which loss and seed, and what it came to; equal where everything but its time is equal."""

    stage: TrialStage
    loss: str
    """The name of a known loss, or the place of a candidate, `generation:index`."""
    seed: int
    score: float
    """The metric as a cost, lower is better; infinite where there is none."""
    sentence: str
    seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        if self.stage not in get_args(TrialStage):
            raise InputError(f"stage must be one of {', '.join(get_args(TrialStage))} but got {self.stage!r}")
        checked_text("loss", self.loss, MAX_WORD)
        checked_text("sentence", self.sentence, MAX_SENTENCE)
        whole("seed", self.seed)
        if math.isnan(number("score", self.score)) or self.score == -math.inf:
            raise InputError(f"score must be a finite number, or inf where there is none, but got {self.score}")
        if not 0 <= number("seconds", self.seconds) < math.inf:
            raise InputError(f"seconds must be finite and at least 0 but got {self.seconds}")

    @classmethod
    def of(cls, stage: TrialStage, loss: str, seed: int, result: Fitness | Failure, *, seconds: float = 0.0) -> "Trial":
        """What a training came to, as it is recorded."""
        if isinstance(result, Failure):
            score, sentence = math.inf, f"evaluate failed: {result.sentence}"
        else:
            score, sentence = result.value, result.sentence or "trained and evaluated"
        return cls(stage=stage, loss=loss, seed=seed, score=score, sentence=sentence, seconds=seconds)


def loss_of_candidate(candidate: RecordedCandidate) -> str:
    """What stands for a candidate's loss in a trial: its place."""
    return f"{candidate.generation}:{candidate.index}"


def to_row(trial: Trial, place: int, written: str) -> tuple[int | str | None, ...]:
    """The columns of `trials`, numbers as text for the reasons that candidates have."""
    score = None if trial.score == math.inf else repr(trial.score)
    return place, trial.stage, trial.loss, trial.seed, score, trial.sentence, canonical(trial.seconds), written


def from_row(row: Sequence[Any]) -> Trial:
    """The trial that a row describes; InputError where it cannot have been written by `to_row`."""
    place, stage, loss, seed, score, sentence, seconds, written = row
    try:
        trial = Trial(
            stage=stage,
            loss=loss,
            seed=seed,
            score=math.inf if score is None else float(score),
            sentence=sentence,
            seconds=float(seconds),
        )
        is_exact = isinstance(written, str) and to_row(trial, whole("number", place), written) == tuple(row)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(str(error)) from None
    if not is_exact:
        raise InputError("is not written in canonical form")
    return trial


def content(trial: Trial) -> dict[str, Any]:
    """What two equal runs share of a trial, as JSON values: everything but times."""
    _, stage, loss, seed, score, sentence, _, _ = to_row(trial, 0, "")
    return {"stage": stage, "loss": loss, "seed": seed, "score": score, "sentence": sentence}
