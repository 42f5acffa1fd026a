"""The rules of the entries of a loss file: what each may be, and the error about one that breaks its rule.

A rule takes the place of an entry, such as `options.weight.3`, and its value; it returns the value or raises. Types are
strict: a text is not a number, and 1 is not true. Sizes are checked before anything inside is looked at.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from evomal.checks import unknown_name
from evomal.errors import InputError
from evomal.text import shorten

Rule = Callable[[str, Any], Any]
_MAX_ENTRY = 1_000
_MAX_INTEGER = 2**63


def broken(place: str, rule: str, value: Any) -> InputError:
    """Returns the error about a value that breaks a rule."""
    return InputError(f"{place} must be {rule} but got {short_json(value)}")


def short_json(value: Any) -> str:
    """The value as JSON, for an error message."""
    try:
        return shorten(json.dumps(value, default=str), 40)
    except (RecursionError, ValueError):  # nested too deeply, or a number with too many digits to be printed
        return "something too large to show"


def number(place: str, value: Any) -> float:
    """A finite number."""
    if type(value) not in (int, float):
        raise broken(place, "a number", value)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise broken(place, "a finite number", value)
    return found


def integer(place: str, value: Any) -> int:
    """A whole number of at most 64 bits."""
    if type(value) is not int or not -_MAX_INTEGER <= value < _MAX_INTEGER:
        raise broken(place, "a whole number of at most 64 bits", value)
    return value


def text(longest: int) -> Rule:
    """A text of at most `longest` characters."""

    def rule(place: str, value: Any) -> str:
        if not isinstance(value, str):
            raise broken(place, "a string", value)
        if len(value) > longest:
            raise InputError(f"{place} must have at most {longest} characters but has {len(value)}")
        return value

    return rule


def choice_of(*choices: str) -> Rule:
    """One of some texts."""

    def rule(place: str, value: Any) -> str:
        if not isinstance(value, str) or value not in choices:
            raise broken(place, f"one of {', '.join(choices)}", value)
        return value

    return rule


def list_of(entry: Rule, *, at_most: int, at_least: int = 0) -> Rule:
    """A list of `at_least` to `at_most` entries, each checked by a rule."""

    def rule(place: str, value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise broken(place, "a list", value)
        if not at_least <= len(value) <= at_most:
            bound = f"at least {at_least}" if len(value) < at_least else f"at most {at_most}"
            raise InputError(f"{place} must have {bound} entries but has {len(value)}")
        return [entry(f"{place}.{index}", inner) for index, inner in enumerate(value)]

    return rule


def or_null(entry: Rule) -> Rule:
    """Null, or an entry checked by a rule."""
    return lambda place, value: None if value is None else entry(place, value)


def anything(place: str, value: Any) -> Any:
    """An entry that is checked elsewhere."""
    return value


def option_of_a_loss(place: str, value: Any) -> Any:
    """An option that only the loss itself knows: true, false, null, a number, or a list of numbers."""
    if value is None or type(value) in (bool, int):
        return value
    return list_of(number, at_most=100_000)(place, value) if isinstance(value, list) else number(place, value)


def provenance(place: str, value: Any) -> dict[str, Any]:
    """Short texts and numbers by name, with at most one level of nesting."""
    entries = mapping(place, value)
    for outer, entry in entries.items():
        nested = entry if isinstance(entry, dict) else {outer: entry}
        for name, inner in nested.items():
            is_number = (isinstance(inner, int) and abs(inner) < _MAX_INTEGER) or (
                isinstance(inner, float) and math.isfinite(inner)
            )
            is_text = isinstance(inner, str) and len(inner) <= _MAX_ENTRY
            if not (inner is None or is_number or is_text):
                raise broken(f"{place}: each entry", "a short text or a finite number", inner)
            if max(len(outer), len(name)) > _MAX_ENTRY:
                raise broken(
                    f"{place}: each name", f"a string of at most {_MAX_ENTRY} characters", max(outer, name, key=len)
                )
    return entries


def mapping(place: str, value: Any) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise broken(place, "an object", value)
    return value


def entries_of(
    what: str, rules: Mapping[str, Rule], *, required: tuple[str, ...] = (), others: Rule | None = None
) -> Rule:
    """An object whose entries obey rules by name; only what is there is returned.

    Args:
        what: What an entry is called in the error about an unknown one.
        rules: The rule of each entry.
        required: The entries that may not be missing.
        others: The rule of entries that are not named; without it there may be none.
    """

    def rule(place: str, value: Any) -> dict[str, Any]:
        given, prefix = mapping(place, value), f"{place}." if place else ""
        for name in required:
            if name not in given:
                raise InputError(f"{prefix}{name} is missing")
        for name in given:
            if name not in rules and others is None:
                raise unknown_name(what, name, rules)
        return {
            name: rules.get(name, others or anything)(f"{prefix}{name}"[:80], inner) for name, inner in given.items()
        }

    return rule
