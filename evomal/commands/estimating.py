"""`evomal search --dry-run`: what would be done, and what it is expected to take."""

import textwrap
from pathlib import Path
from typing import Any

import typer

from evomal.commands.json_output import echo_json
from evomal.runs.estimates import Estimate, estimate
from evomal.settings import SearchSettings
from evomal.tasks import Task

_WIDTH, _LABEL = 80, 13
_MEBIBYTE = 2**20


def show_estimate(
    tasks: list[Task], method: str, settings: SearchSettings, seed: int, folder: Path, *, as_json: bool
) -> None:
    """Print the settings and the estimate; nothing is written anywhere."""
    expected = estimate(tasks, method=method, settings=settings, seed=seed)
    values = settings.model_dump(mode="json")
    if as_json:
        about: dict[str, Any] = {"tasks": [task.name for task in tasks], "method": method, "seed": seed}
        echo_json({**about, "folder": str(folder), "settings": values, **_as_data(expected)})
        return
    for task in tasks:
        model = task.record.get("model", "own model")
        _row("task", f"{task.name}, {model}: {task.kind}, {len(task.train)} training rows, {task.metric.name}")
    _row("method", f"{method}, seed {seed}: {expected.generations} generations of {expected.population}")
    _row("settings", ", ".join(f"{key}={_plain(value)}" for key, value in values.items() if value is not None))
    _row("device", f"{expected.device}; {expected.plan}")
    parts = ", ".join(f"{stage} {_duration(seconds)}" for stage, seconds in expected.stages.items())
    _row("time", f"about {_duration(expected.seconds)} ({parts}); budgets may end it sooner")
    _row("memory", f"about {expected.memory / _MEBIBYTE:,.0f} MiB")
    _row("folder", str(folder))


def _as_data(expected: Estimate) -> dict[str, Any]:
    return {
        "generations": expected.generations, "population": expected.population, "device": expected.device,
        "plan": expected.plan, "seconds": expected.seconds, "stages": expected.stages, "memory": expected.memory,
    }  # fmt: skip


def _row(label: str, text: str) -> None:
    lines = textwrap.wrap(
        text, _WIDTH - _LABEL, break_on_hyphens=False, break_long_words=False, subsequent_indent=" " * _LABEL
    )
    typer.echo(f"{label:<{_LABEL}}" + "\n".join(lines))


def _plain(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes = seconds / 60
    return f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:.1f} h"
