"""Run time of label smoothing over the number of classes."""

import textwrap
from typing import TYPE_CHECKING

from evomal.analysis.smoothing_cost import BATCH, WITH, WITHOUT, SmoothingCost
from evomal.report.style import BLUE, GREEN, PURPLE, VERMILLION, figure_style, in_figure, new_figure, sentence_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 2.7
_MICRO = 1e6
_STYLES = {
    "label smoothing (torch)": (VERMILLION, "s"),
    "label smoothing (evomal)": (BLUE, "o"),
    "label smoothing": (PURPLE, "D"),
    "sparse label smoothing": (GREEN, "^"),
}


def draw_smoothing_cost(cost: SmoothingCost) -> "Figure":
    """Page wide: with log-softmax on the left, without on the right; median with the quartiles as a band."""
    if not cost.timings:
        return sentence_figure("nothing was timed", "page")
    figure = new_figure("page", _HEIGHT)
    with figure_style():
        panels = figure.subplots(1, 2, sharey=True)
        for axes, part in zip(panels, (WITH, WITHOUT), strict=True):
            for name in cost.names(part):
                line, (colour, marker) = cost.line(part, name), _STYLES[name]
                classes = [timing.classes for timing in line]
                lower, median, upper = (
                    [_MICRO * getattr(timing, bound) for timing in line] for bound in ("lower", "median", "upper")
                )
                axes.fill_between(classes, lower, upper, color=colour, alpha=0.2, linewidth=0)
                axes.plot(classes, median, color=colour, marker=marker, markersize=3, label=name)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("classes $C$")
            axes.set_title(part, loc="left")
        panels[0].set_ylabel("forward and backward (µs)")
        said = f"batch {BATCH}, float32, median of {cost.rounds} rounds in turns, band: quartiles; {cost.hardware}"
        figure.supxlabel("\n".join(textwrap.wrap(in_figure(said), 110)), fontsize=7, x=0.01, ha="left")
        found = [axes.get_legend_handles_labels() for axes in panels]
        entries = {label: handle for handles, labels in found for handle, label in zip(handles, labels, strict=True)}
        figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=len(entries), fontsize=7)
    return figure
