"""A loss along one line, scanned from end to end."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

FloatArray = npt.NDArray[np.float64]

WIDE = 1e3
"""How far to either side the lowest value is looked for."""

# The exponents double from rung to rung. A loss that falls without bound then falls by no less from each rung to the
# next, even as slowly as -log(log(x)), and one that falls to a limit by half at most, even as slowly as 1/log(x).
LADDER = 10.0 ** np.array([0.75, 1.5, 3.0, 6.0])
"""Places, to either side, that show whether a loss keeps falling."""
_KEEPS_FALLING = 0.75

SAME = 1e-6  # of the spread of the values
ROUNDING = 1e-9  # of a value, a gradient or a spread


@dataclass(frozen=True)
class Line:
    """A loss along the coordinate its gradient is taken by: the error, or the log-odds of p."""

    name: str
    loss_at: Callable[[Tensor], Tensor]
    goal: float
    """Where a faithful loss is lowest."""

    def evaluated(self, places: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Values, gradients."""
        return with_gradient(self.loss_at, places)


@dataclass(frozen=True)
class Scan:
    """What was found along a line; NaN where the loss is not finite."""

    line: Line
    places: FloatArray
    values: FloatArray
    gradients: FloatArray
    lowest_at: float
    lowest: float
    fall: tuple[FloatArray, FloatArray] | None
    """Rungs and values towards the end where it keeps falling, if there is one."""

    @property
    def spread(self) -> float:
        """From the lowest finite value to the highest."""
        return _spread(self.values)

    @property
    def usual_gradient(self) -> float:
        """The size of the larger gradients, but for a few that may be far larger."""
        sizes = np.abs(self.gradients[np.isfinite(self.gradients)])
        return float(np.quantile(sizes, 0.9)) if sizes.size else 0.0

    @property
    def leaves_the_range(self) -> bool:
        """Whether the lowest value is at an end of all that was looked at, or beyond."""
        return self.fall is not None or abs(self.lowest_at) >= WIDE


def scanned(line: Line, places: FloatArray) -> Scan:
    """The line at these places, with its lowest value anywhere and its fall towards either end."""
    values, gradients = map(single_precision, line.evaluated(places))
    beyond = np.geomspace(np.abs(places).max(), WIDE, 61)[1:]
    around = np.concatenate((-beyond[::-1], places, beyond))
    lowest_at, lowest = _lowest(line, around)
    falls = (_fall(line, side * LADDER, _spread(values)) for side in (-1, 1))
    fall = next((found for found in falls if found is not None), None)
    return Scan(line, places, values, gradients, lowest_at, lowest, fall)


def with_gradient(function: Callable[[Tensor], Tensor], places: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The function's values at the places, each with its derivative, even where gradients are switched off."""
    with torch.enable_grad():
        line = torch.tensor(places, requires_grad=True)
        values = function(line)
        (gradients,) = torch.autograd.grad(values.sum(), line)
    return values.detach().numpy(), gradients.numpy()


def single_precision(values: FloatArray) -> FloatArray:
    """The values with NaN for what overflows where losses are trained, though it is finite in double precision."""
    return np.where(np.abs(values) <= np.finfo(np.float32).max, values, np.nan)


def _lowest(line: Line, places: FloatArray) -> tuple[float, float]:
    """The place of the lowest value, and the value: the goal's where it is as low as any."""
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
    """The rungs with their values, if the loss falls to the last one with no sign of stopping."""
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


def _spread(values: FloatArray) -> float:
    finite = values[np.isfinite(values)]
    return float(np.ptp(finite)) if finite.size else 0.0
