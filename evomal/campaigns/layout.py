"""The JSON of campaigns as text of which two versions can be compared line by line."""

import json
from typing import Any

_DIGITS = 7  # significant
_LONG_LISTS = ("tasks", "searches", "rows")


def rounded(value: Any) -> Any:
    """The value with its numbers rounded: more digits are noise, and differ from machine to machine."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


def laid_out(value: dict[str, Any], indent: str = "") -> str:
    """JSON with one line for each entry of the lists that grow, so that a difference of two files can be read."""
    inner = indent + " "
    parts = []
    for key, entry in value.items():
        if key in _LONG_LISTS and isinstance(entry, list) and entry and isinstance(entry[0], dict):
            is_nested = key == "tasks"
            lines = [laid_out(one, inner + " ") if is_nested else json.dumps(one, ensure_ascii=False) for one in entry]
            shown = ("[\n" + ",\n".join(f"{inner} {line}" for line in lines)) + f"\n{inner}]"
        elif key == "comparison" and isinstance(entry, dict):
            shown = laid_out(entry, inner)
        else:
            shown = json.dumps(entry, ensure_ascii=False)
        parts.append(f"{inner}{json.dumps(key)}: {shown}")
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
