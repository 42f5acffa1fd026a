"""The list of all runs and comparisons below the folder that is served, and the page of a comparison."""

from collections.abc import Sequence
from dataclasses import dataclass

from evomal.report.commands import repeat_comparisons
from evomal.report.pages import render
from evomal.report.report_page import forest_plots
from evomal.server.library import ComparisonView
from evomal.server.summaries import RunSummary, count_sentence, moment_of
from evomal.text import plural, shorten

RUNS_PER_PAGE = 100
LONGEST_FILTER = 200  # characters
_MOST_SEARCHES = 100


@dataclass(frozen=True)
class Pages:
    """Which part of a long list is shown."""

    number: int
    """Counted from 1."""
    last: int
    total: int
    per_page: int

    @classmethod
    def of(cls, number: int, total: int, per_page: int) -> "Pages":
        """The page of that number, or the nearest existing one."""
        last = max(1, -(-total // per_page))
        return cls(min(max(number, 1), last), last, total, per_page)

    @property
    def begin(self) -> int:
        """The place of the first entry."""
        return (self.number - 1) * self.per_page

    @property
    def sentence(self) -> str:
        """Which entries are shown."""
        first, last = self.begin + (self.total > 0), min(self.begin + self.per_page, self.total)
        return f"{first:,} to {last:,} of {self.total:,}"


@dataclass(frozen=True)
class ComparisonSummary:
    """A comparison in one line."""

    key: str
    name: str
    state: str
    title: str
    verdict: str
    trainings: str
    written: str


def comparison_summary(view: ComparisonView, key: str, name: str) -> ComparisonSummary:
    """The summary of a comparison as it is now."""
    sentences = [sentence for found in view.verdicts.verdicts for sentence in found.sentences]
    verdict = sentences[0].sentence if sentences else " ".join(view.verdicts.notes)
    more = f" (and {len(sentences) - 1} more)" if len(sentences) > 1 else ""
    return ComparisonSummary(
        key=key,
        name=name,
        state=view.state,
        title=" and ".join(found.title for found in view.verdicts.verdicts) or "Comparison",
        verdict=f"{shorten(verdict, 300)}{more}",
        trainings=plural(view.trainings, "training") if view.trainings else "",
        written=moment_of(view.written),
    )


def list_page(
    folder: str,
    runs: Sequence[RunSummary],
    comparisons: Sequence[ComparisonSummary],
    *,
    number: int,
    text: str,
) -> str:
    """The page `number` of the list; with `text`, of the runs whose folder, task, method or state contains it."""
    wanted = [run for run in runs if text.lower() in f"{run.name} {run.task} {run.method} {run.state}".lower()]
    wanted.sort(key=lambda run: (run.written or run.created, run.name), reverse=True)
    wanted.sort(key=lambda run: not run.is_running)
    pages = Pages.of(number, len(wanted), RUNS_PER_PAGE)
    return render(
        "live_list.html",
        folder=folder,
        sentence=count_sentence(runs),
        runs=wanted[pages.begin : pages.begin + pages.per_page],
        comparisons=comparisons[:RUNS_PER_PAGE],
        hidden_comparisons=max(0, len(comparisons) - RUNS_PER_PAGE),
        pages=pages,
        text=text,
        is_reading=any(run.is_being_read for run in runs),
    )


def comparison_page(view: ComparisonView, summary: ComparisonSummary, searches: Sequence[RunSummary]) -> str:
    """The page of a comparison; `searches` are the runs that belong to it."""
    commands = repeat_comparisons(view.verdicts, view.folder)
    return render(
        "live_comparison.html",
        summary=summary,
        verdicts=view.verdicts.verdicts,
        notes=view.verdicts.notes,
        plots=forest_plots(view.verdicts.verdicts),
        searches=searches[:_MOST_SEARCHES],
        commands=[command for command in commands if command.text is not None],
    )
