"""The data of a report on one run, several runs, or a comparison with its searches."""

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import State
from evomal.report.best_losses import BestLosses, best_losses
from evomal.report.commands import (
    RepeatCommand,
    compare_command,
    recorded_settings,
    repeat_command,
    repeat_comparisons,
)
from evomal.report.loss_table import ShownFormula, run_name, shown_formula
from evomal.runs.reading import read_runs
from evomal.runs.recorded_run import Run, Runs, RunState
from evomal.tasks.metric_display import named_value
from evomal.text import as_sentence, plural, shorten, value_text
from evomal.verdict.folder import RecordedVerdicts, recorded_verdicts, verdicts_of_runs
from evomal.verdict.plan import SEARCHES

LONGEST_ENTRY = 160  # characters
_MOST_SENTENCES = 3
_ENVIRONMENT = ("device", "threads", "precision", "dtype", "population_mode", "deterministic")


@dataclass(frozen=True)
class RunSettings:
    """The settings of all runs of a report, with the command that repeats each run."""

    runs: Sequence[Run]
    commands: Sequence[RepeatCommand]

    def entries(self) -> list[tuple[str, str]]:
        """Returns the settings that all runs share; an asterisk marks those that differ from the preset."""
        changed = {key for command in self.commands for key in command.changes}
        shared = _shared([_settings(run) for run in self.runs])
        return [
            (f"{key} *" if key in changed else key, value_text(value, LONGEST_ENTRY)) for key, value in shared.items()
        ]

    def sentence(self) -> str:
        """Names the closest preset, and the settings that differ between runs."""
        presets = sorted({command.preset for command in self.commands if command.preset is not None})
        if not presets:
            return "These records do not contain the settings of a search."
        differing = _differing([_settings(run) for run in self.runs])
        between = f" Searches differ in {', '.join(differing)}." if differing else ""
        return f"Preset {' or '.join(presets)}; * marks settings that differ from it.{between}"

    def task_entries(self) -> list[tuple[str, str]]:
        """Returns the recorded properties of the data and the training recipe that all runs share."""
        return [
            (key, value_text(value, LONGEST_ENTRY)) for key, value in _shared([_task(run) for run in self.runs]).items()
        ]

    def environment_entries(self) -> list[tuple[str, str]]:
        """Returns versions, device and threads as recorded; where runs differ, all values."""
        recorded: dict[str, list[str]] = {}
        for run in self.runs:
            found = {key: run.settings[key] for key in _ENVIRONMENT if key in run.settings}
            found |= run.settings.get("versions", {})
            for key, value in found.items():
                recorded.setdefault(key, []).append(value_text(value, LONGEST_ENTRY))
        return [(key, shorten(" or ".join(dict.fromkeys(values)), LONGEST_ENTRY)) for key, values in recorded.items()]


def _settings(run: Run) -> dict[str, Any]:
    try:
        return {key: value.replace(",", ", ") for key, value in recorded_settings(run).as_texts().items()}
    except (EvomalError, KeyError, TypeError, ValueError):
        return dict(run.settings.get("settings", {}))


def _task(run: Run) -> dict[str, Any]:
    tasks = run.settings.get("task", {})
    return {
        f"{number}: {key}" if len(tasks) > 1 else key: value
        for number, task in tasks.items()
        if isinstance(task, Mapping)
        for key, value in task.items()
    }


