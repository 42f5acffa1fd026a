"""Trainings that are done, a line each, so that a comparison can go on where it was stopped."""

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evomal.engine import Score
from evomal.engine.scores import CurvePoint
from evomal.errors import EvomalError, InputError
from evomal.runs.canonical import canonical, checksum, differences, parsed
from evomal.runs.lock import FolderLock

LOG_NAME = "trainings.jsonl"


class TrainingLog:
    """`trainings.jsonl` in a folder, or nothing but memory where there is no folder.

    The first line says what is compared; each further one is a training under its key. A line that was cut off while
    it was written is dropped; any other that does not match its checksum is an error.
    """

    def __init__(self, folder: Path | None, description: Mapping[str, Any]) -> None:
        self._scores: dict[str, Score] = {}
        self._path = None if folder is None else folder / LOG_NAME
        self._lock: FolderLock | None = None
        if folder is None or self._path is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise InputError(f"{folder}: is a file, but a folder for the comparison was expected") from None
        except OSError as error:
            raise EvomalError(f"{folder}: cannot be made: {error.strerror}") from None
        self._lock = FolderLock(folder)
        try:
            if self._path.exists():
                self._read(self._path, description)
            else:
                self._append({"comparison": dict(description)})
        except BaseException:
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lock is not None:
            self._lock.release()

    def __len__(self) -> int:
        """How many trainings are done."""
        return len(self._scores)

    def __contains__(self, key: Mapping[str, Any]) -> bool:
        """Whether the training under that key is done."""
        return canonical(dict(key)) in self._scores

    def __getitem__(self, key: Mapping[str, Any]) -> Score:
        """The training under that key."""
        return self._scores[canonical(dict(key))]

    def add(self, keys: Sequence[Mapping[str, Any]], scores: Sequence[Score]) -> None:
        """Trainings that were done together, all in one line: a part of them could not be done again alike."""
        entries = [{"training": dict(key), "score": _content(score)} for key, score in zip(keys, scores, strict=True)]
        self._append({"trainings": entries})
        self._scores |= {canonical(dict(key)): score for key, score in zip(keys, scores, strict=True)}

    def _append(self, content: dict[str, Any]) -> None:
        if self._path is None:
            return
        line = canonical([checksum(content), content]) + "\n"
        try:
            with self._path.open("ab") as file:
                file.write(line.encode())
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise EvomalError(f"{self._path}: cannot be written: {error.strerror}") from None

    def _read(self, path: Path, description: Mapping[str, Any]) -> None:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise EvomalError(f"{path}: cannot be read: {error.strerror}") from None
        whole, _, cut_off = content.rpartition(b"\n")
        if cut_off:
            with path.open("r+b") as file:
                file.truncate(len(content) - len(cut_off))
        lines = whole.split(b"\n") if whole else []
        entries = [_checked(line, f"{path}: line {number}") for number, line in enumerate(lines, 1)]
        if not entries:
            self._append({"comparison": dict(description)})
            return
        differing = differences(entries[0].get("comparison", {}), description)
        if differing:
            raise InputError(f"{path}: is of another comparison: {'; '.join(map(str, differing))}")
        for line in entries[1:]:
            for entry in line.get("trainings", []):
                self._scores[canonical(entry["training"])] = _score(entry["score"])


def _checked(line: bytes, place: str) -> dict[str, Any]:
    try:
        proof, content = parsed(line.decode())
        if not isinstance(content, dict) or checksum(content) != proof:
            raise InputError("does not match its checksum")
    except (InputError, TypeError, ValueError) as error:
        reason = error if isinstance(error, InputError) else "is not what evomal writes"
        raise InputError(f"{place} is damaged: {reason}") from None
    return content


def _content(score: Score) -> dict[str, Any]:
    """JSON has no infinity and no NaN: what is not finite is left out, and stands for divergence."""
    return {
        "test": _number(score.test), "validation": _number(score.validation), "metrics": _numbers(score.metrics),
        "curve": [[point.step, _number(point.training_loss), _number(point.validation)] for point in score.curve],
        "seed": score.seed, "steps": score.steps, "outcome": score.outcome, "sentence": score.sentence,
        "milestones": list(score.milestones),
    }  # fmt: skip


def _score(content: Mapping[str, Any]) -> Score:
    try:
        return Score(
            test=_value(content["test"]), validation=_value(content["validation"]),
            metrics={name: _value(number) for name, number in content["metrics"].items()},
            curve=[CurvePoint(step, _value(loss), _value(validation)) for step, loss, validation in content["curve"]],
            seed=content["seed"], steps=content["steps"], outcome=content["outcome"], sentence=content["sentence"],
            milestones=tuple(content["milestones"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"a recorded training is not what evomal writes: {error}") from None


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _numbers(values: Mapping[str, float]) -> dict[str, float | None]:
    return {name: _number(value) for name, value in values.items()}


def _value(number: float | None) -> float:
    return math.nan if number is None else float(number)
