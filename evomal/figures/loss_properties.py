"""Properties of a loss, such as a minimum at the right place: measured along lines and said in sentences."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from evomal.figures.data import single_precision, span, with_gradient
from evomal.figures.style import FloatArray
from evomal.losses.contract import Kind

WIDE = 1e3
"""The lowest value is searched for up to this distance to either side."""

# The exponents double from rung to rung. A loss that falls without bound then falls by no less from each rung to the
# next, even as slowly as -log(log(x)), and one that falls to a limit by half at most, even as slowly as 1/log(x).
LADDER = 10.0 ** np.array([0.75, 1.5, 3.0, 6.0])
"""Positions, to either side, that show whether a loss keeps falling."""
_KEEPS_FALLING = 0.75

SAME = 1e-6  # of the spread of the values
ROUNDING = 1e-9  # of a value, a gradient or a spread


@dataclass(frozen=True)
class Line:
    """A loss along the coordinate its gradient is taken by: the error, or the log-odds of p."""

    name: str
    loss_at: Callable[[Tensor], Tensor]
    goal: float
    """Where the loss should be lowest."""

    def evaluated(self, places: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return values and gradients."""
        return with_gradient(self.loss_at, places)


@dataclass(frozen=True)
class Scan:
    """A loss along a line; NaN where it is not finite."""

    line: Line
    places: FloatArray
    values: FloatArray
    gradients: FloatArray
    lowest_at: float
    lowest: float
    fall: tuple[FloatArray, FloatArray] | None
    """Positions and values towards the end where the loss keeps falling; None if it does not."""

    @property
    def spread(self) -> float:
        """The difference of the highest and the lowest finite value."""
        return span(self.values)

    @property
    def usual_gradient(self) -> float:
        """The size of the larger gradients, without the largest tenth."""
        sizes = np.abs(self.gradients[np.isfinite(self.gradients)])
        return float(np.quantile(sizes, 0.9)) if sizes.size else 0.0

    @property
    def leaves_the_range(self) -> bool:
        """Whether the lowest value is at an end of the whole range, or beyond."""
        return self.fall is not None or abs(self.lowest_at) >= WIDE


def scanned(line: Line, places: FloatArray) -> Scan:
    """Return the line at these positions, with its lowest value anywhere and its fall towards either end."""
    values, gradients = map(single_precision, line.evaluated(places))
    beyond = np.geomspace(np.abs(places).max(), WIDE, 61)[1:]
    around = np.concatenate((-beyond[::-1], places, beyond))
    lowest_at, lowest = _lowest(line, around)
    falls = (_fall(line, side * LADDER, span(values)) for side in (-1, 1))
    fall = next((found for found in falls if found is not None), None)
    return Scan(line, places, values, gradients, lowest_at, lowest, fall)


def _lowest(line: Line, places: FloatArray) -> tuple[float, float]:
    """The position of the lowest value, and that value; the goal if its value is as low."""
    for _ in range(4):
        values = single_precision(line.evaluated(places)[0])
        if not np.isfinite(values).any():
            return np.nan, np.nan
        best = int(np.nanargmin(values))
        lowest_at, lowest = float(places[best]), float(values[best])
        if best in (0, len(places) - 1):
            break
        places = np.linspace(places[best - 1], places[best + 1], 101)
    goal = np.clip(line.goal, -WIDE, WIDE)
    at_goal = single_precision(line.evaluated(np.array([goal]))[0])[0]
    return (float(goal), float(at_goal)) if at_goal <= lowest else (lowest_at, lowest)


def _fall(line: Line, rungs: FloatArray, spread: float) -> tuple[FloatArray, FloatArray] | None:
    """The rungs with their values, if the loss falls up to the last one and does not slow down."""
    values = line.evaluated(rungs)[0]
    known = np.isnan(values).argmax() if np.isnan(values).any() else len(values)
    rungs, values = rungs[:known], values[:known]
    if np.isneginf(values).any():
        last = int(np.isneginf(values).argmax()) + 1
        return rungs[:last], values[:last]
    if known < 3 or not np.isfinite(values).all():
        return None
    with np.errstate(over="ignore"):
        drops = -np.diff(values)
    noise = SAME * spread + ROUNDING * abs(values[-1])
    return (rungs, values) if drops[-1] > noise and drops[-1] >= _KEEPS_FALLING * drops[-2] else None


_AT_THE_GOAL, _UNNOTICED = 0.01, 5e-4  # units of the error
_FLAT = 1e-6  # of the larger gradients
_SHOWN_PLACES = 3


@dataclass(frozen=True)
class Property:
    """A property that a loss has or lacks, as measured."""

    name: str
    holds: bool
    sentence: str


def properties_of(kind: Kind, classes: int, scans: Sequence[Scan]) -> Iterator[Property]:
    """Return the properties that scans show; if a line is finite nowhere, only the first can be judged."""
    words = _Words(kind, classes)
    yield _finiteness(words, scans)
    judged = [_boundedness, _sign, _minimum, _gradient]
    judged += [_symmetry, _dependence] if kind == "regression" else [_monotony]
    unknown = words.together([("finite nowhere", scan) for scan in scans if np.isnan(scan.lowest)], scans)
    for judge in judged:
        found = judge(words, scans)
        yield Property(found.name, False, f"cannot be judged: {unknown[0]}") if unknown else found


