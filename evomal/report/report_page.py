"""A report as one page of HTML, with its figures."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from evomal.figures.ancestry import ancestry, draw_ancestry
from evomal.figures.filter_shares import draw_filter_shares, filter_shares
from evomal.figures.front import draw_front, front
from evomal.figures.known_losses import draw_headroom, run_headroom
from evomal.figures.loss_shape import draw_loss, loss_shape
from evomal.figures.run_times import draw_run_times, run_times
from evomal.figures.rungs import draw_rungs, rung_steps
from evomal.figures.search_curves import draw_search_curves, search_curves
from evomal.report.loss_table import loss_table
from evomal.report.pages import figure_markup, render, versions
from evomal.report.run_report import RunReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VERDICT_CLASSES = {"gain": "gain", "no gain": "no-gain", "learning rate": "no-gain", "worse": "worse"}
"""Classes of the stylesheet by kind of verdict; a file may have any other kind, which gets the class `undecided`."""


@dataclass(frozen=True)
class ShownFigure:
    """A figure with its heading and its description for a screen reader."""

    title: str
    description: str
    figure: "Figure"

    @property
    def is_narrow(self) -> bool:
        """Whether it is as wide as a column, not as the page."""
        return bool(self.figure.get_size_inches()[0] < 5)


def report_page(report: RunReport) -> str:
    """Returns one page that opens anywhere: it has no script and loads nothing."""
    shapes, figures = shape_figures(report), run_figures(report)
    drawings = [
        {
            "title": shown.title,
            "is_narrow": shown.is_narrow,
            "svg": figure_markup(shown.figure, shown.description, f"f{number}-"),
        }
        for number, shown in enumerate([*shapes, *figures])
    ]
    sentences = dict.fromkeys(command.sentence for command in report.shown_commands if command.sentence)
    with_runs = report.run is None
    return render(
        "report.html",
        report=report,
        shapes=drawings[: len(shapes)],
        figures=drawings[len(shapes) :],
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


def shape_figures(report: RunReport) -> list[ShownFigure]:
    """Draws the shape of the best loss of each task."""
    shown = []
    for formula in report.formulas:
        loss = formula.row.loss()
        if loss is not None:
            title = "Shape" if len(report.formulas) == 1 else f"Shape, {formula.best.task}"
            text = f"the best loss, value and gradient over {'f - y' if loss.kind == 'regression' else 'p'}"
            shape = loss_shape(loss, classes=formula.row.run.classes)
            shown.append(ShownFigure(title, f"{text}, beside the task loss", draw_loss(shape)))
    return shown


def run_figures(report: RunReport) -> list[ShownFigure]:
    """Draws the figures of the runs; the front and the ancestry only if the report is about one run."""
    runs = report.runs
    if not runs.runs:
        return []
    names = ", ".join(dict.fromkeys(run.method for run in runs.runs))
    search = f"the best fitness of {names} so far, against generations and trained losses"
    filters = f"what became of the candidates of {names}, as shares of each generation"
    shown = [
        ShownFigure("Search", search, draw_search_curves(search_curves(runs))),
        ShownFigure("Filters", filters, draw_filter_shares(filter_shares(runs))),
    ]
    if report.run is not None:
        if report.run.headroom is not None:
            text = "the known losses at their best learning rates, every seed and the mean; grey: the baseline's noise"
            shown.append(ShownFigure("Headroom", text, draw_headroom(run_headroom(runs))))
            text = "the metric on a rung against that on the next, with other seeds, of the candidates that went on"
            shown.append(ShownFigure("Rungs", text, draw_rungs(rung_steps(runs))))
        text = "size against fitness of every trained loss, with the front of those that no other beats in both"
        shown.append(ShownFigure("Size against fitness", text, draw_front(front(runs))))
        text = "the ancestors of the best loss by generation and fitness, with the steps that led to it"
        shown.append(ShownFigure("Ancestry", text, draw_ancestry(ancestry(runs))))
    text = f"seconds per search of {names}, by stage"
    return [*shown, ShownFigure("Run time", text, draw_run_times(run_times(runs)))]
