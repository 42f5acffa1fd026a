"""Candidates and trials as rows of a record: every value is checked on its way in and on its way out."""

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from evomal.checks import one_of, whole_number
from evomal.engine import Fitness
from evomal.errors import InputError
from evomal.methods.candidates import Candidate, State
from evomal.methods.evaluation import Failure
from evomal.runs.canonical import canonical, parsed
from evomal.text import short_repr, shorten

MAX_SENTENCE = 10_000
_MAX_GENOME = 1_000_000
_MAX_WEIGHTS = 100_000
_MAX_WORD = 1_000
_MAX_INTEGER = 2**63 - 1  # SQLite's
_ON_TASK = " on task "
_CONTENT = (
    "generation", "index", "chunk", "origin", "parents", "genome", "state", "fitness", "sentence", "weights",
    "fingerprint", "seconds", "rungs", "factor",
)  # fmt: skip
_OLDER_COLUMNS, _WITHOUT_RUNGS = 12, ("[]", "1.0")
_OLDER_TRIAL_COLUMNS = ("1.0", 0, "[]")  # what trials of older records lack: rate, steps and left_out
_TRIAL_COLUMNS = 11

Row = tuple[int | str | None, ...]
TrialStage = Literal["rivals", "rates", "final", "lead"]
"""Rivals before the first generation; then the final: learning rates are tried, the winner is chosen, and its lead over
the best rival is measured."""


@dataclass(frozen=True, kw_only=True)
class RecordedTrial:
    """One training outside the generations: its loss and seed, and its score. Its time takes no part in equality."""

    stage: TrialStage
    loss: str
    """The name of a known loss, or the place of a candidate, `generation:index`."""
    seed: int
    score: float
    """The metric as a cost, lower is better; infinite if there is none."""
    sentence: str
    rate: float = 1.0
    """The learning rate, as a multiple of the task's own."""
    steps: int = 0
    """The number of training steps; 0: those of the settings."""
    task: int | None = None
    """The number of the task if costs on several tasks are recorded apart; None for one task, and for their mean."""
    left_out: tuple[float, ...] = ()
    """The score without each block of validation samples; empty where that is not known."""
    seconds: float = field(default=0.0, compare=False)

    def __post_init__(self) -> None:
        one_of("stage", self.stage, get_args(TrialStage))
        if _ON_TASK in checked_text("loss", self.loss, _MAX_WORD):
            raise InputError(f"loss must be a name or a place but got {short_repr(self.loss)}")
        checked_text("sentence", self.sentence, MAX_SENTENCE)
        _whole("seed", self.seed)
        _whole("steps", self.steps)
        if self.task is not None:
            _whole("task", self.task)
        if not 0 < _number("rate", self.rate) < math.inf:
            raise InputError(f"rate must be finite and more than 0 but got {self.rate}")
        if math.isnan(_number("score", self.score)) or self.score == -math.inf:
            raise InputError(f"score must be a finite number, or inf where there is none, but got {self.score}")
        if len(self.left_out) > _MAX_WEIGHTS:
            raise InputError(f"left_out must have at most {_MAX_WEIGHTS} numbers but got {len(self.left_out)}")
        for value in self.left_out:
            _finite("a score in left_out", value)
        _duration("seconds", self.seconds)

    @classmethod
    def of(
        cls, stage: TrialStage, loss: str, seed: int, result: Fitness | Failure, *, task: int | None = None,
        seconds: float = 0.0,
    ) -> "RecordedTrial":  # fmt: skip
        """The trial of a training with this result."""
        if isinstance(result, Failure):
            score, sentence = math.inf, f"evaluate failed: {result.sentence}"
        else:
            score, sentence = result.value, result.sentence or "trained and evaluated"
        return cls(stage=stage, loss=loss, seed=seed, score=score, sentence=sentence, task=task, seconds=seconds)


def candidate_row(candidate: Candidate, chunk: int) -> Row:
    """The columns of `candidates`. Floats become text: SQLite's own would lose NaN and the sign of zero."""
    if len(candidate.weights) > _MAX_WEIGHTS:
        raise InputError(f"a candidate must have at most {_MAX_WEIGHTS} weights but got {len(candidate.weights)}")
    weights = [_number("a weight", weight) for weight in candidate.weights]
    fitness, fingerprint = _number("fitness", candidate.fitness), candidate.fingerprint
    seconds = {
        checked_text("a stage", stage, _MAX_WORD): _duration(f"seconds of {stage}", taken)
        for stage, taken in candidate.seconds.items()
    }
    return (
        _whole("generation", candidate.generation),
        _whole("index", candidate.index),
        _whole("chunk", chunk),
        checked_text("origin", candidate.origin, _MAX_WORD),
        canonical([_whole("a parent", parent) for parent in candidate.parents]),
        checked_text("genome", candidate.genome, _MAX_GENOME),
        str(one_of("state", candidate.state, list(State))),
        None if fitness == math.inf else repr(fitness),
        _storable(candidate.sentence, MAX_SENTENCE),
        canonical([weight if math.isfinite(weight) else repr(weight) for weight in weights]),
        None if fingerprint is None else checked_text("fingerprint", fingerprint, _MAX_GENOME),
        canonical(seconds),
        canonical([[_finite("a rate", rate), _finite("a fitness", cost)] for rate, cost in candidate.rungs]),
        repr(_finite("factor", candidate.factor)),
    )


