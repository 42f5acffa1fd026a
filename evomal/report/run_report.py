"""What runs have recorded of their settings, their task and where they ran, as a report shows it."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evomal.errors import EvomalError, InputError
from evomal.figures.ancestry import ancestry, draw_ancestry
from evomal.figures.best_losses import BestLosses, best_losses
from evomal.figures.filter_shares import draw_filter_shares, filter_shares
from evomal.figures.front import draw_front, front
from evomal.figures.loss_shape import draw_loss, loss_shape
from evomal.figures.run_times import draw_run_times, run_times
from evomal.figures.search_curves import draw_search_curves, search_curves
from evomal.methods.candidates import State
from evomal.report.commands import (
    RepeatCommand,
    as_texts,
    compare_command,
    recorded_settings,
    repeat_command,
    repeat_comparisons,
)
from evomal.report.loss_table import ShownFormula, metric_value, run_name, shown_formula
from evomal.runs.reading import Run, Runs, RunState, read_runs
from evomal.text import plural, shorten
from evomal.verdict.contestants import SEARCHES
from evomal.verdict.folder import RecordedVerdicts, recorded_verdicts

LONGEST_ENTRY = 160
_ENVIRONMENT = ("device", "threads", "precision", "dtype", "population_mode", "deterministic")


@dataclass(frozen=True)
class RunSettings:
    """Those of all runs of a report, each with the command that repeats it."""

    runs: Sequence[Run]
    commands: Sequence[RepeatCommand]

    def entries(self) -> list[tuple[str, str]]:
        """What all runs share, with a mark where it is not the preset's."""
        changed = {key for command in self.commands for key in command.changes}
        shared = _shared([_settings(run) for run in self.runs])
        return [(f"{key} *" if key in changed else key, shown_entry(value)) for key, value in shared.items()]

    def sentence(self) -> str:
        """What the settings are nearest to, and what differs between runs."""
        presets = sorted({command.preset for command in self.commands if command.preset is not None})
        if not presets:
            return "These records do not have the settings of a search."
        differing = _differing([_settings(run) for run in self.runs])
        between = f" Searches differ in {', '.join(differing)}." if differing else ""
        return f"Preset {' or '.join(presets)}; * marks what was set otherwise.{between}"

    def task_entries(self) -> list[tuple[str, str]]:
        """What is recorded of the data and the training recipe, where all runs share it."""
        return [(key, shown_entry(value)) for key, value in _shared([_task(run) for run in self.runs]).items()]

    def environment_entries(self) -> list[tuple[str, str]]:
        """Versions, device and threads, as recorded; of several where they differ."""
        recorded: dict[str, list[str]] = {}
        for run in self.runs:
            versions = run.settings.get("versions")
            found = {key: run.settings.get(key) for key in _ENVIRONMENT if key in run.settings}
            found |= {str(key): value for key, value in versions.items()} if isinstance(versions, Mapping) else {}
            for key, value in found.items():
                recorded.setdefault(key, []).append(shown_entry(value))
        return [(key, shorten(" or ".join(dict.fromkeys(values)), LONGEST_ENTRY)) for key, values in recorded.items()]


def _settings(run: Run) -> dict[str, Any]:
    try:
        return {key: value.replace(",", ", ") for key, value in as_texts(recorded_settings(run)).items()}
    except (EvomalError, KeyError, TypeError, ValueError):
        found = run.settings.get("settings")
        return {str(key): value for key, value in found.items()} if isinstance(found, Mapping) else {}


def _task(run: Run) -> dict[str, Any]:
    tasks = run.settings.get("task")
    if not isinstance(tasks, Mapping):
        return {}
    several = len(tasks) > 1
    return {
        f"{number}: {key}" if several else str(key): value
        for number, task in tasks.items()
        if isinstance(task, Mapping)
        for key, value in task.items()
    }


