"""What all workers must agree on, as their numbers could differ otherwise."""

from collections.abc import Mapping
from typing import Any

_LONGEST = 60


def differing(found: Any, expected: Any, path: str = "") -> str | None:
    """The first value inside the one that is another inside the other: its name and both."""
    if isinstance(found, Mapping) and isinstance(expected, Mapping):
        pairs = [(str(key), found.get(key), expected.get(key)) for key in {**expected, **found}]
    elif isinstance(found, list | tuple) and isinstance(expected, list | tuple) and len(found) == len(expected):
        pairs = [(str(index), *pair) for index, pair in enumerate(zip(found, expected, strict=True))]
    else:
        return None if found == expected else f"{path} {_shown(found)} and not {_shown(expected)}"
    inner = (differing(theirs, ours, f"{path}.{name}" if path else name) for name, theirs, ours in pairs)
    return next((text for text in inner if text is not None), None)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
