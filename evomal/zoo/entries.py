"""The losses of the zoo: their names, files and cards."""

import os
from pathlib import Path
from typing import Any

from evomal.checks import unknown_name

FOLDER = Path(__file__).parent
PREFIX = "zoo:"


def is_zoo_name(spec: Any) -> bool:
    """Whether a text or path names a loss of the zoo, as in `zoo:NAME`."""
    return isinstance(spec, str | os.PathLike) and str(spec).startswith(PREFIX)


def zoo_names() -> tuple[str, ...]:
    """The names of the losses in the zoo, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def zoo_file(spec: str | os.PathLike[str]) -> Path:
    """The loss file of `zoo:NAME`.

    Raises:
        InputError: The zoo has no such loss.
    """
    return _entry(spec, ".json")


def zoo_card(spec: str | os.PathLike[str]) -> str:
    """The card of `zoo:NAME` as Markdown: what was measured, and what was not.

    Raises:
        InputError: The zoo has no such loss.
    """
    return _entry(spec, ".md").read_text(encoding="utf-8")


def _entry(spec: str | os.PathLike[str], suffix: str) -> Path:
    name, names = str(spec).removeprefix(PREFIX), zoo_names()
    if name not in names:  # also keeps paths such as ../x out
        raise unknown_name("loss in the zoo", name, names)
    return FOLDER / f"{name}{suffix}"
