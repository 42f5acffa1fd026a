"""Properties of a loss, such as a minimum at the right place: measured along lines and described in sentences."""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor

from evomal.checks import Kind
from evomal.figures.data import single_precision, span, with_gradient
from evomal.figures.style import FloatArray
from evomal.text import plural

WIDE = 1e3
"""The lowest value is searched for up to this distance to either side."""

# The exponents double from place to place. A loss that falls without bound, even as slowly as -log(log(x)), then falls
# by no less from each place to the next; one that falls to a limit, even as slowly as 1/log(x), by at most half.
FAR_PLACES = 10.0 ** np.array([0.75, 1.5, 3.0, 6.0])
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
    falls = (_fall(line, side * FAR_PLACES, span(values)) for side in (-1, 1))
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


def _fall(line: Line, places: FloatArray, spread: float) -> tuple[FloatArray, FloatArray] | None:
    """The places with their values, if the loss falls up to the last one and does not slow down."""
    values = line.evaluated(places)[0]
    known = np.isnan(values).argmax() if np.isnan(values).any() else len(values)
    places, values = places[:known], values[:known]
    if np.isneginf(values).any():
        last = int(np.isneginf(values).argmax()) + 1
        return places[:last], values[:last]
    if known < 3 or not np.isfinite(values).all():
        return None
    with np.errstate(over="ignore"):
        drops = -np.diff(values)
    noise = SAME * spread + ROUNDING * abs(values[-1])
    return (places, values) if drops[-1] > noise and drops[-1] >= _KEEPS_FALLING * drops[-2] else None


_AT_THE_GOAL, _UNNOTICED = 0.01, 5e-4  # units of the error
_FLAT = 1e-6  # of the larger gradients
_SHOWN_PLACES = 3
_GOALS: dict[Kind, str] = {"regression": "f = y", "multilabel": "p = y", "classification": "p = 1"}
_RANGES: dict[Kind, str] = {
    "regression": "f - y from -3 to 3 at y = -1, 0 and 1",
    "multilabel": "p from 0.001 to 0.999 at y = 1 and 0",
    "classification": "p from 0.001 to 0.999 with {classes} classes",
}


@dataclass(frozen=True)
class Property:
    """A property that a loss has or lacks, as measured."""

    name: str
    holds: bool
    sentence: str


_Judgement = tuple[bool, str]
"""Whether a property holds, and the sentence that says so."""


def properties_of(kind: Kind, classes: int, scans: Sequence[Scan]) -> Iterator[Property]:
    """Return the properties that scans show; if a line is finite nowhere, only the first can be judged."""
    loss = _ScannedLoss(kind, scans)
    yield Property("finite", *_finiteness(loss, _RANGES[kind].format(classes=classes)))
    judges: dict[str, Callable[[_ScannedLoss], _Judgement]] = {
        "bounded below": _boundedness,
        "non-negative": _sign,
        f"minimum at {_GOALS[kind]}": _minimum,
        "gradient never vanishes": _gradient,
    }
    if kind == "regression":
        judges |= {"symmetric in the error": _symmetry, "depends on the error alone": _dependence}
    else:
        judges["monotone in p"] = _monotonicity
    unknown = loss.together([("finite nowhere", scan) for scan in scans if np.isnan(scan.lowest)])
    for name, judge in judges.items():
        yield Property(name, *((False, f"cannot be judged: {unknown[0]}") if unknown else judge(loss)))


@dataclass(frozen=True)
class _ScannedLoss:
    """The scans of all lines, and how sentences name lines and positions."""

    kind: Kind
    scans: Sequence[Scan]

    def place(self, place: float) -> str:
        if self.kind != "regression" and abs(place) >= WIDE:
            return f"log-odds of {_number(place)}"
        return self.near(place)

    def near(self, place: float) -> str:
        """A position up to the ends of the wide range, where p is 0 or 1 in double precision."""
        return f"{'f - y' if self.kind == 'regression' else 'p'} = {self.coordinate(place)}"

    def coordinate(self, place: float) -> str:
        # The logistic function in a form that never overflows.
        return _number(place if self.kind == "regression" else (1 + math.tanh(place / 2)) / 2)

    def stretch(self, scan: Scan, start: int, stop: int) -> str:
        return f"from {self.place(scan.places[start])} to {self.coordinate(scan.places[stop])}"

    def of(self, *scans: Scan) -> str:
        if self.kind == "classification":
            return ""
        return f" (y = {', '.join(scan.line.name.removeprefix('y = ') for scan in scans)})"

    def together(self, findings: Sequence[tuple[str, Scan]]) -> list[str]:
        """Each finding once, followed by the lines it was made on unless those are all lines."""
        about: dict[str, list[Scan]] = {}
        for finding, scan in findings:
            about.setdefault(finding, []).append(scan)
        return [text + (self.of(*where) if len(where) < len(self.scans) else "") for text, where in about.items()]


def _finiteness(loss: _ScannedLoss, tested: str) -> _Judgement:
    broken = [
        (scan, place)
        for scan in loss.scans
        for place in scan.places[~np.isfinite(scan.values) | ~np.isfinite(scan.gradients)]
    ]
    if not broken:
        return True, f"value and gradient are finite for {tested}"
    scan, place = broken[0]
    total = sum(len(scan.places) for scan in loss.scans)
    first = f"{loss.place(place)}{loss.of(scan)}"
    return False, f"no finite value or gradient at {len(broken)} of {total} places, first {first}"


