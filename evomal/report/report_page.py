"""A report as one page of HTML, with its figures: those of runs, and the intervals of a comparison as a forest plot."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from evomal.figures.ancestry import ancestry
from evomal.figures.filter_shares import draw_filter_shares, filter_shares
from evomal.figures.run_times import draw_run_times, run_times
from evomal.figures.search_curves import draw_search_curves, search_curves
from evomal.report.charts import Axis, Chart, ShownChart, rows_axis
from evomal.report.loss_table import loss_table
from evomal.report.pages import figure_markup, render, versions
from evomal.report.run_charts import ancestry_chart, run_charts, shapes_of
from evomal.report.run_report import RunReport
from evomal.runs.views import RunView
from evomal.tasks.metric_display import difference_unit, metric_scale
from evomal.verdict.comparison import Comparison
from evomal.verdict.folder import RecordedVerdict, comparisons_of
from evomal.verdict.statistics import Direction, Paired, direction

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_PLOTS, _MOST_ROWS = 8, 40
_COLOURS = {Direction.BETTER: "green", Direction.WORSE: "vermillion"}
_ROW_HEIGHT, _LEFT = 22.0, 170.0


def report_page(report: RunReport) -> str:
    """Returns one page that opens anywhere: it has no script and loads nothing."""
    with_runs = report.run is None
    return render(
        "report.html",
        report=report,
        shapes=best_shapes(report),
        plots=forest_plots(report.verdicts.verdicts),
        charts_found=charts_of_run(report),
        figures=figures_of_runs(report),
        tables=[loss_table(best, with_runs=with_runs) for best in report.best] if report.formulas else [],
        run_rows=report.run_rows() if with_runs else [],
        made_with=", ".join(f"{name} {version}" for name, version in versions().items()),
    )


def best_shapes(report: RunReport) -> list[ShownChart]:
    """The shape and the gradient of the best loss of each task, beside the baseline."""
    found = []
    for formula in report.formulas:
        loss, task = formula.row.loss(), "" if len(report.formulas) == 1 else f", {formula.best.task}"
        shapes = [] if loss is None else shapes_of(loss, formula.row.run.classes)
        found += [replace(shape, title=f"{shape.title}{task}") for shape in shapes]
    return found


def charts_of_run(report: RunReport) -> list[ShownChart]:
    """The charts of the live page, if the report is about one run, and the ancestry of its best loss."""
    if (run := report.run) is None:
        return []
    origin = ancestry_chart(ancestry(report.runs), None)
    return [*run_charts(RunView.of(run), run), *([] if origin is None else [origin])]


def figures_of_runs(report: RunReport) -> list[ShownChart]:
    """Figures in which several runs are averaged; the live page has none of them."""
    runs = report.runs
    if report.run is not None or not runs.runs:
        return []
    names = ", ".join(dict.fromkeys(run.method for run in runs.runs))
    drawn: list[tuple[str, str, Figure]] = [
        (
            "Search", f"the best fitness of {names} so far, against generations and trained losses",
            draw_search_curves(search_curves(runs)),
        ),
        (
            "Filters", f"what became of the candidates of {names}, as shares of each generation",
            draw_filter_shares(filter_shares(runs)),
        ),
        ("Run time", f"seconds per search of {names}, by stage", draw_run_times(run_times(runs))),
    ]  # fmt: skip
    return [
        ShownChart(title, figure_markup(figure, description, f"f{number}-"))
        for number, (title, description, figure) in enumerate(drawn)
    ]


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
    description = f"Differences to {comparison.baseline} with 95 % intervals; lower is better"
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
    return chart.shown(title, note)