@dataclass(frozen=True)
class _Words:
    kind: Kind
    classes: int

    @property
    def range(self) -> str:
        if self.kind == "regression":
            return "f - y from -3 to 3 at y = -1, 0 and 1"
        among = f"with {self.classes} classes" if self.kind == "classification" else "at y = 1 and 0"
        return f"p from 0.001 to 0.999 {among}"

    def place(self, place: float) -> str:
        if self.kind == "regression":
            return f"f - y = {_number(place)}"
        return f"p = {self.coordinate(place)}" if abs(place) < WIDE else f"log-odds of {_number(place)}"

    def near(self, place: float) -> str:
        """A position up to the ends of the wide range, where p is 0 or 1 in double precision."""
        return self.place(place) if self.kind == "regression" else f"p = {self.coordinate(place)}"

    def coordinate(self, place: float) -> str:
        # The logistic function in the form that never overflows.
        return _number(place if self.kind == "regression" else (1 + math.tanh(place / 2)) / 2)

    def of(self, *scans: Scan) -> str:
        if self.kind == "classification":
            return ""
        return f" (y = {', '.join(scan.line.name.removeprefix('y = ') for scan in scans)})"

    def together(self, findings: Sequence[tuple[str, Scan]], scans: Sequence[Scan]) -> list[str]:
        """Each finding once, followed by the lines it was made on unless those are all lines."""
        about: dict[str, list[Scan]] = {}
        for finding, scan in findings:
            about.setdefault(finding, []).append(scan)
        return [finding + (self.of(*where) if len(where) < len(scans) else "") for finding, where in about.items()]


def _finiteness(words: _Words, scans: Sequence[Scan]) -> Property:
    broken = [
        (scan, place)
        for scan in scans
        for place in scan.places[~np.isfinite(scan.values) | ~np.isfinite(scan.gradients)]
    ]
    if not broken:
        return Property("finite", True, f"value and gradient are finite for {words.range}")
    scan, place = broken[0]
    total = sum(len(scan.places) for scan in scans)
    first = f"{words.place(place)}{words.of(scan)}"
    return Property("finite", False, f"no finite value or gradient at {len(broken)} of {total} places, first {first}")


def _boundedness(words: _Words, scans: Sequence[Scan]) -> Property:
    name = "bounded below"
    falling = [scan for scan in scans if scan.fall is not None]
    if not falling:
        ends = f"{words.place(-LADDER[-1])} or {_number(LADDER[-1])}"
        return Property(name, True, f"does not keep falling towards {ends}")
    assert falling[0].fall is not None
    rungs, values = falling[0].fall
    way = " and ".join(
        f"{_number(value)} at {words.place(rung)}" for rung, value in zip(rungs[-2:], values[-2:], strict=True)
    )
    others = f"; so too{words.of(*falling[1:])}" if falling[1:] else ""
    return Property(name, False, f"keeps falling: {way}{words.of(falling[0])}{others}")


def _sign(words: _Words, scans: Sequence[Scan]) -> Property:
    name = "non-negative"
    falling = [("keeps falling, so it is negative in the end", scan) for scan in scans if scan.fall is not None]
    if falling:
        return Property(name, False, words.together(falling, scans)[0])
    scan = min(scans, key=lambda scan: scan.lowest)
    where = f"{_number(scan.lowest)} at {words.near(scan.lowest_at)}{words.of(scan)}"
    holds = scan.lowest >= -ROUNDING * scan.spread
    return Property(name, holds, f"lowest value {where}" if holds else f"falls to {where}")


def _minimum(words: _Words, scans: Sequence[Scan]) -> Property:
    goal = {"regression": "f = y", "multilabel": "p = y", "classification": "p = 1"}[words.kind]
    holds = all(scan.fall is None and _is_at_goal(words.kind, scan) for scan in scans)
    if holds and (words.kind != "regression" or all(abs(scan.lowest_at) < _UNNOTICED for scan in scans)):
        return Property(f"minimum at {goal}", True, f"lowest at {goal}")
    found = ", ".join(words.together([(_lowest_words(words, scan), scan) for scan in scans], scans))
    back = ", so it pushes p back beyond" if words.kind == "classification" and not scans[0].leaves_the_range else ""
    return Property(f"minimum at {goal}", holds, f"lowest {found}{back}")


def _is_at_goal(kind: Kind, scan: Scan) -> bool:
    if kind == "regression":
        return abs(scan.lowest_at) <= _AT_THE_GOAL
    towards_goal = scan.lowest_at if scan.line.goal > 0 else -scan.lowest_at
    return towards_goal >= float(np.abs(scan.places).max())


