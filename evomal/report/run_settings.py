"""What runs have recorded of their settings, their task and where they ran, as a report shows it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evomal.analysis.chosen_runs import Run
from evomal.analysis.repeat_commands import RepeatCommand, as_texts, recorded_settings
from evomal.errors import EvomalError
from evomal.report.harmless import cut

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
        return [(key, cut(" or ".join(dict.fromkeys(values)), LONGEST_ENTRY)) for key, values in recorded.items()]


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
        return cut(", ".join(f"{key} {shown_entry(inner)}" for key, inner in value.items()), LONGEST_ENTRY)
    if isinstance(value, (list, tuple)):
        return cut(", ".join(map(shown_entry, value[:LONGEST_ENTRY])) or "none", LONGEST_ENTRY)
    return cut(value if isinstance(value, str) else "none" if value is None else json.dumps(value), LONGEST_ENTRY)