def _shared(every: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = every[0] if every else {}
    return {key: value for key, value in first.items() if all(key in one and one[key] == value for one in every)}


def _differing(every: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({key for one in every for key in one} - set(_shared(every)))


@dataclass(frozen=True)
class RunReport:
    """What a report says; pages and JSON are made from it."""

    folder: Path
    runs: Runs
    verdicts: RecordedVerdicts
    best: tuple[BestLosses, ...]
    """One for each task."""

    @property
    def run(self) -> Run | None:
        """The run that the report is about; None if it is about several runs or a comparison."""
        is_about_one = len(self.runs.runs) == 1 and self.runs.runs[0].folder == self.folder
        return self.runs.runs[0] if is_about_one else None

    @property
    def title(self) -> str:
        """The tasks and the methods."""
        if not self.runs.runs:
            return f"Comparison in {self.folder.resolve().name}"
        tasks = "; ".join(dict.fromkeys(run.task for run in self.runs.runs))
        methods = ", ".join(dict.fromkeys(name for methods in self.runs.by_method().values() for name in methods))
        return shorten(f"{tasks}: {methods}", LONGEST_ENTRY)

    @property
    def subject(self) -> str:
        """The state of the run, or the number of runs in each state."""
        if self.run is not None:
            run = self.run
            ended = f": {run.ending}" if run.ending else ""
            return f"One search, seed {run.seed}, started {_moment(run.created)}; {run.state}{ended}."
        if not self.runs.runs:
            return "A comparison of given losses, without searches."
        states = [str(run.state) for run in self.runs.runs]
        found = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        return f"{plural(len(states), 'search')}: {found}."

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before trusting the results, such as an interrupted search."""
        found = []
        for run in self.runs.runs:
            name = "This search" if self.run is not None else f"The search {run_name(run)}"
            found += [f"{name} {text}" for text in (*state_sentences(run), *_content_sentences(run))]
        return (*found, *self.runs.notes, *self.verdicts.notes)

    @cached_property
    def formulas(self) -> tuple[ShownFormula, ...]:
        """The best loss of each task for which a loss was trained."""
        return tuple(shown_formula(best) for best in self.best if best.rows)

    @cached_property
    def commands(self) -> tuple[RepeatCommand, ...]:
        """The command that repeats each run."""
        return tuple(repeat_command(run) for run in self.runs.runs)

    @cached_property
    def comparison_commands(self) -> tuple[RepeatCommand, ...]:
        """The commands that repeat the comparisons in the folder, including their searches."""
        return repeat_comparisons(self.verdicts, self.folder) if self.run is None else ()

    @cached_property
    def own_commands(self) -> tuple[RepeatCommand, ...]:
        """The commands of the runs that no command of a comparison repeats."""
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

    @property
    def command_sentences(self) -> list[str]:
        """Where and how to run the commands, or why there is none; each sentence once."""
        sentences = dict.fromkeys(command.sentence for command in self.shown_commands if command.sentence)
        return list(map(as_sentence, sentences))

    @cached_property
    def settings(self) -> RunSettings:
        """The recorded settings and environment of the runs."""
        return RunSettings(self.runs.runs, self.commands)

    def compare_command(self) -> str | None:
        """Returns the command that compares the best loss of the run with the baseline; None if there is none."""
        return compare_command(self.run) if self.run is not None and self.formulas else None

    def run_rows(self) -> list[tuple[str, ...]]:
        """Returns the cells of each run, from its folder to its best value on the longest rung."""
        rows: list[tuple[str, ...]] = []
        for run in self.runs.runs:
            best = min((candidate.fitness for candidate in run.comparable), default=math.inf)
            shown = named_value(run.value(best), run.metric) if math.isfinite(best) else "none"
            rows.append(
                (
                    _relative(run.folder, self.folder), run.task, run.method, value_text(run.seed, LONGEST_ENTRY),
                    str(run.state), str(run.generations), str(len(run.trained)), shown,
                )
            )  # fmt: skip
        return rows

    def as_data(self) -> dict[str, Any]:
        """Returns the report as values that JSON can represent."""
        return {
            "title": self.title,
            "runs": [
                {
                    "folder": str(run.folder), "task": run.task, "method": run.method, "seed": run.seed,
                    "state": str(run.state), "generations": run.generations, "command": command.text,
                }
                for run, command in zip(self.runs.runs, self.commands, strict=True)
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


def run_report(folder: Path | str) -> RunReport:
    """Reads the data of a report, with a progress bar on a terminal.

    Args:
        folder: The folder of a run, of several runs, or of a comparison.

    Returns:
        The report.

    Raises:
        InputError: If the folder contains neither a run nor a comparison.
    """
    place = Path(folder)
    runs = read_runs([place], progress=True)
    verdicts = recorded_verdicts(place)
    if not runs.runs and not verdicts.is_begun:
        raise InputError(f"{place}: contains neither a run nor a comparison")
    is_one = len(runs.runs) == 1 and runs.runs[0].folder == place
    if is_one and not verdicts.is_begun and place.resolve().parent.name == SEARCHES:
        verdicts = recorded_verdicts(place.resolve().parent.parent)  # the comparison that the run belongs to
    elif not is_one and not verdicts.is_begun:
        verdicts = verdicts_of_runs([run.folder for run in runs.runs])
    return RunReport(place, runs, verdicts, best_losses(runs))


def state_sentences(run: Run) -> list[str]:
    """Says that a run is not complete, and despite which differences it was resumed."""
    found = []
    if run.state is not RunState.COMPLETE:
        planned = run.settings.get("budgets", {}).get("generations")
        of = f"{run.generations} of " if isinstance(planned, int) else ""
        recorded = f"it has recorded {of}{plural(planned if of else run.generations, 'generation')}"
        resume = f"evomal resume {shlex.quote(str(run.folder))} resumes it"
        is_running = run.state is RunState.RUNNING
        found.append(f"is still running: {recorded}." if is_running else f"was interrupted: {recorded}; {resume}.")
    for reason in run.forced:
        found.append(f"was resumed with --force although {reason}: repeating it may give another result.")
    return found


def _content_sentences(run: Run) -> list[str]:
    found = []
    if not run.candidates:
        found.append("has not recorded any candidate yet.")
    elif not run.trained:
        states = [str(candidate.state) for candidate in run.computed]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        found.append(f"did not train any loss: no candidate passed the filters ({counts}).")
    elif run.generations == 1:
        found.append("has only one generation, so no candidate has parents.")
    failures = [candidate.sentence for candidate in run.computed if candidate.state is State.FAILED]
    for sentence in sorted(set(failures), key=failures.count, reverse=True)[:_MOST_SENTENCES]:
        found.append(f"had {plural(failures.count(sentence), 'failure')}: {shorten(sentence, 2 * LONGEST_ENTRY)}")
    return found


def _moment(text: str) -> str:
    """Returns a recorded time to the minute, or the text itself if it is not a time."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return text


def _relative(path: Path, folder: Path) -> str:
    try:
        return str(path.relative_to(folder))
    except ValueError:
        return str(path)