def _shared(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = every[0] if every else {}
    return {key: value for key, value in first.items() if all(key in one and one[key] == value for one in every)}


def _differing(every: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({key for one in every for key in one} - set(_shared(every)))


def shown_entry(value: Any) -> str:
    """A recorded value in a line."""
    if isinstance(value, Mapping):
        return shorten(", ".join(f"{key} {shown_entry(inner)}" for key, inner in value.items()), LONGEST_ENTRY)
    if isinstance(value, (list, tuple)):
        return shorten(", ".join(map(shown_entry, value[:LONGEST_ENTRY])) or "none", LONGEST_ENTRY)
    return shorten(value if isinstance(value, str) else "none" if value is None else json.dumps(value), LONGEST_ENTRY)


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
            shape = loss_shape(loss, classes=formula.row.run.classes)
            shown.append(ShownFigure(title, f"{text}, beside the task loss", draw_loss(shape)))
    return shown


_MOST_SENTENCES = 3


@dataclass(frozen=True)
class RunReport:
    """All of it, for one run, several runs, or a comparison with its searches."""

    folder: Path
    runs: Runs
    verdicts: RecordedVerdicts
    standings: tuple[Run, ...]
    """One for each run."""
    best: tuple[BestLosses, ...]
    """One for each task."""

    @property
    def run(self) -> Run | None:
        """The one run that the report is about; None where it is about several or a comparison."""
        is_about_one = len(self.runs.runs) == 1 and self.runs.runs[0].folder == self.folder
        return self.runs.runs[0] if is_about_one else None

    @property
    def title(self) -> str:
        """What was searched on, by what."""
        if not self.runs.runs:
            return f"Comparison in {self.folder.resolve().name}"
        tasks = "; ".join(dict.fromkeys(run.task for run in self.runs.runs))
        methods = ", ".join(dict.fromkeys(name for methods in self.runs.by_method().values() for name in methods))
        return shorten(f"{tasks}: {methods}", LONGEST_ENTRY)

    @property
    def subject(self) -> str:
        """How many runs there are, or which, and how they stand."""
        if self.run is not None:
            standing = self.standings[0]
            ended = f": {standing.ending}" if standing.ending else ""
            return f"One search, seed {self.run.seed}, begun {_moment(standing.created)}; {standing.state}{ended}."
        states = [str(standing.state) for standing in self.standings]
        found = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"{plural(len(states), 'search')}: {found}." if states else "Losses that were given, no searches."

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is missing, and what else should be known before anything is believed."""
        found = []
        for run, standing in zip(self.runs.runs, self.standings, strict=True):
            name = "This search" if self.run is not None else f"The search {run_name(run)}"
            found += [f"{name} {text}" for text in (*_state_sentences(run, standing), *_content_sentences(run))]
        return (*found, *self.runs.notes, *self.verdicts.notes)

    @cached_property
    def formulas(self) -> tuple[ShownFormula, ...]:
        """The best loss of each task on which anything was trained."""
        return tuple(shown_formula(best) for best in self.best if best.rows)

    @cached_property
    def commands(self) -> tuple[RepeatCommand, ...]:
        """How to repeat each run."""
        return tuple(repeat_command(run) for run in self.runs.runs)

    @cached_property
    def comparison_commands(self) -> tuple[RepeatCommand, ...]:
        """How to repeat the comparisons in the folder, with their searches; none where that cannot be told."""
        return repeat_comparisons(self.verdicts, self.folder) if self.run is None else ()

    @cached_property
    def own_commands(self) -> tuple[RepeatCommand, ...]:
        """Those of runs that no command of a comparison makes with it."""
        searches = self.folder / SEARCHES
        return tuple(
            command
            for run, command in zip(self.runs.runs, self.commands, strict=True)
            if not (self.comparison_commands and run.folder.is_relative_to(searches))
        )

    @property
    def shown_commands(self) -> tuple[RepeatCommand, ...]:
        """The commands that repeat everything in the report."""
        return (*self.comparison_commands, *self.own_commands)

    @cached_property
    def settings(self) -> RunSettings:
        """What the runs have recorded of their settings and where they ran."""
        return RunSettings(self.runs.runs, self.commands)

    def figures(self) -> list[ShownFigure]:
        """Drawn anew at every call."""
        return run_figures(self.runs, self.formulas, is_of_one=self.run is not None)

    def compare_command(self) -> str | None:
        """How to have the best loss of the one run judged; None where there is none to judge."""
        return compare_command(self.run) if self.run is not None and self.formulas else None

    def run_rows(self) -> list[tuple[str, ...]]:
        """Of several runs: folder, task, method, seed, state, generations, losses trained with, best."""
        rows: list[tuple[str, ...]] = []
        for run, standing in zip(self.runs.runs, self.standings, strict=True):
            best = min((candidate.fitness for candidate in run.trained), default=math.inf)
            shown = metric_value(run.value(best), run.metric) if math.isfinite(best) else "none"
            rows.append(
                (
                    _relative(run.folder, self.folder), run.task, run.method, shown_entry(run.seed),
                    str(standing.state), str(run.generations), str(len(run.trained)), shown,
                )
            )  # fmt: skip
        return rows

    def as_data(self) -> dict[str, Any]:
        """What programs want to know, as JSON has it."""
        return {
            "title": self.title,
            "runs": [
                {
                    "folder": str(run.folder), "task": run.task, "method": run.method, "seed": run.seed,
                    "state": str(standing.state), "generations": run.generations, "command": command.text,
                }
                for run, standing, command in zip(self.runs.runs, self.standings, self.commands, strict=True)
            ],
            "verdicts": [
                {"kind": verdict.kind, "sentence": verdict.sentence}
                for found in self.verdicts.verdicts
                for verdict in found.sentences
            ],
            "best": [
                {"task": best.task, "metric": best.metric, "trained": best.trained, "losses": best.columns()}
                for best in self.best
            ],
            "command": next((one.text for one in (self.commands[:1] if self.run else self.comparison_commands)), None),
            "warnings": list(self.warnings),
        }  # fmt: skip


def run_report(folder: Path | str, *, progress: bool = False) -> RunReport:
    """What there is to say of a run, of several runs, or of a comparison with its searches."""
    place = Path(folder)
    runs = read_runs([place], progress=progress)
    verdicts = recorded_verdicts(place)
    if not runs.runs and not verdicts.is_begun:
        raise InputError(f"{place}: holds neither a run nor a comparison")
    is_one = len(runs.runs) == 1 and runs.runs[0].folder == place
    if is_one and not verdicts.is_begun and place.resolve().parent.name == SEARCHES:
        verdicts = recorded_verdicts(place.resolve().parent.parent)  # the comparison that it was a search of
    standings = runs.runs
    return RunReport(place, runs, verdicts, standings, best_losses(runs))


def _state_sentences(run: Run, standing: Run) -> list[str]:
    found = []
    if standing.state is not RunState.COMPLETE:
        planned = dict(run.settings.get("budgets") or {}).get("generations")
        of = f" of {planned}" if isinstance(planned, int) else ""
        recorded = f"{run.generations}{of} generations are recorded"
        resume = f"evomal resume {shlex.quote(str(run.folder))} goes on with it"
        is_running = standing.state is RunState.RUNNING
        found.append(f"is still running: {recorded}." if is_running else f"was interrupted: {recorded}; {resume}.")
    found += [f"was forced to go on although {text}: it need not repeat." for text in standing.forced]
    return found


def _content_sentences(run: Run) -> list[str]:
    found = []
    if not run.candidates:
        found.append("has not recorded any candidate yet.")
    elif not run.trained:
        states = [str(candidate.state) for candidate in run.computed]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        found.append(f"trained with no loss: nothing survived ({counts}).")
    elif run.generations == 1:
        found.append("has one generation only, so that nothing was bred.")
    failures = [candidate.sentence for candidate in run.computed if candidate.state is State.FAILED]
    for sentence in sorted(set(failures), key=failures.count, reverse=True)[:_MOST_SENTENCES]:
        found.append(f"had {plural(failures.count(sentence), 'failure')}: {shorten(sentence, 2 * LONGEST_ENTRY)}")
    return found


def _moment(text: str) -> str:
    """A recorded time to the minute; as recorded where a stranger did."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return text


def _relative(path: Path, folder: Path) -> str:
    try:
        return str(path.relative_to(folder))
    except ValueError:
        return str(path)
