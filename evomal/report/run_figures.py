"""The figures of a report on runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evomal.analysis.ancestry import ancestry
from evomal.analysis.chosen_runs import Runs
from evomal.analysis.filter_shares import filter_shares
from evomal.analysis.fronts import front
from evomal.analysis.recorded_losses import classes_of
from evomal.analysis.run_times import run_times
from evomal.analysis.search_curves import search_curves
from evomal.analysis.shapes import loss_shape
from evomal.report.ancestry_plot import draw_ancestry
from evomal.report.filter_shares_plot import draw_filter_shares
from evomal.report.front_plot import draw_front
from evomal.report.loss_plot import draw_loss
from evomal.report.run_times_plot import draw_run_times
from evomal.report.search_curves_plot import draw_search_curves
from evomal.report.shown_formula import ShownFormula

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class ShownFigure:
    """A figure with its heading and what it says to those who cannot see it."""

    title: str
    description: str
    figure: "Figure"

    @property
    def is_narrow(self) -> bool:
        """Whether it is a column wide, not a page."""
        return bool(self.figure.get_size_inches()[0] < 5)


def run_figures(runs: Runs, formulas: Sequence[ShownFormula], *, is_of_one: bool) -> list[ShownFigure]:
    """Drawn anew at every call; two of them only where the report is of one run."""
    if not runs.runs:
        return []
    names = ", ".join(dict.fromkeys(run.method for run in runs.runs))
    shown = [*_shapes(formulas)]
    shown.append(
        ShownFigure(
            "Search", f"the best so far of {names}, against generations and losses trained with",
            draw_search_curves(search_curves(runs)),
        )
    )  # fmt: skip
    shown.append(
        ShownFigure(
            "Filters", f"what became of the candidates of {names}, as shares of each generation",
            draw_filter_shares(filter_shares(runs)),
        )
    )  # fmt: skip
    if is_of_one:
        text = "size against fitness of every loss that was trained, with those that none beats in both"
        shown.append(ShownFigure("Size against fitness", text, draw_front(front(runs))))
        text = "the ancestors of the best loss by generation and fitness, with the steps that led to it"
        shown.append(ShownFigure("Ancestry", text, draw_ancestry(ancestry(runs))))
    text = f"seconds of a search of {names}, by stage"
    shown.append(ShownFigure("Run time", text, draw_run_times(run_times(runs))))
    return shown


def _shapes(formulas: Sequence[ShownFormula]) -> list[ShownFigure]:
    shown = []
    for formula in formulas:
        loss = formula.row.loss()
        if loss is not None:
            title = "Shape" if len(formulas) == 1 else f"Shape, {formula.best.task}"
            text = f"the best loss, value and gradient over {'f - y' if loss.kind == 'regression' else 'p'}"
            shape = loss_shape(loss, classes=classes_of(formula.row.run))
            shown.append(ShownFigure(title, f"{text}, beside the task loss", draw_loss(shape)))
    return shown
