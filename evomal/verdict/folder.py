"""The folder of a comparison: the log of trainings from which it is resumed, and the files of its result."""

import contextlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from pydantic import BaseModel, ValidationError

from evomal.engine import Score
from evomal.errors import EvomalError, InputError, StoppedError
from evomal.files import create_folder, find_foreign, open_foreign, read_foreign, write_atomically
from evomal.runs.canonical import canonical, checksum, differences, parsed
from evomal.runs.lock import FolderLock
from evomal.text import shorten
from evomal.verdict.comparison import Comparison, Document, RateCurve, RecordedScore, Transfer, score_to_dict
from evomal.verdict.tables import comparison_markdown
from evomal.verdict.words import Verdict

LOG_NAME = "trainings.jsonl"
FINAL_RECIPE = "final_recipe"
"""The part of a log's description that older logs do not have; they are continued without it."""
Result = Comparison | Transfer | RateCurve
AnyResult = TypeVar("AnyResult", bound=Document)
_LONGEST, _LONGEST_LOG = 64_000_000, 256_000_000  # bytes
_LONGEST_SENTENCE, _LONGEST_TEXT = 1_000, 100_000  # characters
_MOST_SENTENCES = 1_000
_MOST_VERDICTS = 50  # on one page


class _FirstLine(BaseModel):
    """The first line of a log."""

    comparison: dict[str, Any]


class _Training(BaseModel):
    """One trial in a line of a log."""

    training: dict[str, Any]
    score: RecordedScore


class _Line(BaseModel):
    """Each further line of a log."""

    trainings: list[_Training]


class TrainingLog:
    """The file `trainings.jsonl` in a folder, or only memory if there is no folder.

    The first line says what is compared; each further one holds trials with their keys and scores. A line that was cut
    off while it was written is dropped; any other line that does not match its checksum is an error.
    """

    def __init__(self, folder: Path | None, description: Mapping[str, Any]) -> None:
        self._scores: dict[str, Score] = {}
        self._path = None if folder is None else folder / LOG_NAME
        self._lock: FolderLock | None = None
        self._is_new = False
        if folder is None or self._path is None:
            return
        self._lock = FolderLock(create_folder(folder), "comparison")
        try:
            self._is_new = not os.path.lexists(self._path)
            if not self._is_new:
                self._read(self._path, description)
            else:
                self._append({"comparison": dict(description)})
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        # As with the record of a search: what an error of a metric leaves must not refuse the mended metric.
        is_failed = isinstance(error, EvomalError) and not isinstance(error, StoppedError)
        if is_failed and self._is_new and not self._scores and self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
        if self._lock is not None:
            self._lock.release()

    def __contains__(self, key: Mapping[str, Any]) -> bool:
        """Whether there is a score under that key."""
        return canonical(dict(key)) in self._scores

    def __getitem__(self, key: Mapping[str, Any]) -> Score:
        """The score under that key."""
        return self._scores[canonical(dict(key))]

    def add(self, keys: Sequence[Mapping[str, Any]], scores: Sequence[Score]) -> None:
        """Log trials that were trained together in one line, so that the log holds all of them or none."""
        pairs = list(zip(keys, scores, strict=True))
        self._append({"trainings": [{"training": dict(key), "score": score_to_dict(score)} for key, score in pairs]})
        self._scores |= {canonical(dict(key)): score for key, score in pairs}

    def _append(self, content: dict[str, Any]) -> None:
        if self._path is None:
            return
        line = canonical([checksum(content), content]) + "\n"
        with open_foreign(self._path, writable=True, create=True) as file:
            if file.seek(0, os.SEEK_END) + len(line) > _LONGEST_LOG:
                raise EvomalError(f"{self._path}: a log has at most {_LONGEST_LOG:,} bytes, and this one is full")
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def _read(self, path: Path, description: Mapping[str, Any]) -> None:
        content = read_foreign(path, limit=_LONGEST_LOG)
        whole, _, cut_off = content.rpartition(b"\n")
        if cut_off:
            with open_foreign(path, writable=True) as file:
                file.truncate(len(content) - len(cut_off))
        if not whole:
            self._append({"comparison": dict(description)})
            return
        # One after the other, since a line in memory is several times as large as in the file.
        entries = (_checked(line, f"{path}: line {number}") for number, line in enumerate(whole.split(b"\n"), 1))
        try:
            begun = _FirstLine.model_validate(next(entries)).comparison
            trainings = [training for entry in entries for training in _Line.model_validate(entry).trainings]
        except (ValidationError, RecursionError):
            raise InputError(f"{path}: is not what evomal writes, although its checksums match") from None
        given = {name: value for name, value in description.items() if name != FINAL_RECIPE or name in begun}
        differing = differences(begun, given)
        if differing and not trainings:  # it ended before anything was trained
            path.unlink()
            self._append({"comparison": dict(description)})
        elif differing:
            raise InputError(f"{path}: belongs to another comparison: {'; '.join(map(str, differing))}")
        self._scores |= {canonical(entry.training): entry.score for entry in trainings}


