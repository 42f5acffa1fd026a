"""The command that repeats a comparison, from the files it left."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evomal.analysis.chosen_runs import Run
from evomal.analysis.repeat_commands import (
    UNKNOWN_TO_COMPARE,
    again,
    builtin_source,
    nearest_preset,
    recorded_settings,
    setting_words,
    task_words,
)
from evomal.errors import EvomalError
from evomal.losses import CATALOGUE
from evomal.methods import METHODS
from evomal.settings import SearchSettings
from evomal.verdict.training_log import LOG_NAME

_LONGEST = 4_000_000  # bytes


def repeat_comparison(folder: Path, runs: Sequence[Run]) -> str | None:
    """What to type; None where that cannot be told, as of tasks and losses from files, or from Python."""
    try:
        content = json.loads(_beginning(folder / "comparison.json"))
        source = builtin_source(content["record"])
        if source is None:
            return None
        plain = [row["name"] for row in content["rows"] if row["variant"] == "plain"]
        others = [name for name in plain if name != content["baseline"]]
        methods = [name for name in others if name in METHODS]
        losses = [name for name in others if name not in METHODS]
        words = ["evomal", "compare", *task_words(source)]
        if not all(name in CATALOGUE for name in losses) or set(words) & {*UNKNOWN_TO_COMPARE}:
            return None
        words += ["--methods", ",".join(methods)] if methods else []
        words += ["--losses", ",".join(losses)] if losses else []
        words += ["--seeds", str(len(content["seeds"]))]
        words += ["--search-seeds", str(len(content["search_seeds"]))] if methods else []
        words += ["--tune-lr", str(int(content["trials"]))] if content["trials"] else []
        is_rescaled = any(row["variant"] == "rescaled" for row in content["rows"])
        words += [] if is_rescaled or not others else ["--no-rescale"]
        words += setting_words(*nearest_preset(_settings(folder, runs)))
        return shlex.join([*words, "--out", again(folder)])
    except (EvomalError, OSError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None


def _settings(folder: Path, runs: Sequence[Run]) -> SearchSettings:
    """Those of the searches, or where there are none what the log of trainings says."""
    if runs:
        return recorded_settings(runs[0])
    _, first = json.loads(_beginning(folder / LOG_NAME).partition("\n")[0])
    recorded: Mapping[str, Any] = first["comparison"]
    names = ("optimizer", "device", "population_mode", "precision", "threads")
    values = {name: recorded[name] for name in names}
    return SearchSettings.preset("quick", **values, **recorded["recipe"], final_steps=recorded["steps"])


def _beginning(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LONGEST).decode(errors="replace")
