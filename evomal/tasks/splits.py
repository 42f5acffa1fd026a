"""Splitting rows into training, validation and test."""

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evomal.errors import InputError
from evomal.randomness import generator
from evomal.text import short_repr

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Row numbers of the three parts, each sorted."""

    train: Rows
    validation: Rows
    test: Rows


def split_rows(
    rows: int, *, validation: float, test: float, labels: npt.NDArray[np.int64] | None = None, seed: int
) -> Split:
    """Split rows at random into validation and test, by their shares, and training; stratified if labels are given."""
    shares: dict[str, Any] = {"validation": validation, "test": test}
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
            raise InputError(f"{name} must be a share of at least 0 and less than 1 but got {short_repr(share)}")
    counts = [round(rows * share) for share in (validation, test)]
    if rows <= sum(counts) or (validation and not counts[0]) or (test and not counts[1]):
        raise InputError(
            f"every part of the data needs a row, but {rows} rows with shares {validation} and {test} leave one empty"
        )
    remaining: Rows = np.arange(rows)
    parts = []
    for name, count in (("test", counts[1]), ("validation", counts[0])):
        remaining, part = _taken(remaining, count, labels, name, seed)
        parts.append(part)
    return Split(np.sort(remaining), np.sort(parts[1]), np.sort(parts[0]))


def shared_content(*parts: npt.NDArray[np.generic]) -> int:
    """Count the rows of later parts that have an equal row in an earlier part."""
    seen: set[bytes] = set()
    shared = 0
    for part in parts:
        digests = [hashlib.sha256(np.ascontiguousarray(row).tobytes()).digest() for row in part]
        shared += sum(digest in seen for digest in digests)
        seen.update(digests)
    return shared


def _taken(rows: Rows, count: int, labels: npt.NDArray[np.int64] | None, name: str, seed: int) -> tuple[Rows, Rows]:
    if count == 0:
        return rows, np.empty(0, dtype=np.int64)
    # Imported here: scikit-learn takes a second, which those who only want a loss should not wait for.
    from sklearn.model_selection import train_test_split

    stratify = None if labels is None else labels[rows]
    state = int(generator(seed, "split", name).integers(2**32))
    try:
        left, taken = train_test_split(rows, test_size=count, stratify=stratify, random_state=state)
    except ValueError as error:
        raise InputError(f"the {name} split cannot hold every class in its share: {error}") from None
    return left, taken
