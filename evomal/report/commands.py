"""The commands that repeat searches and comparisons, as they were recorded."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.errors import EvomalError
from evomal.runs.recorded_run import Run
from evomal.runs.store import BEST_NAME
from evomal.settings import PRESETS, SearchSettings
from evomal.settings.search_settings import RECIPE_SETTINGS
from evomal.tasks import Hardships
from evomal.verdict.folder import RecordedVerdicts

_COMPARED = ("metric", "optimizer", *RECIPE_SETTINGS, "final_steps", "milestones", "precision", "channels_last")
"""Settings that the trainings of a comparison share with those of a final."""
_PARTS = ("settings", "budgets", "workplace")


@dataclass(frozen=True)
class RepeatCommand:
    """The command that repeats a search or a comparison, and how the settings of a search differ from a preset."""

    text: str | None
    """None if the record does not have it."""
    sentence: str
    """Why there is none, or where and how to run it."""
    preset: str | None = None
    """The preset that differs in the fewest settings; None if the record does not have the settings of a search."""
    changes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Settings that differ from the preset's, in the form of `--set`."""


def repeat_command(run: Run) -> RepeatCommand:
    """The command that started a run, with another folder beside the run's to record it in."""
    try:
        settings = recorded_settings(run)
    except (EvomalError, KeyError, TypeError):
        return RepeatCommand(None, "this record does not have the settings of a search")
    preset, changes = _nearest_preset(settings)
    source = run.settings.get("source")
    recorded = source.get("command") if isinstance(source, Mapping) else None
    words = _checked(recorded.get("words"), ["search"]) if isinstance(recorded, Mapping) else []
    if not words or not isinstance(recorded, Mapping):
        sentence = "the record has no command: the search was started from Python, or by an older version of evomal"
        return RepeatCommand(None, sentence, preset, changes)
    first = run.settings.get("first_budgets") or run.settings.get("budgets", {})
    if first.get("generations") != settings.generations:  # the run was resumed with another number
        words = [*words, "--set", f"generations={settings.generations}"]
    text = shlex.join([*words, "--out", beside(run.folder)])
    return RepeatCommand(text, _conditions(run, settings, str(recorded.get("folder"))), preset, changes)


def repeat_comparisons(verdicts: RecordedVerdicts, folder: Path) -> tuple[RepeatCommand, ...]:
    """The commands of the comparisons in a folder, each with a new folder beside it.

    The files may be a stranger's: only commands that compare are returned, and every word is quoted.
    """
    commands = []
    for found in verdicts.verdicts:
        command = found.result.command
        if command is not None and (words := _checked(command.words, ["compare", "transfer"])):
            text = shlex.join([*words, "--out", beside(folder)])
            commands.append(RepeatCommand(text, f"run it from the folder {command.folder}"))
    return tuple(commands)


def compare_command(run: Run) -> str | None:
    """The command that compares the best loss of a run with the baseline; None if the record does not say its task."""
    words = compare_words(run)
    return None if words is None else shlex.join(words)


def compare_words(run: Run) -> list[str] | None:
    """The words of the command that `compare_command` returns."""
    try:
        words = [*_task_words(run.settings["source"], run), *_compared_settings(run)]
    except (EvomalError, KeyError, TypeError, ValueError):
        return None
    best, out = str(run.folder / BEST_NAME), str(run.folder)
    return ["evomal", "compare", *words, "--losses", best, "--losses", "strong", "--tune-lr", "5", "--out", out]


def beside(folder: Path) -> str:
    """The path of a new folder beside this one, in which to repeat what it holds."""
    return str(folder.with_name(f"{folder.name}-again") if folder.name not in ("", "..") else folder / "again")


def recorded_settings(run: Run) -> SearchSettings:
    """All settings of a search, from the parts of its record."""
    values = {key: value for part in _PARTS for key, value in run.settings.get(part, {}).items()}
    if run.generations > values["generations"]:  # the run was resumed with more
        values["generations"] = run.generations
    if all(optimizer == values.get("optimizer") for optimizer in _own_optimizers(run.settings.get("task", {}))):
        values["optimizer"] = None  # a record has it even if it is the tasks' own
    return SearchSettings(**values)


def _own_optimizers(tasks: Mapping[str, Any]) -> list[Any]:
    """The optimizers of the tasks' recipes; a recipe without one uses SGD."""
    recipes = [task.get("recipe") for task in tasks.values() if isinstance(task, Mapping)]
    return [recipe.get("optimizer", "sgd") for recipe in recipes if isinstance(recipe, Mapping)] or ["sgd"]


def _checked(words: object, commands: Sequence[str]) -> list[str]:
    """The words if they are one of these evomal commands; empty otherwise."""
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        return []
    is_command = len(words) > 1 and words[0] == "evomal" and words[1] in commands
    return list(words) if is_command else []


def _nearest_preset(settings: SearchSettings) -> tuple[str, dict[str, str]]:
    """The preset that differs in the fewest settings, with those."""
    mine = settings.as_texts()
    differing = {}
    for name in PRESETS:
        preset = SearchSettings.preset(name).as_texts()
        differing[name] = {key: value for key, value in mine.items() if value != preset[key]}
    nearest = min(differing, key=lambda name: len(differing[name]))
    return nearest, differing[nearest]


def _task_words(source: Any, run: Run) -> list[str]:
    """The task, the model and the hardships as arguments of a command."""
    (task,), model = source["tasks"], source["model"]
    if model is None and ":" not in task:
        (model,) = (described["model"] for described in run.settings["task"].values())  # as the default may change
    hardships, none = Hardships(**source["hardships"]), Hardships()
    words = [task, *([] if model is None else ["--model", model])]
    if not all(isinstance(word, str) and word and (word == "--model" or not word.startswith("-")) for word in words):
        raise ValueError("a task or a model in the record is not a name")
    for field in dataclasses.fields(hardships):
        value = getattr(hardships, field.name)
        if value != getattr(none, field.name):
            option = f"--{field.name.replace('_', '-')}"
            words += [option] if value is True else [option, repr(float(value))]
    return words


def _compared_settings(run: Run) -> list[str]:
    """The settings by which a comparison trains and judges as the search did, as arguments of a command."""
    mine, usual = recorded_settings(run).as_texts(), SearchSettings.preset("quick").as_texts()
    return [word for name in _COMPARED if mine[name] != usual[name] for word in ("--set", f"{name}={mine[name]}")]


def _conditions(run: Run, settings: SearchSettings, folder: str) -> str:
    """Where to run the command, and the options for what this machine decided in place of a setting."""
    threads, device = run.settings.get("threads"), run.settings.get("device")
    added = []
    if settings.threads is None and isinstance(threads, int):
        added.append(f"--set threads={threads}")
    if settings.device == "auto" and device in ("cpu", "cuda", "mps"):
        added.append(f"--device {device}")
    elsewhere = f"; on a machine with other cores or devices, add {' '.join(added)}" if added else ""
    return f"run it from the folder {folder}{elsewhere}"
