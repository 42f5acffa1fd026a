"""How metrics and their values are shown to people: names, units and numbers, in one way everywhere."""

import math
from dataclasses import dataclass

from evomal.tasks.named_metrics import rows_of
from evomal.text import shorten

MEAN_RANK, WORST_CHANGE = "mean_rank", "worst_change"
"""What the fitness of a search on several tasks is called; the change is a share."""
POINTS = "points"
"""The unit of differences of shares, such as error rates: percentage points."""


def is_metric_of(name: str, kind: str) -> bool:
    """Whether a recorded name is that of a metric for this kind of task."""
    rows = rows_of(name)
    return bool(rows) and all(kind in row.kinds for row in rows)


def recorded_direction(name: str) -> bool | None:
    """Whether higher is better for the metric that a record names; None for a user's own."""
    rows = rows_of(name)
    return all(row.higher_is_better for row in rows) if rows else None


def shown_in_percent(name: str) -> bool:
    """Whether values of the metric that bears this name are shares that are shown in percent."""
    rows = rows_of(name)
    return name == WORST_CHANGE or (bool(rows) and all(row.percent for row in rows))


def metric_scale(name: str) -> float:
    """Returns what values of the metric are multiplied by when they are shown: 100 for shares, which are in percent."""
    return 100.0 if shown_in_percent(name) else 1.0


def metric_label(name: str, longest: int = 60) -> str:
    """Returns the metric's name for a heading or an axis, with the unit if there is one: `error rate (%)`."""
    shown = shorten(name.replace("_", " "), longest)
    return f"{shown} (%)" if shown_in_percent(name) else shown


def metric_number(value: float, name: str, *, digits: int = 4) -> str:
    """Returns a value without its unit: shares in percent with two decimals, others with significant digits."""
    return f"{100 * value:.2f}" if shown_in_percent(name) else f"{value:.{digits}g}"


def difference_unit(name: str) -> str:
    """Returns the unit of differences in the metric: points for shares, none for others."""
    return POINTS if shown_in_percent(name) else ""


def metric_text(value: float, name: str, deviation: float | None = None) -> str:
    """Returns a value with its unit, and with its standard deviation if there is one: `1.23 ± 0.05 %`."""
    spread = "" if deviation is None else f" ± {metric_number(deviation, name, digits=2)}"
    return f"{metric_number(value, name)}{spread}{' %' if shown_in_percent(name) else ''}"


def named_value(value: float, name: str) -> str:
    """Returns the metric's name, the value and its unit, for a sentence: `error rate 1.23 %`."""
    return f"{shorten(name.replace('_', ' '), 60)} {metric_text(value, name)}"


@dataclass(frozen=True)
class ShownMetric:
    """How costs, which a search minimises, are shown to people: as values of the metric, with its unit."""

    name: str = ""
    higher_is_better: bool = False

    def value(self, cost: float) -> float:
        """Returns the value of the metric for a cost."""
        return -cost if self.higher_is_better else cost

    def text(self, cost: float, deviation: float | None = None) -> str:
        """Returns the value for a cost, with its deviation if that is finite, or "diverged"."""
        if not math.isfinite(cost):
            return "diverged"
        spread = deviation if deviation is not None and math.isfinite(deviation) else None
        return metric_text(self.value(cost), self.name, spread)
