"""A report as one page of HTML, with its figures."""

from dataclasses import replace
from typing import TYPE_CHECKING

from evomal.figures.ancestry import ancestry
from evomal.figures.filter_shares import draw_filter_shares, filter_shares
from evomal.figures.run_times import draw_run_times, run_times
from evomal.figures.search_curves import draw_search_curves, search_curves
from evomal.report.forest_plot import forest_plots
from evomal.report.loss_table import loss_table
from evomal.report.pages import figure_markup, render, versions
from evomal.report.run_charts import ShownChart, ancestry_chart, run_charts, shapes_of
from evomal.report.run_report import RunReport
from evomal.runs.views import RunView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICT_CLASSES = {"gain": "gain", "no gain": "no-gain", "learning rate": "no-gain", "worse": "worse"}
"""Classes of the stylesheet by kind of verdict; a file may have any other kind, which gets the class `undecided`."""


def report_page(report: RunReport) -> str:
    """Returns one page that opens anywhere: it has no script and loads nothing."""
    sentences = dict.fromkeys(command.sentence for command in report.shown_commands if command.sentence)
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
        setting_entries=report.settings.entries(),
        task_entries=report.settings.task_entries(),
        environment_entries=report.settings.environment_entries(),
        compare_command=report.compare_command(),
        command_sentences=[f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences],
        verdict_classes=VERDICT_CLASSES,
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
        ShownChart(title, figure_markup(figure, description, f"f{number}-"), ())
        for number, (title, description, figure) in enumerate(drawn)
    ]
