"""One candidate of a run: what was proposed, what became of it, what it took."""

import functools
import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evomal.checks import whole_number
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.methods.outcomes import Outcome, State
from evomal.methods.proposals import Genome, Proposal, size_of
from evomal.runs.canonical import canonical, parsed
from evomal.text import short_repr, shorten

MAX_GENOME = 1_000_000
MAX_WEIGHTS = 100_000
MAX_WORD = 1_000
MAX_SENTENCE = 10_000
_MAX_INTEGER = 2**63 - 1  # SQLite's


@dataclass(frozen=True, kw_only=True)
class RecordedCandidate:
    """A candidate as recorded; equal where everything but the time it took is equal.

    `index` is its place in the generation, `parents` are places in the generation before. `fitness` is infinite where
    there is none; weights may be NaN or infinite, where that is how it ended.
    """

    generation: int
    index: int
    origin: str
    parents: tuple[int, ...]
    genome: str
    state: State
    fitness: float = math.inf
    sentence: str = ""
    weights: tuple[float, ...] = ()
    fingerprint: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        checked: dict[str, Any] = {
            "generation": whole("generation", self.generation),
            "index": whole("index", self.index),
            "origin": checked_text("origin", self.origin, MAX_WORD),
            "parents": tuple(whole("a parent", parent) for parent in self.parents),
            "genome": checked_text("genome", self.genome, MAX_GENOME),
            "state": _state(self.state),
            "fitness": number("fitness", self.fitness),
            "sentence": _storable(self.sentence),
            "weights": tuple(number("a weight", weight) for weight in self.weights),
            "fingerprint": None
            if self.fingerprint is None
            else checked_text("fingerprint", self.fingerprint, MAX_GENOME),
            "seconds": {
                checked_text("a stage", stage, MAX_WORD): number(f"seconds of {stage}", taken)
                for stage, taken in self.seconds.items()
            },
        }
        if len(checked["weights"]) > MAX_WEIGHTS:
            raise InputError(f"a candidate must have at most {MAX_WEIGHTS} weights but got {len(checked['weights'])}")
        for stage, taken in checked["seconds"].items():
            if not 0 <= taken < math.inf:
                raise InputError(f"seconds of {stage} must be finite and at least 0 but got {taken}")
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self.outcome()  # which has rules of its own for what goes with what

    def __repr__(self) -> str:
        fitness = f", fitness={self.fitness:.4g}" if math.isfinite(self.fitness) else ""
        return f"RecordedCandidate({self.generation}:{self.index} {shorten(self.genome, 60)!r}, {self.state}{fitness})"

    @classmethod
    def of(cls, generation: int, index: int, proposal: Proposal, outcome: Outcome) -> "RecordedCandidate":
        """What was proposed at this place, and what became of it."""
        return cls(
            generation=generation,
            index=index,
            origin=proposal.origin,
            parents=proposal.parents,
            genome=genome_text(proposal.genome),
            state=outcome.state,
            fitness=outcome.fitness,
            sentence=outcome.sentence,
            weights=outcome.weights,
            fingerprint=outcome.fingerprint,
            seconds=outcome.seconds,
        )

    @property
    def size(self) -> int | None:
        """Nodes of its tree, for other genomes what `size_of` says; None where the text is no genome."""
        try:
            return size_of(genome_from(self.genome))
        except InputError:
            return None

    def outcome(self) -> Outcome:
        """The outcome, to be told instead of computed."""
        return Outcome(self.state, self.fitness, self.sentence, self.weights, self.fingerprint, self.seconds)


def genome_text(genome: Genome) -> str:
    """A genome as the record holds it: a tree's own text, the exact numbers as a JSON list, or a form's name."""
    return canonical([float(number) for number in genome]) if isinstance(genome, tuple) else str(genome)


