"""The commands that repeat the comparisons in a folder: what was typed, which their files keep."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evomal.analysis.repeat_commands import again

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
