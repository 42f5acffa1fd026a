"""The page of a run, with the sections of its report and linked charts, and the page of two runs side by side."""

import dataclasses
import importlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from evomal.errors import EvomalError
from evomal.expression import Expression
from evomal.files import open_foreign
from evomal.losses import ExpressionLoss
from evomal.methods.candidates import State
from evomal.report.best_losses import best_losses
from evomal.report.charts import Axis, Chart, ShownChart
from evomal.report.loss_table import ShownFormula, loss_table
from evomal.report.pages import mathml, render
from evomal.report.report_page import best_shapes
from evomal.report.run_charts import best_values, metric_axis, run_charts, shapes_of
from evomal.report.run_report import LONGEST_ENTRY, RunReport, state_sentences
from evomal.runs.canonical import differences
from evomal.runs.lock import holder_of, is_stop_requested
from evomal.runs.recorded_run import Run, Runs, RunState
from evomal.runs.views import RunView
from evomal.server.library import OUTPUT_NAME
from evomal.server.summaries import RunSummary
from evomal.text import plural, shorten, value_text
from evomal.verdict.folder import recorded_verdicts

_MOST_RANKED = 60  # candidates among which the best distinct losses are found
_TAIL_BYTES = 4_000
_COLOURS = ("blue", "vermillion")
_MOST_DIFFERENCES, _LONGEST_VALUE = 200, 120
_NOT_SETTINGS = ("source.", "first_budgets.")


@dataclass(frozen=True)
class LiveReport(RunReport):
    """The report of a run of which only the best candidates are in memory."""

    view: RunView

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know; counts are of all candidates, not of those in memory."""
        view, found = self.view, []
        if view.head.state is not RunState.RUNNING:
            found += state_sentences(self.runs.runs[0])
        if not len(view.table):
            found.append("has not recorded any candidate yet.")
        elif not len(view.evaluated):
            counts = ", ".join(f"{int(counts.sum()):,} {state}" for state, counts in view.counts.items())
            found.append(f"has not trained any loss: no candidate passed the filters ({counts}).")
        failed = int(view.counts[State.FAILED].sum()) if State.FAILED in view.counts else 0
        if failed:
            found.append(f"had {plural(failed, 'failure')}: see its candidates.")
        if not view.is_whole:
            found.append("is still being read.")
        return (*(f"This search {sentence}" for sentence in found), *self.verdicts.notes)


def live_report(view: RunView) -> LiveReport:
    """The report of a run as it is now."""
    run = view.sample([*map(int, view.by_rank[:_MOST_RANKED])])
    runs = Runs((run,))
    best = tuple(dataclasses.replace(one, trained=len(view.evaluated)) for one in best_losses(runs))
    return LiveReport(view.folder, runs, recorded_verdicts(view.folder), best, view)


def run_page(view: RunView, summary: RunSummary, *, comparison: str | None) -> str:
    """The page; `comparison` is the address of the comparison that the run is part of, if any."""
    address = f"/runs/{summary.key}"
    if view.head.problem:
        return render("live_problem.html", summary=summary, problem=view.head.problem)
    report = live_report(view)
    run = report.runs.runs[0]
    return render(
        "live_run.html",
        report=report,
        summary=summary,
        address=address,
        comparison=comparison,
        shapes=best_shapes(report),
        figures=run_charts(view, run, address),
        tables=[loss_table(best, with_runs=False, address=address) for best in report.best] if report.formulas else [],
        worker_entries=worker_entries(view),
        stop_requested=is_stop_requested(view.folder),
        log=log_tail(view.folder),
    )


def warm_up() -> None:
    """Import and compile what the first page would wait for."""
    loss = ExpressionLoss(Expression.parse("abs(sub(f, y))"), kind="regression")
    mathml(loss, loss.formula())
    shapes_of(loss, 10)
    importlib.import_module("scipy.stats")  # for the agreement of rungs


def worker_entries(view: RunView) -> list[tuple[str, str]]:
    """Where the search computes, and which process holds its folder."""
    settings = view.head.settings
    found: dict[str, Any] = {"device": settings.get("device"), "threads": settings.get("threads")}
    found |= settings.get("workplace", {})
    if found.get("executor") == "ray" and found.get("workers") is None:
        found["workers"] = "as many as the cluster has room for"
    entries = [(name, value_text(value, LONGEST_ENTRY)) for name, value in found.items() if value is not None]
    holder = holder_of(view.folder)
    if holder is not None:
        running = view.head.state is RunState.RUNNING
        entries.append(("held by" if running else "last held by", str(holder)))
    return entries


def log_tail(folder: Path) -> str:
    """The end of the output of the process that a button started; empty if there is none."""
    try:
        with open_foreign(folder / OUTPUT_NAME) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            return file.read(_TAIL_BYTES).decode("utf-8", "replace")
    except EvomalError:
        return ""


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
    curves = list(map(best_values, views, runs))
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
    return chart.shown("Search")


def _differences(one: Any, other: Any) -> list[tuple[str, ...]]:
    """The settings in which two records differ, with both values."""
    return [
        tuple(shorten(text or "not set", _LONGEST_VALUE) for text in (entry.key, entry.recorded, entry.given))
        for entry in differences(one, other)
        if not entry.key.startswith(_NOT_SETTINGS)
    ][:_MOST_DIFFERENCES]  # fmt: skip