def _checked(line: bytes, place: str) -> dict[str, Any]:
    try:
        proof, content = parsed(line.decode())
        if not isinstance(content, dict) or checksum(content) != proof:
            raise InputError("does not match its checksum")
    except (InputError, TypeError, ValueError) as error:
        reason = error if isinstance(error, InputError) else "is not what evomal writes"
        raise InputError(f"{place} is damaged: {reason}") from None
    return content


def comparisons_of(result: Result) -> dict[str, Comparison]:
    """The comparisons of a result: one without a name, or one for each learning rate."""
    if isinstance(result, RateCurve):
        return {f"lr {rate:g}": found for rate, found in result.comparisons.items()}
    return {"": result.comparison if isinstance(result, Transfer) else result}


def _markdown_parts(result: Result, *, verdicts: bool) -> Iterator[str]:
    """The tables of a result, below one heading per learning rate where there are several."""
    for place, (name, found) in enumerate(comparisons_of(result).items()):
        heading = f"## {name}\n\n" if name else ""
        separator = "\n" if place else ""
        yield separator + heading + comparison_markdown(found, verdicts=verdicts)


def write_result(result: Result, folder: Path) -> list[Path]:
    """Write the result to the folder as JSON and as Markdown, and return the two files."""
    content = json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"
    name = result.file_name
    markdown = "".join(_markdown_parts(result, verdicts=True))
    texts = {folder / f"{name}.json": content, folder / f"{name}.md": markdown}
    for path, text in texts.items():
        write_atomically(path, text.encode())
    return list(texts)


def read_result(kind: type[AnyResult], folder: Path) -> AnyResult | None:
    """The result of that kind that the folder holds; None if there is none, InputError if it cannot be read."""
    path = folder / f"{kind.file_name}.json"
    content = find_foreign(path, limit=_LONGEST)
    if content is None:
        return None
    try:
        return kind.from_dict(parsed(content.decode()))
    except ValueError as error:  # also an InputError
        raise InputError(f"{path}: {error}") from None


@dataclass(frozen=True)
class RecordedVerdict:
    """A result in a folder, as reports show it."""

    title: str
    result: Result
    sentences: tuple[Verdict, ...]
    """The verdicts; at several learning rates, each with its learning rate."""
    text: str
    """The tables as Markdown, without the sentences of the verdicts."""


@dataclass(frozen=True)
class RecordedVerdicts:
    """The results in a folder, and notes on those that cannot be read or are not complete."""

    verdicts: tuple[RecordedVerdict, ...]
    notes: tuple[str, ...]
    is_begun: bool
    """Whether there is a comparison in the folder, perhaps without a verdict yet."""


def recorded_verdicts(folder: Path) -> RecordedVerdicts:
    """Read the results of `evomal compare` and `evomal transfer` in the folder; the files may be untrusted."""
    found, notes = [], []
    for kind in (Comparison, Transfer, RateCurve):
        try:
            result = cast("Result | None", read_result(kind, folder))
            if result is not None:
                sentences = tuple(itertools.islice(_sentences(result), _MOST_SENTENCES))
                found.append(RecordedVerdict(kind.title, result, sentences, _shortened_markdown(result)))
        except InputError as error:
            notes.append(str(error))
        except (ValueError, TypeError, ArithmeticError, LookupError):  # values that no comparison has
            notes.append(f"{folder}: the {kind.file_name} in it is not what evomal writes")
    begun = os.path.lexists(folder / LOG_NAME)
    if begun and not found and not notes:
        notes.append("a comparison was begun here but is not complete: give the same command again to resume it")
    return RecordedVerdicts(tuple(found), tuple(notes), begun or bool(found) or bool(notes))


def verdicts_of_runs(folders: Sequence[Path]) -> RecordedVerdicts:
    """Read the results in the folders of runs, each below the name of its folder."""
    found = {folder: recorded_verdicts(folder) for folder in folders}
    verdicts = [replace(one, title=f"{one.title}: {path.name}") for path, own in found.items() for one in own.verdicts]
    notes = [note for own in found.values() for note in own.notes]
    is_begun = any(own.is_begun for own in found.values())
    return RecordedVerdicts(tuple(verdicts[:_MOST_VERDICTS]), tuple(notes), is_begun)


def _shortened_markdown(result: Result) -> str:
    """The tables of a result, cut off where they would be too long for a page."""
    text = ""
    for part in _markdown_parts(result, verdicts=False):
        text += part
        if len(text) > _LONGEST_TEXT:
            return f"{text[:_LONGEST_TEXT].rpartition(chr(10))[0]}\n\n… and more: see {result.file_name}.md\n"
    return text


def _sentences(result: Result) -> Iterator[Verdict]:
    for name, comparison in comparisons_of(result).items():
        for found in comparison.verdicts.values():
            sentence = f"{name}: {found.sentence}" if name else found.sentence
            yield Verdict(found.kind, shorten(sentence, _LONGEST_SENTENCE))
