"""The page of a run: the sections of its report, with charts that are links, while the search goes on."""

import dataclasses
import importlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from evomal.errors import EvomalError
from evomal.expression import Expression
from evomal.files import open_foreign
from evomal.losses import ExpressionLoss
from evomal.methods.candidates import State
from evomal.report.best_losses import best_losses
from evomal.report.loss_table import loss_table
from evomal.report.pages import mathml, render
from evomal.report.report_page import VERDICT_CLASSES, best_shapes
from evomal.report.run_charts import run_charts, shapes_of
from evomal.report.run_report import LONGEST_ENTRY, RunReport, state_sentences
from evomal.runs.lock import holder_of, is_stop_requested
from evomal.runs.recorded_run import Runs, RunState
from evomal.runs.views import RunView
from evomal.server.library import OUTPUT_NAME
from evomal.server.summaries import RunSummary
from evomal.text import plural, value_text
from evomal.verdict.folder import RecordedVerdicts, recorded_verdicts

_MOST_RANKED = 60  # candidates among which the best distinct ones are looked for
_TAIL = 4_000  # bytes of the log


@dataclass(frozen=True)
class LiveReport(RunReport):
    """The report of a run of which only the best candidates are in memory."""

    view: RunView

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know, with counts of all candidates."""
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


def live_report(view: RunView, verdicts: RecordedVerdicts | None = None) -> LiveReport:
    """The report of a run as it is now."""
    run = view.sample([*map(int, view.by_rank[:_MOST_RANKED])])
    runs = Runs((run,))
    found = verdicts or recorded_verdicts(view.folder)
    best = tuple(dataclasses.replace(one, trained=len(view.evaluated)) for one in best_losses(runs))
    return LiveReport(view.folder, runs, found, best, view)


def run_page(view: RunView, summary: RunSummary, *, comparison: str | None) -> str:
    """The page; `comparison` is the address of the comparison that the run is part of, if any."""
    address = f"/runs/{summary.key}"
    if view.head.problem:
        return render("live_problem.html", summary=summary, problem=view.head.problem)
    report = live_report(view)
    run = report.runs.runs[0]
    sentences = dict.fromkeys(command.sentence for command in report.shown_commands if command.sentence)
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
        setting_entries=report.settings.entries(),
        task_entries=report.settings.task_entries(),
        environment_entries=report.settings.environment_entries(),
        compare_command=report.compare_command(),
        command_sentences=[f"{sentence[0].upper()}{sentence[1:]}." for sentence in sentences],
        verdict_classes=VERDICT_CLASSES,
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
    workplace = settings.get("workplace")
    found |= {str(key): value for key, value in workplace.items()} if isinstance(workplace, Mapping) else {}
    if found.get("executor") == "ray" and found.get("workers") is None:
        found["workers"] = "as many as the cluster has room for"
    entries = [(name, value_text(value, LONGEST_ENTRY)) for name, value in found.items() if value is not None]
    holder = holder_of(view.folder)
    if holder is not None:
        running = view.head.state is RunState.RUNNING
        entries.append(("held by" if running else "last held by", str(holder)))
    return entries


def log_tail(folder: Path) -> str:
    """The end of what a button's process has printed; empty if there is nothing."""
    try:
        with open_foreign(folder / OUTPUT_NAME) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            return file.read(_TAIL).decode("utf-8", "replace")
    except EvomalError:
        return ""
