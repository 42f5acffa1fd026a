"""The command that repeats a search, from what its record says."""

import dataclasses
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.errors import EvomalError
from evomal.methods import METHODS
from evomal.runs.reading import Run
from evomal.settings import PRESETS, SearchSettings
from evomal.tasks import TASKS, Hardships

UNKNOWN_TO_COMPARE = ("--asymmetric", "--imbalance", "--fraction")
"""Hardships that `evomal search` takes but `evomal compare` does not."""
_PARTS = ("settings", "budgets", "workplace")


@dataclass(frozen=True)
class RepeatCommand:
    """What to type; None with a sentence where nothing that is typed would repeat the search."""

    text: str | None
    sentence: str
    """Why not, or what else it takes."""
    preset: str | None
    """The one that the settings are nearest to."""
    changes: Mapping[str, str]
    """Settings that differ from the preset's, as `--set` takes them."""


def repeat_command(run: Run) -> RepeatCommand:
    """The command of a run that `evomal search` began; it records beside the run, under a new name."""
    try:
        settings = recorded_settings(run)
    except (EvomalError, KeyError, TypeError):
        return RepeatCommand(None, "this record does not have the settings of a search", None, {})
    preset, changes = _nearest_preset(settings)
    recorded = run.settings.get("source")
    try:
        source = _builtin_source(run) if recorded is None else recorded
        if source is None:
            sentence = "begun from Python: evomal.search with the same task and these settings repeats it"
            return RepeatCommand(None, sentence, preset, changes)
        if source["model"] is None and not any(":" in task for task in source["tasks"]):
            # Which model is meant by none depends on the version.
            source = {**source, "model": _recorded_model(run)}
        words = ["evomal", "search", *_task_words(source), *_method_words(run)]
    except (EvomalError, KeyError, TypeError, ValueError) as error:
        return RepeatCommand(None, f"this record does not say how it was begun: {error}", preset, changes)
    words += [*_setting_words(preset, changes), "--out", again(run.folder)]
    return RepeatCommand(shlex.join(words), _condition(run, settings), preset, changes)


def again(folder: Path) -> str:
    """Where what is in a folder may be done again: beside it, under another name."""
    return str(folder.with_name(f"{folder.name}-again") if folder.name not in ("", "..") else folder / "again")


def _setting_words(preset: str, changes: Mapping[str, str]) -> list[str]:
    """A preset and changes to it, as they are typed."""
    words = [] if preset == "quick" else ["--preset", preset]
    return words + [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]


def recorded_settings(run: Run) -> SearchSettings:
    """All settings of a search, wherever in the record they stand."""
    values = {key: value for part in _PARTS for key, value in dict(run.settings.get(part) or {}).items()}
    if run.generations > values["generations"]:  # it was resumed with more of them
        values["generations"] = run.generations
    return SearchSettings(**values)


def as_texts(settings: SearchSettings) -> dict[str, str]:
    """Every setting as `--set` takes it."""
    return {key: _text(value) for key, value in settings}


def _nearest_preset(settings: SearchSettings) -> tuple[str, dict[str, str]]:
    """The preset that differs in the fewest settings, with those."""
    mine = as_texts(settings)
    differing = {}
    for name in PRESETS:
        preset = as_texts(SearchSettings.preset(name))
        differing[name] = {key: value for key, value in mine.items() if value != preset[key]}
    nearest = min(differing, key=lambda name: len(differing[name]))
    return nearest, differing[nearest]


def _builtin_source(run: Run) -> dict[str, Any] | None:
    """How a built-in task is asked for, of searches that Python or a comparison began; None where no command does."""
    tasks = run.settings.get("task")
    records = list(tasks.values()) if isinstance(tasks, Mapping) else []
    record = records[0] if len(records) == 1 else None
    if not isinstance(record, Mapping) or record.get("dataset") not in TASKS or record.get("seed") != 0:
        return None
    return {"tasks": [record["dataset"]], "model": record.get("model"), "hardships": record.get("hardships")}


def _recorded_model(run: Run) -> str | None:
    """The model of all tasks, where they share one that has a name."""
    tasks = run.settings.get("task")
    records = list(tasks.values()) if isinstance(tasks, Mapping) else []
    models = {record.get("model") if isinstance(record, Mapping) else None for record in records}
    return models.pop() if len(models) == 1 else None


def _task_words(source: Any) -> list[str]:
    """Tasks, model and hardships, as they are typed."""
    tasks, model = source["tasks"], source["model"]
    hardships, none = Hardships(**source["hardships"]), Hardships()
    given = [*tasks, *([] if model is None else [model])]
    if not tasks or not all(isinstance(word, str) and word and not word.startswith("-") for word in given):
        raise ValueError("its tasks have no proper names")
    words = [*tasks, *([] if model is None else ["--model", model])]
    for field in dataclasses.fields(hardships):
        value = getattr(hardships, field.name)
        if value != getattr(none, field.name):
            option = f"--{field.name.replace('_', '-')}"
            words += [option] if value is True else [option, repr(float(value))]
    return words


def _method_words(run: Run) -> list[str]:
    if run.method not in METHODS or run.seed is None:
        raise ValueError("it has no method or no seed")
    return [*([] if run.method == "evomal" else ["--method", run.method]), "--seed", str(run.seed)]


def _condition(run: Run, settings: SearchSettings) -> str:
    """What of the machine takes part, though nobody set it."""
    threads, device = run.settings.get("threads"), run.settings.get("device")
    added = []
    if settings.threads is None and isinstance(threads, int):
        added.append(f"--set threads={threads}")
    if settings.device == "auto" and device in ("cpu", "cuda", "mps"):
        added.append(f"--device {device}")
    return f"on a machine with other cores or devices, add {' '.join(added)}" if added else ""


def _text(value: Any) -> str:
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, float) else str(value)


_BEGINNINGS = {
    "comparison.json": ["evomal", "compare"],
    "transfer.json": ["evomal", "transfer"],
    "learning-rates.json": ["evomal", "compare"],
}
_LONGEST = 4_000_000  # bytes


def repeat_comparisons(folder: Path) -> tuple[str, ...]:
    """What to type for each comparison that was typed; it records beside the folder, under a new name.

    Nothing but such a command is ever returned, whatever stands in the files, which may be a stranger's.
    """
    commands = []
    for name, beginning in _BEGINNINGS.items():
        try:
            words = _words(json.loads(_content(folder / name)))
        except (OSError, ValueError, RecursionError):
            continue
        if words[: len(beginning)] == beginning:
            commands.append(shlex.join([*words, "--out", again(folder)]))
    return tuple(commands)


def _words(content: Any) -> list[str]:
    """Those of a comparison, or of the first of several at different learning rates, which were typed together."""
    if isinstance(content, Mapping) and "command" not in content:
        content = next(iter(content.values()), None)
    words = content.get("command") if isinstance(content, Mapping) else None
    return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else []


def _content(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LONGEST).decode()
