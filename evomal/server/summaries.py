"""A run in one line: its state, its progress, and its best value beside the known losses."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from evomal.runs.recorded_run import Run, RunState
from evomal.runs.views import RunView
from evomal.tasks.metric_display import metric_label
from evomal.text import plural, shorten

LONGEST_NAME = 80  # characters
_RECENT = 20  # generations by which the time left is estimated


@dataclass(frozen=True)
class RunSummary:
    """What a list says about a run."""

    key: str
    name: str
    """Its folder below the one that is served."""
    state: RunState
    problem: str
    task: str
    method: str
    seed: str
    metric: str
    generations: int
    planned: int | None
    candidates: int
    best: str
    """The best value, in the final if there was one; empty without."""
    baseline: str
    rival: str
    """The best of the known losses besides the baseline."""
    verdict: str
    """What the final says; empty without."""
    is_ahead: bool | None
    """Whether the best value is better than those of all known losses; None if that cannot be said."""
    created: str
    written: str
    end: str
    """When a running search will record its last generation, at the pace of the recent ones; empty if not known."""
    is_whole: bool

    @property
    def is_running(self) -> bool:
        """Whether a process works on it."""
        return self.state is RunState.RUNNING

    @property
    def is_being_read(self) -> bool:
        """Whether a part of the record has not been read yet."""
        return not self.is_whole and not self.problem

    @property
    def label(self) -> str:
        """The state in a word."""
        return "being read" if self.is_being_read and not self.candidates else str(self.state)

    @property
    def share(self) -> float:
        """How much of the search is done, from 0 to 1."""
        if self.state is RunState.COMPLETE:
            return 1.0
        return min(1.0, self.generations / self.planned) if self.planned else 0.0

    @property
    def progress(self) -> str:
        """The generations, in words."""
        return f"{self.generations} of {self.planned}" if self.planned else str(self.generations)

    @property
    def sentence(self) -> str:
        """The state for a screen reader, which reads it out when it changes."""
        best = f", best {self.best}" if self.best else ""
        return f"{self.label}: generation {self.progress}{best}"


def summary_of(view: RunView, key: str, name: str) -> RunSummary:
    """The summary of a run as it is now."""
    head = view.head
    run: Run = view.sample(()) if any(trial.stage == "final" for trial in view.trials) else head
    shown, row = run.shown_metric, view.best_row
    best = "" if row is None else shown.text(float(row["fitness"]))
    costs = dict(run.rivals)
    cost = math.inf if row is None else float(row["fitness"])
    if run.final is not None:
        cost, costs = run.final.winner[1].mean, {name: one.mean for name, one in run.final.rivals.items()}
        best = shown.text(cost)
    baseline = next(iter(costs), "")
    finite = {name: cost for name, cost in costs.items() if math.isfinite(cost)}
    baseline_value = shown.text(finite[baseline]) if baseline in finite else "diverged"
    rival = min((name for name in finite if name != baseline), key=lambda name: costs[name], default="")
    return RunSummary(
        key=key,
        name=name,
        state=head.state,
        problem=head.problem,
        task=shorten(run.task, LONGEST_NAME),
        method=shorten(run.method, LONGEST_NAME),
        seed="" if run.seed is None else shorten(str(run.seed), 20),
        metric=metric_label(run.metric, 40),
        generations=view.generations,
        planned=view.planned_generations,
        candidates=len(view.table),
        best=best,
        baseline=baseline and f"{shorten(baseline, 30)} {baseline_value}",
        rival=f"{shorten(rival, 30)} {shown.text(costs[rival])}" if rival else "",
        verdict="" if run.final is None else shorten(run.final.verdict(run.metric), 200),
        is_ahead=None if not finite or not math.isfinite(cost) else cost < min(finite.values()),
        created=_moment(head.created),
        written=_moment(head.written or ""),
        end=_moment(_end(view)),
        is_whole=view.is_whole,
    )


def _end(view: RunView) -> str:
    """When the last generation will be recorded, as an ISO time; empty if that cannot be said."""
    planned = view.planned_generations
    if view.head.state is not RunState.RUNNING or planned is None or view.generations >= planned:
        return ""
    times = [time for time in map(_time, _ends_of_generations(view.times)[-_RECENT:]) if time is not None]
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)]
    gaps = [gap for gap in gaps if gap >= 0]  # a clock may be set back
    if not gaps:
        return ""
    # An interruption makes one long gap; fast generations have gaps of whole seconds, often none.
    each = statistics.median(gaps) or statistics.fmean(gaps)
    try:
        return (times[-1] + timedelta(seconds=each * (planned - view.generations))).isoformat(timespec="seconds")
    except OverflowError:
        return ""


def _ends_of_generations(times: Sequence[tuple[int, str]]) -> list[str]:
    return list(dict(times).values())  # a later chunk of a generation replaces an earlier one


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (OverflowError, TypeError, ValueError):  # the first for a time that lies before the year 1 in UTC
        return None


def _moment(text: str) -> str:
    """A recorded time as ISO text in UTC; empty if it is none."""
    found = _time(text)
    return "" if found is None else _utc_text(found)


def moment_of(seconds: float) -> str:
    """The time of a file, in seconds since 1970, as ISO text in UTC; empty beyond the year 9999."""
    try:
        return _utc_text(datetime.fromtimestamp(seconds, UTC))
    except (OSError, OverflowError, ValueError):
        return ""


def _utc_text(time: datetime) -> str:
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def count_sentence(summaries: Sequence[RunSummary]) -> str:
    """The number of runs, in all and in each state."""
    states = Counter(summary.label for summary in summaries)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    return f"{plural(len(summaries), 'run')}: {counts}" if summaries else "no runs yet"
