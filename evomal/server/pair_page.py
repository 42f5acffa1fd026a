"""Two runs side by side: their curves in one chart, their best losses, and the settings in which they differ."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evomal.report.charts import Axis, Chart
from evomal.report.loss_table import ShownFormula
from evomal.report.pages import render
from evomal.report.report_page import best_shapes
from evomal.report.run_charts import ShownChart, metric_axis, shown
from evomal.runs.canonical import differences
from evomal.runs.recorded_run import Run
from evomal.runs.views import RunView
from evomal.server.run_page import live_report
from evomal.server.summaries import RunSummary
from evomal.text import shorten

_COLOURS = ("blue", "vermillion")
_MOST_DIFFERENCES, _LONGEST_VALUE = 200, 120
_MACHINERY = ("source.", "first_budgets.")


@dataclass(frozen=True)
class Side:
    """One of the two runs."""

    summary: RunSummary
    formula: ShownFormula | None
    shapes: Sequence[ShownChart]


def pair_page(views: Sequence[RunView], summaries: Sequence[RunSummary]) -> str:
    """The page of two runs."""
    reports = [live_report(view) for view in views]
    sides = [
        Side(summary, report.formulas[0] if report.formulas else None, best_shapes(report))
        for report, summary in zip(reports, summaries, strict=True)
    ]
    runs = [report.runs.runs[0] for report in reports]
    chart = pair_chart(views, runs, [summary.name for summary in summaries])
    one, other = (view.head.settings for view in views)
    return render(
        "live_pair.html",
        sides=sides,
        charts_found=[] if chart is None else [chart],
        differences=_differences(one, other),
    )


def pair_chart(views: Sequence[RunView], runs: Sequence[Run], names: Sequence[str]) -> ShownChart | None:
    """The best values so far of both runs, with the baseline of the first."""
    if len({(run.task, run.metric) for run in runs}) > 1:
        return None
    curves = [np.where(np.isfinite(v.best_by_generation), run.value(1.0) * v.best_by_generation, np.nan)
              for v, run in zip(views, runs, strict=True)]  # fmt: skip
    found = np.concatenate(curves)
    if not np.isfinite(found).any():
        return None
    baseline, cost = next(iter(runs[0].rivals.items()), ("", math.inf))
    levels = [runs[0].value(cost)] if math.isfinite(cost) else []
    last = max(len(curve) for curve in curves)
    axis = metric_axis(runs[0], [*found[np.isfinite(found)], *levels])
    chart = Chart(
        "The best validation values so far of both runs", Axis("generation", 0.5, last + 0.5, whole=True), axis
    )
    for level in levels:
        chart.level(level, "grey", "dashed", f"baseline {shorten(baseline, 30)}")
    if baseline and not levels:
        chart.legend.append(("dashed", "grey", f"baseline {shorten(baseline, 30)} diverged"))
    for curve, colour, name in zip(curves, _COLOURS, names, strict=True):
        points = [(number + 1.0, float(value)) for number, value in enumerate(curve)]
        chart.line(points, colour, step=True, name=shorten(name, 40))
    return shown("Search", chart)


def _differences(one: Any, other: Any) -> list[tuple[str, ...]]:
    """The settings in which two records differ, with both values."""
    return [
        tuple(shorten(text or "not set", _LONGEST_VALUE) for text in (entry.key, entry.recorded, entry.given))
        for entry in differences(one, other)
        if not entry.key.startswith(_MACHINERY)
    ][:_MOST_DIFFERENCES]  # fmt: skip
