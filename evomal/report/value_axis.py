"""Axes of records: a metric upwards, something counted to the right."""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from evomal.report.harmless import cut
from evomal.report.style import in_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAR_OUT = 4.0  # times the span of all but the worst
_INNER = 0.9
_MARGIN = 0.05
_LONGEST_METRIC = 24
_FARTHEST = 1e100


def counting_axis(axes: "Axes") -> None:
    """Whole numbers to the right, also where there is one alone."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    low, high = axes.get_xlim()
    if high - low < 1:
        axes.set_xlim((low + high) / 2 - 0.5, (low + high) / 2 + 0.5)


def label_of(metric: str, *, higher_is_better: bool) -> str:
    """What the axis shows, and which way is good."""
    better = "more" if higher_is_better else "less"
    return f"validation {in_figure(cut(metric.replace('_', ' '), _LONGEST_METRIC))}\n({better} is better)"


def drawable(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The values, those brought nearer that are too far out for matplotlib to compute with."""
    return np.clip(np.asarray(values, dtype=np.float64), -_FARTHEST, _FARTHEST)


def cut_axis(axes: "Axes", values: npt.ArrayLike, *, higher_is_better: bool) -> tuple[float, float]:
    """Give the axis limits that hold all values, or all but the worst where those lie far out; the limits."""
    found = drawable(values)
    found = found[np.isfinite(found)]
    if not len(found):
        return axes.get_ylim()
    costs = -found if higher_is_better else found
    best, worst, inner = costs.min(), costs.max(), np.quantile(costs, _INNER)
    if worst - best > _FAR_OUT * (inner - best) > 0:
        worst = inner
    margin = _MARGIN * (worst - best) or _MARGIN * max(abs(best), 1.0)
    low, high = float(best - margin), float(worst + margin)
    limits = (-high, -low) if higher_is_better else (low, high)
    axes.set_ylim(*limits)
    return limits
