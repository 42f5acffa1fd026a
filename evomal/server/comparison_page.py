"""The page of a comparison: verdicts, intervals as a forest plot, the table, and its searches."""

from collections.abc import Sequence

from evomal.report.commands import repeat_comparisons
from evomal.report.forest_plot import forest_plots
from evomal.report.pages import render
from evomal.report.report_page import VERDICT_CLASSES
from evomal.server.library import ComparisonView
from evomal.server.list_page import ComparisonSummary
from evomal.server.summaries import RunSummary

_MOST_SEARCHES = 100


def comparison_page(view: ComparisonView, summary: ComparisonSummary, searches: Sequence[RunSummary]) -> str:
    """The page of a comparison; `searches` are the runs that it began."""
    commands = repeat_comparisons(view.verdicts, view.folder)
    return render(
        "live_comparison.html",
        summary=summary,
        verdicts=view.verdicts.verdicts,
        notes=view.verdicts.notes,
        plots=forest_plots(view.verdicts.verdicts),
        searches=searches[:_MOST_SEARCHES],
        commands=[command for command in commands if command.text is not None],
        verdict_classes=VERDICT_CLASSES,
    )