def _lowest_words(words: _Words, scan: Scan) -> str:
    if scan.fall is not None:
        return "nowhere, as it keeps falling"
    if words.kind == "regression":
        return f"{'towards' if scan.leaves_the_range else 'at'} {words.place(scan.lowest_at)}"
    return f"at p* = {words.coordinate(scan.lowest_at)}"


def _gradient(words: _Words, scans: Sequence[Scan]) -> Property:
    name = "gradient never vanishes"
    if not any((np.abs(scan.gradients) > 0).any() for scan in scans):
        return Property(name, False, "zero everywhere, so nothing can be learned from it")
    findings = []
    for scan in scans:
        for start, stop in _flat_stretches(scan):
            ends = f"{words.place(scan.places[start])} to {words.coordinate(scan.places[stop])}"
            findings.append((f"next to zero from {ends}", scan))
        findings += [(f"changes sign at {words.place(place)}", scan) for place in _turns(scan)]
    if not findings:
        return Property(name, True, "no flat stretch, and no change of sign but at the minimum")
    found = words.together(findings, scans)
    hidden = len(found) - _SHOWN_PLACES
    more = f"; {hidden} more such place{'s' * (hidden > 1)}" if hidden > 0 else ""
    return Property(name, False, "; ".join(found[:_SHOWN_PLACES]) + more)


def _flat_stretches(scan: Scan) -> Iterator[tuple[int, int]]:
    """First and last index of stretches where the gradient is next to zero.

    Every smooth loss is nearly flat about its minimum, so that there only a gradient of exactly zero counts.
    """
    sizes = np.abs(scan.gradients)
    bottom = int(np.abs(scan.places - scan.lowest_at).argmin())
    for start, stop in _runs(sizes <= _FLAT * scan.usual_gradient):
        if start - 1 <= bottom <= stop + 1:
            yield from ((start + first, start + last) for first, last in _runs(sizes[start : stop + 1] == 0))
        else:
            yield start, stop


def _runs(mask: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """First and last index of each stretch of at least two."""
    for is_set, group in itertools.groupby(enumerate(mask), key=lambda pair: bool(pair[1])):
        indices = [index for index, _ in group]
        if is_set and len(indices) > 1:
            yield indices[0], indices[-1]


def _turns(scan: Scan) -> Iterator[float]:
    """Where the gradient changes its sign, except at the minimum."""
    moving = np.flatnonzero(np.abs(scan.gradients) > ROUNDING * scan.usual_gradient)
    places, gradients = scan.places[moving], scan.gradients[moving]
    for index in np.flatnonzero(np.sign(gradients[1:]) != np.sign(gradients[:-1])):
        (left, right), (before, after) = places[index : index + 2], gradients[index : index + 2]
        if not (before < 0 and left <= scan.lowest_at <= right):
            yield float(np.round(left - before * (right - left) / (after - before), 12))


def _monotony(words: _Words, scans: Sequence[Scan]) -> Property:
    name = "monotone in p"
    for scan in scans:
        if scan.spread == 0:
            return Property(name, False, f"does not change with p{words.of(scan)}")
        wanted = -float(np.sign(scan.line.goal))
        against = np.diff(scan.values) * wanted < -ROUNDING * scan.spread
        if against.any():
            start = int(against.argmax())
            stop = start + int(np.append(~against[start:], True).argmax())
            ends = f"{words.place(scan.places[start])} to {words.coordinate(scan.places[stop])}"
            return Property(name, False, f"{'rises' if wanted < 0 else 'falls'} from {ends}{words.of(scan)}")
    falls = {"classification": "falls all the way as p grows", "multilabel": "falls at y = 1 and rises at y = 0"}
    return Property(name, True, falls[words.kind])


def _symmetry(words: _Words, scans: Sequence[Scan]) -> Property:
    name = "symmetric in the error"
    gaps = np.nan_to_num([scan.values - scan.values[::-1] for scan in scans])
    row, column = (int(index) for index in np.unravel_index(gaps.argmax(), gaps.shape))
    scan = scans[row]
    if gaps[row, column] <= SAME * scan.spread:
        return Property(name, True, "errors of either sign cost the same")
    one, other = (
        f"of {_number(scan.places[index])} costs {_number(scan.values[index])}" for index in (column, -1 - column)
    )
    return Property(name, False, f"an error {one} and one {other}{words.of(scan)}")


def _dependence(words: _Words, scans: Sequence[Scan]) -> Property:
    name = "depends on the error alone"
    values = np.stack([scan.values for scan in scans])
    gaps = np.nan_to_num(np.ptp(values, axis=0))
    column = int(gaps.argmax())
    if gaps[column] <= SAME * max(scan.spread for scan in scans):
        return Property(name, True, "the same at y = -1, 0 and 1")
    least, most = (
        f"{_number(values[row, column])} at {scans[row].line.name}"
        for row in (int(values[:, column].argmin()), int(values[:, column].argmax()))
    )
    return Property(name, False, f"an error of {_number(scans[0].places[column])} costs {least} and {most}")


def _number(number: float) -> str:
    text = f"{number + 0.0:.4g}"  # the sum makes a negative zero positive
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else text