def read_candidate(row: Sequence[Any]) -> tuple[Candidate, int]:
    """The candidate of a row, and its chunk; InputError if `candidate_row` cannot have written the row."""
    # Records before version 3 have neither rungs nor factors.
    row = (*row, *_WITHOUT_RUNGS) if len(row) == _OLDER_COLUMNS else tuple(row)
    generation, index, chunk, origin, parents, genome, state, fitness, sentence, weights, fingerprint, seconds = row[
        :_OLDER_COLUMNS
    ]
    rungs, factor = row[_OLDER_COLUMNS:]
    texts = (origin, parents, genome, state, sentence, weights, seconds, rungs, factor)
    if not all(isinstance(text, str) for text in texts) or not isinstance(fitness, str | None):
        raise InputError("holds another type where a string was expected")
    try:
        candidate = Candidate(
            generation=generation,
            index=index,
            origin=origin,
            parents=tuple(parsed(parents)),
            genome=genome,
            state=State(one_of("state", state, list(State))),
            fitness=math.inf if fitness is None else float(fitness),
            sentence=sentence,
            weights=tuple(float(weight) for weight in parsed(weights)),
            fingerprint=fingerprint,
            seconds=dict(parsed(seconds)),
            rungs=tuple((rate, cost) for rate, cost in parsed(rungs)),
            factor=float(factor),
        )
        is_exact = candidate_row(candidate, chunk) == row
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(str(error)) from None
    if not is_exact:
        raise InputError("is not written in canonical form")
    return candidate, chunk


def candidate_content(candidate: Candidate) -> dict[str, Any]:
    """What two equal runs share of a candidate, as JSON values: everything but times."""
    found: dict[str, Any] = dict(zip(_CONTENT, candidate_row(candidate, 0), strict=True))
    found |= {name: parsed(found[name]) for name in ("parents", "weights", "rungs")}
    return {name: value for name, value in found.items() if name not in ("chunk", "seconds")}


def trial_row(trial: RecordedTrial, number: int, written: str) -> Row:
    """The columns of `trials`; numbers are written as those of candidates are."""
    score = None if trial.score == math.inf else repr(trial.score)
    # The task is part of the loss's column: records have had no other place for it since version 3.
    loss = trial.loss if trial.task is None else f"{trial.loss}{_ON_TASK}{trial.task}"
    return (
        number, trial.stage, loss, trial.seed, score, trial.sentence, canonical(trial.seconds), written,
        repr(float(trial.rate)), trial.steps, canonical([float(value) for value in trial.left_out]),
    )  # fmt: skip


def read_trial(row: Sequence[Any]) -> RecordedTrial:
    """The trial of a row; InputError if `trial_row` cannot have written the row."""
    row = (*row, *_OLDER_TRIAL_COLUMNS[len(row) - _TRIAL_COLUMNS :]) if len(row) < _TRIAL_COLUMNS else tuple(row)
    number, stage, loss, seed, score, sentence, seconds, written, rate, steps, left_out = row
    try:
        task = None
        if isinstance(loss, str) and _ON_TASK in loss:
            loss, _, number_of_task = loss.rpartition(_ON_TASK)
            task = int(number_of_task)
        trial = RecordedTrial(
            stage=stage,
            loss=loss,
            seed=seed,
            score=math.inf if score is None else float(score),
            sentence=sentence,
            rate=float(rate),
            steps=steps,
            task=task,
            left_out=tuple(parsed(left_out)),
            seconds=float(seconds),
        )
        is_exact = isinstance(written, str) and trial_row(trial, _whole("number", number), written) == row
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(str(error)) from None
    if not is_exact:
        raise InputError("is not written in canonical form")
    return trial


def trial_content(trial: RecordedTrial) -> dict[str, Any]:
    """What two equal runs share of a trial, as JSON values: everything but times."""
    _, stage, loss, seed, score, sentence, _, _, rate, steps, _ = trial_row(trial, 0, "")
    found = {
        "stage": stage, "loss": loss, "seed": seed, "score": score, "sentence": sentence, "rate": rate, "steps": steps,
    }  # fmt: skip
    return {**found, "left_out": list(trial.left_out)} if trial.left_out else found


def checked_text(name: str, value: Any, longest: int) -> str:
    """The string itself; raises InputError if it is empty, too long, or SQLite cannot hold it."""
    if not isinstance(value, str) or not value or len(value) > longest:
        raise InputError(f"{name} must be a string of 1 to {longest} characters but got {short_repr(value)}")
    if _storable(value, longest) != value:
        raise InputError(f"{name} must be proper Unicode but got {short_repr(value)}")
    return str(value)  # a plain string, as an enumeration is one, too


def _storable(value: str, longest: int) -> str:
    """A string that SQLite can hold: a sentence may quote an exception, with any characters and of any length."""
    return shorten(str(value).encode("utf-8", "backslashreplace").decode(), longest)


def _whole(name: str, value: Any) -> int:
    return whole_number(name, value, at_least=0, at_most=_MAX_INTEGER)


def _number(name: str, value: Any) -> float:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise InputError(f"{name} must be a number but got {short_repr(value)}")
    return float(value)


def _finite(name: str, value: Any) -> float:
    if not math.isfinite(_number(name, value)):
        raise InputError(f"{name} must be a finite number but got {value}")
    return float(value)


def _duration(name: str, value: Any) -> float:
    if not 0 <= _number(name, value) < math.inf:
        raise InputError(f"{name} must be finite and at least 0 but got {value}")
    return float(value)
