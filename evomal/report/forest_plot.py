"""The intervals of a comparison as a forest plot."""

import math
from collections.abc import Sequence

from evomal.report.charts import Axis, Chart, rows_axis
from evomal.report.run_charts import ShownChart, shown
from evomal.tasks.metric_display import difference_unit, metric_scale
from evomal.verdict.comparison import Comparison
from evomal.verdict.folder import RecordedVerdict, comparisons_of
from evomal.verdict.statistics import Direction, Paired, direction

_MOST_PLOTS, _MOST_ROWS = 8, 40
_COLOURS = {Direction.BETTER: "green", Direction.WORSE: "vermillion"}
_ROW_HEIGHT, _LEFT = 22.0, 170.0


def forest_plots(verdicts: Sequence[RecordedVerdict]) -> list[ShownChart]:
    """A plot for each comparison, up to eight."""
    plots = [
        forest_plot(name, comparison)
        for found in verdicts
        for name, comparison in list(comparisons_of(found.result).items())[:_MOST_PLOTS]
    ]
    return [plot for plot in plots if plot is not None][:_MOST_PLOTS]


def forest_plot(name: str, comparison: Comparison) -> ShownChart | None:
    """The difference of each loss to the baseline with its interval; to the left of zero is better."""
    rows: list[tuple[str, Paired]] = [
        (entry.name if entry.variant == "plain" else f"{entry.name}, {entry.variant}", entry.difference)
        for entry in comparison.entries
        if entry.difference is not None and entry.difference.difference is not None
    ][:_MOST_ROWS]
    if not rows:
        return None
    ends = [end for _, one in rows for end in (one.low, one.high, one.difference) if end is not None]
    unit = difference_unit(comparison.metric)
    # Differences are recorded in costs, as the table beside the plot has them.
    metric = f"{'cost, −' if comparison.higher_is_better else ''}{comparison.metric.replace('_', ' ')}"
    label = f"difference to {comparison.baseline} in {metric}{f' ({unit})' if unit else ''}"
    axis = Axis.over(label, [0.0, *filter(math.isfinite, ends)], scale=metric_scale(comparison.metric))
    description = f"Differences to {comparison.baseline} with 95 % intervals; less is better"
    names = [row for row, _ in rows]
    chart = Chart(description, axis, rows_axis(len(rows)), 70 + _ROW_HEIGHT * len(rows), names, _LEFT)
    chart.line([(0.0, len(rows) - 0.5), (0.0, -0.5)], "grey", kind="dashed")
    for place, (_, one) in enumerate(rows):
        colour = _COLOURS.get(direction(one), "blue")
        if one.low is not None and one.high is not None:
            chart.line([(one.low, place), (one.high, place)], colour)
        chart.dots([(one.difference or 0.0, place)], colour, radius=4)
    words = {"green": "better", "vermillion": "worse", "blue": "no difference shown"}
    chart.legend += [("line", colour, text) for colour, text in words.items()]
    title = f"Differences to {comparison.baseline}{f', {name}' if name else ''}"
    note = "Test split: mean difference over paired seeds with its 95 % interval. Left of zero is better."
    return shown(title, chart, note)