def genome_from(text: str) -> Genome:
    """The genome of such a text.

    Raises:
        InputError: The text is neither a tree nor a list of numbers nor a name.
    """
    if not text.startswith("["):
        return _tree(text) if "(" in text else text
    found = parsed(text)
    if not isinstance(found, list) or not all(type(number) is float and math.isfinite(number) for number in found):
        raise InputError("must be a list of finite numbers")
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _tree(text: str) -> Expression:
    """Of a search most candidates are looked at several times, and elites are recorded anew in each generation."""
    return Expression.parse(text, fragment=True)


def to_row(candidate: RecordedCandidate, chunk: int) -> tuple[int | str | None, ...]:
    """The columns of `candidates`. Floats become text: SQLite's own would lose the sign of zero, and NaN."""
    return (
        candidate.generation,
        candidate.index,
        chunk,
        candidate.origin,
        canonical(candidate.parents),
        candidate.genome,
        str(candidate.state),
        None if candidate.fitness == math.inf else repr(candidate.fitness),
        candidate.sentence,
        canonical([weight if math.isfinite(weight) else repr(weight) for weight in candidate.weights]),
        candidate.fingerprint,
        canonical(candidate.seconds),
    )


def from_row(row: Sequence[Any]) -> tuple[RecordedCandidate, int]:
    """The candidate a row describes and its chunk; InputError where the row cannot have been written by `to_row`."""
    generation, index, chunk, origin, parents, genome, state, fitness, sentence, weights, fingerprint, seconds = row
    texts = (origin, parents, genome, state, sentence, weights, seconds)
    if not all(isinstance(text, str) for text in texts) or not isinstance(fitness, str | None):
        raise InputError("holds something else where a text was expected")
    try:
        candidate = RecordedCandidate(
            generation=generation,
            index=index,
            origin=origin,
            parents=tuple(parsed(parents)),
            genome=genome,
            state=state,
            fitness=math.inf if fitness is None else float(fitness),
            sentence=sentence,
            weights=tuple(float(weight) for weight in parsed(weights)),
            fingerprint=fingerprint,
            seconds=dict(parsed(seconds)),
        )
        is_exact = to_row(candidate, whole("chunk", chunk)) == tuple(row)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(str(error)) from None
    if not is_exact:
        raise InputError("is not written in canonical form")
    return candidate, chunk


def content(candidate: RecordedCandidate) -> dict[str, Any]:
    """What two equal runs share of a candidate, as JSON values: everything but times."""
    generation, index, _, origin, _, genome, state, fitness, sentence, weights, fingerprint, _ = to_row(candidate, 0)
    return {
        "generation": generation,
        "index": index,
        "origin": origin,
        "parents": list(candidate.parents),
        "genome": genome,
        "state": state,
        "fitness": fitness,
        "sentence": sentence,
        "weights": parsed(str(weights)),
        "fingerprint": fingerprint,
    }


def _state(value: str) -> State:
    try:
        return State(value)
    except ValueError:
        raise InputError(f"state must be one of {', '.join(State)} but got {short_repr(value)}") from None


def whole(name: str, value: Any) -> int:
    """The value as a whole number of at least 0 that SQLite can hold, or an error."""
    return whole_number(name, value, at_least=0, at_most=_MAX_INTEGER)


def number(name: str, value: Any) -> float:
    """The value as a float, or an error."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise InputError(f"{name} must be a number but got {short_repr(value)}")
    return float(value)


def checked_text(name: str, value: Any, longest: int) -> str:
    """The text itself, or an error where SQLite could not hold it or nobody would read it."""
    if not isinstance(value, str) or not value or len(value) > longest:
        raise InputError(f"{name} must be a text of 1 to {longest} characters but got {short_repr(value)}")
    if _storable(value, longest) != value:
        raise InputError(f"{name} must be proper Unicode but got {short_repr(value)}")
    return str(value)  # a plain one: enumerations are texts too


def _storable(value: str, longest: int = MAX_SENTENCE) -> str:
    """A text that SQLite can hold: sentences may quote an exception, and those can hold anything at any length."""
    text = str(value).encode("utf-8", "backslashreplace").decode()
    return shorten(text, longest)
