"""Splitting rows into training, validation and test."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evomal.errors import InputError
from evomal.randomness import generator
from evomal.text import plural, short_repr

RowNumbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """Row numbers of the three parts, each sorted."""

    train: RowNumbers
    validation: RowNumbers
    test: RowNumbers


def split_rows(
    rows: int, *, validation: float, test: float, labels: npt.NDArray[np.int64] | None = None, seed: int
) -> Split:
    """Split rows at random into validation and test, by their shares, and training; stratified if labels are given."""
    counts = _counts(rows, validation, test)
    remaining: RowNumbers = np.arange(rows)
    parts = []
    for name, count in (("test", counts[1]), ("validation", counts[0])):
        remaining, part = _taken(remaining, count, labels, name, seed)
        parts.append(part)
    return Split(np.sort(remaining), np.sort(parts[1]), np.sort(parts[0]))


def split_groups(
    groups: RowNumbers, *, validation: float, test: float, labels: npt.NDArray[np.int64] | None = None, seed: int
) -> Split:
    """Split rows so that no group is in two parts, as near to the shares of rows and classes as the groups allow."""
    counts = _counts(len(groups), validation, test)
    shares = np.array([len(groups) - sum(counts), *counts]) / len(groups)
    # The rows of each group by class, and in the last column all of them: a part should hold its share of each.
    sizes = np.zeros((int(groups.max()) + 1, 2 if labels is None else int(labels.max()) + 2))
    np.add.at(sizes, (groups, np.zeros_like(groups) if labels is None else labels), 1)
    sizes[:, -1] = sizes.sum(1)
    if len(sizes) < (needed := int((shares > 0).sum())):
        raise InputError(f"groups must hold at least {needed} groups, one for each part, but hold {len(sizes)}")
    wanted = shares[:, None] * sizes.sum(0)
    scale, held = np.where(wanted > 0, wanted, np.inf), np.zeros_like(wanted)
    # The largest groups first, as small ones can even out what they leave; those of about one size at random.
    shuffled = generator(seed, "split", "groups").permutation(len(sizes))
    part_of_group = np.zeros(len(sizes), np.int64)
    for group in shuffled[np.argsort(-np.log2(sizes[shuffled, -1]).round(), kind="stable")]:
        # A group goes where most of what it brings is lacking; so an empty part comes before one that holds something.
        lacking = np.where(shares > 0, ((wanted - held) / scale) @ sizes[group], -np.inf)
        part_of_group[group] = lacking.argmax()
        held[part_of_group[group]] += sizes[group]
    found = part_of_group[groups]
    return Split(*(np.flatnonzero(found == part) for part in range(3)))


def split_in_order(keys: npt.NDArray[Any], *, validation: float, test: float) -> Split:
    """Split rows by time: the latest are the test, those before them validation; equal times stay in one part."""
    counts = _counts(len(keys), validation, test)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    # The first row of each time; a part begins at the one that is nearest to its share.
    starts = np.append(np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])), len(keys))
    cuts = [int(starts[np.abs(starts - (len(keys) - behind)).argmin()]) for behind in (sum(counts), counts[1])]
    parts = np.split(order, cuts)
    for name, part, count in zip(("train", "validation", "test"), parts, (1, *counts), strict=True):
        if count and not len(part):
            raise InputError(
                f"order leaves the {name} split empty, as rows of equal time stay together: use finer times or other "
                "shares"
            )
    return Split(*parts)


def shared_content(*parts: Sequence[npt.NDArray[np.generic]]) -> int:
    """Count the samples of later parts that have an equal sample in an earlier part; each part is a list of inputs."""
    seen: set[bytes] = set()
    shared = 0
    for inputs in parts:
        # The bytes of each sample, input after input.
        flat = [np.ascontiguousarray(own).reshape(len(own), math.prod(own.shape[1:])).view(np.uint8) for own in inputs]
        samples = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
        digests = [hashlib.sha256(sample).digest() for sample in samples]
        shared += sum(digest in seen for digest in digests)
        seen.update(digests)
    return shared


def _counts(rows: int, validation: float, test: float) -> tuple[int, int]:
    """The numbers of rows for validation and test, both of which, and training, get one."""
    shares: dict[str, Any] = {"validation": validation, "test": test}
    for name, share in shares.items():
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 <= share < 1:
            raise InputError(f"{name} must be a share of at least 0 and less than 1 but got {short_repr(share)}")
    first, second = (round(rows * share) for share in (validation, test))
    if rows <= first + second or (validation and not first) or (test and not second):
        raise InputError(
            f"every part of the data needs a row, but {plural(rows, 'row')} with shares {validation} and {test} "
            "leave one empty"
        )
    return first, second


def _taken(
    rows: RowNumbers, count: int, labels: npt.NDArray[np.int64] | None, name: str, seed: int
) -> tuple[RowNumbers, RowNumbers]:
    if count == 0:
        return rows, np.empty(0, dtype=np.int64)
    # Imported here: scikit-learn takes a second, which those who only want a loss should not wait for.
    from sklearn.model_selection import train_test_split

    stratify = None if labels is None else labels[rows]
    state = int(generator(seed, "split", name).integers(2**32))
    try:
        left, taken = train_test_split(rows, test_size=count, stratify=stratify, random_state=state)
    except ValueError:
        sizes = np.unique(rows if stratify is None else stratify, return_counts=True)[1]
        raise InputError(
            f"the {name} split cannot hold every class in its share of {plural(count, 'row')}, as there are "
            f"{plural(len(sizes), 'class')} and the rarest has {plural(int(sizes.min()), 'row')}: use a larger share, "
            'join or leave out rare classes, or use kind="regression" to predict values'
        ) from None
    return left, taken