def _boundedness(loss: _ScannedLoss) -> _Judgement:
    falling = [(scan, scan.fall) for scan in loss.scans if scan.fall is not None]
    if not falling:
        return True, f"does not keep falling towards {loss.place(-FAR_PLACES[-1])} or {_number(FAR_PLACES[-1])}"
    (first, (places, values)), *others = falling
    last = zip(places[-2:], values[-2:], strict=True)
    way = " and ".join(f"{_number(value)} at {loss.place(place)}" for place, value in last)
    also = f"; likewise{loss.of(*(scan for scan, _ in others))}" if others else ""
    return False, f"keeps falling: {way}{loss.of(first)}{also}"


def _sign(loss: _ScannedLoss) -> _Judgement:
    falling = [("keeps falling, so it is negative in the end", scan) for scan in loss.scans if scan.fall is not None]
    if falling:
        return False, loss.together(falling)[0]
    scan = min(loss.scans, key=lambda scan: scan.lowest)
    holds = scan.lowest >= -ROUNDING * scan.spread
    where = f"{_number(scan.lowest)} at {loss.near(scan.lowest_at)}{loss.of(scan)}"
    return holds, f"{'lowest value' if holds else 'falls to'} {where}"


def _minimum(loss: _ScannedLoss) -> _Judgement:
    holds = all(scan.fall is None and _is_at_goal(loss.kind, scan) for scan in loss.scans)
    if holds and (loss.kind != "regression" or all(abs(scan.lowest_at) < _UNNOTICED for scan in loss.scans)):
        return True, f"lowest at {_GOALS[loss.kind]}"
    found = ", ".join(loss.together([(_lowest_words(loss, scan), scan) for scan in loss.scans]))
    is_inside = loss.kind == "classification" and not loss.scans[0].leaves_the_range
    return holds, f"lowest {found}{', so it lowers p above that' if is_inside else ''}"


def _is_at_goal(kind: Kind, scan: Scan) -> bool:
    if kind == "regression":
        return abs(scan.lowest_at) <= _AT_THE_GOAL
    towards_goal = scan.lowest_at if scan.line.goal > 0 else -scan.lowest_at
    return towards_goal >= float(np.abs(scan.places).max())


def _lowest_words(loss: _ScannedLoss, scan: Scan) -> str:
    if scan.fall is not None:
        return "nowhere, as it keeps falling"
    if loss.kind == "regression":
        return f"{'towards' if scan.leaves_the_range else 'at'} {loss.place(scan.lowest_at)}"
    return f"at p* = {loss.coordinate(scan.lowest_at)}"


def _gradient(loss: _ScannedLoss) -> _Judgement:
    if not any((np.abs(scan.gradients) > 0).any() for scan in loss.scans):
        return False, "zero everywhere, so nothing can be learned from it"
    findings = []
    for scan in loss.scans:
        findings += [(f"almost zero {loss.stretch(scan, *ends)}", scan) for ends in _flat_stretches(scan)]
        findings += [(f"changes sign at {loss.place(place)}", scan) for place in _turns(scan)]
    if not findings:
        return True, "no flat stretch, and no change of sign except at the minimum"
    found = loss.together(findings)
    hidden = len(found) - _SHOWN_PLACES
    more = f"; {plural(hidden, 'more such place')}" if hidden > 0 else ""
    return False, "; ".join(found[:_SHOWN_PLACES]) + more


def _flat_stretches(scan: Scan) -> Iterator[tuple[int, int]]:
    """First and last index of stretches where the gradient is almost zero.

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


def _monotonicity(loss: _ScannedLoss) -> _Judgement:
    for scan in loss.scans:
        if scan.spread == 0:
            return False, f"does not change with p{loss.of(scan)}"
        wanted = -float(np.sign(scan.line.goal))
        against = np.diff(scan.values) * wanted < -ROUNDING * scan.spread
        if against.any():
            start = int(against.argmax())
            stop = start + int(np.append(~against[start:], True).argmax())
            return False, f"{'rises' if wanted < 0 else 'falls'} {loss.stretch(scan, start, stop)}{loss.of(scan)}"
    falls = {"classification": "falls everywhere as p grows", "multilabel": "falls at y = 1 and rises at y = 0"}
    return True, falls[loss.kind]


def _symmetry(loss: _ScannedLoss) -> _Judgement:
    gaps = np.nan_to_num([scan.values - scan.values[::-1] for scan in loss.scans])
    row, column = (int(index) for index in np.unravel_index(gaps.argmax(), gaps.shape))
    scan = loss.scans[row]
    if gaps[row, column] <= SAME * scan.spread:
        return True, "errors of either sign cost the same"
    one, other = (
        f"of {_number(scan.places[index])} costs {_number(scan.values[index])}" for index in (column, -1 - column)
    )
    return False, f"an error {one} and one {other}{loss.of(scan)}"


def _dependence(loss: _ScannedLoss) -> _Judgement:
    values = np.stack([scan.values for scan in loss.scans])
    gaps = np.nan_to_num(np.ptp(values, axis=0))
    column = int(gaps.argmax())
    if gaps[column] <= SAME * max(scan.spread for scan in loss.scans):
        return True, "the same at y = -1, 0 and 1"
    least, most = (
        f"{_number(values[row, column])} at {loss.scans[row].line.name}"
        for row in (int(values[:, column].argmin()), int(values[:, column].argmax()))
    )
    return False, f"an error of {_number(loss.scans[0].places[column])} costs {least} and {most}"


def _number(number: float) -> str:
    text = f"{number + 0.0:.4g}"  # the sum makes a negative zero positive
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else text
