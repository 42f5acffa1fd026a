"""Checks of the numbers and names that callers pass; each raises one sentence with the rule and the value received."""

import difflib
import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from evomal.errors import InputError
from evomal.text import short_repr

if TYPE_CHECKING:  # importing torch takes longer than everything else here
    from torch import Tensor

Entry = TypeVar("Entry")
Kind = Literal["classification", "regression", "multilabel"]
"""The kinds of tasks, and of losses for them."""
KINDS: tuple[Kind, ...] = get_args(Kind)


def one_of(name: str, value: Any, choices: Collection[Any]) -> Any:
    """Returns the value, which must be one of the choices; these are texts, numbers or None."""
    # `value in choices` fails for an array, which is compared element by element.
    if not isinstance(value, str | int | float | None) or value not in tuple(choices):
        raise InputError(f"{name} must be one of {', '.join(map(str, choices))} but got {short_repr(value)}")
    return value


def unknown_name(what: str, name: Any, known: Iterable[str]) -> InputError:
    """Returns the error for a name that is not among the known ones."""
    return InputError(f"there is no {what} named {short_repr(name)}: {suggestion(name, known)}")


def named(what: str, name: Any, table: Mapping[str, Entry]) -> Entry:
    """Returns what the table holds under the name, or raises the error that suggests the nearest one."""
    if not isinstance(name, str) or name not in table:
        raise unknown_name(what, name, table)
    return table[name]


def path_to(name: str, value: Any) -> Path:
    """Returns the value as a path; it must be a string or a path, and not empty, which would be the current folder."""
    try:
        if value == "":
            raise TypeError
        return Path(value)
    except TypeError:
        raise InputError(f"{name} must be a path but got {short_repr(value)}") from None


def suggestion(name: Any, known: Iterable[str], what: str = "names") -> str:
    """Returns the part of an error message that suggests the nearest known name, or lists them all."""
    names = list(known)
    near = difflib.get_close_matches(name[:60].lower(), names, n=1) if isinstance(name, str) else []
    return f"did you mean {near[0]!r}?" if near else f"known {what} are {', '.join(names)}"


def options_in(spec: str, defaults: Mapping[str, float]) -> dict[str, float]:
    """Returns the options of a text such as `mlp:hidden=64`, where commas separate several.

    Args:
        spec: The text.
        defaults: The options that the named thing has; each value given must be of its default's type.
    """
    name, colon, listed = spec.partition(":")
    found: dict[str, float] = {}
    for part in listed.split(",") if colon else ():
        option, _, text = (piece.strip() for piece in part.partition("="))
        if option not in defaults:
            known = f"its options are {', '.join(defaults)}" if defaults else "it has none"
            raise InputError(f"{name} has no option {short_repr(option)}: {known}")
        if not text:
            raise InputError(f"{name}: {option} needs a value, as in {name}:{option}={defaults[option]}")
        if option in found:
            raise InputError(f"{name}: {option} is given twice")
        found[option] = _number_like(defaults[option], f"{name}: {option}", text)
    return found


def _number_like(default: float, place: str, text: str) -> float:
    if isinstance(default, bool):
        return bool(one_of(place, text, ("true", "false")) == "true")
    try:
        return type(default)(text)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise InputError(f"{place} must be {kind} but got {short_repr(text)}") from None


def whole_number(name: str, value: Any, *, at_least: int | None = None, at_most: int | None = None) -> int:
    """Returns the value as an `int`; it must be a whole number within the bounds, and not a bool."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise InputError(f"{name} must be a whole number but got {short_repr(value)}")
    if at_least is not None and number < at_least:
        raise InputError(f"{name} must be at least {at_least} but got {short_repr(number)}")
    if at_most is not None and number > at_most:
        raise InputError(f"{name} must be at most {at_most} but got {short_repr(number)}")
    return number


LARGEST_SEED = 2**63 - 1
"""The largest whole number that a record can hold."""

# The largest arguments that are accepted: larger ones are typing errors, or would fill the memory.
MOST_STEPS = 10**9
MOST_SEEDS = 10_000
MOST_POINTS = 10_001
MOST_CLASSES = 1_000_000
MOST_THREADS = 1_024


def seed_number(value: Any) -> int:
    """Returns the value as an `int`; it must be a whole number that can be a seed and be recorded."""
    return whole_number("seed", value, at_least=0, at_most=LARGEST_SEED)


def finite_number(
    name: str,
    value: Any,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    at_most: float = math.inf,
) -> float:
    """Returns the value as a `float`; it must be a finite number within the bounds, and not a bool."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} must be a number but got {short_repr(value)}")
    if isinstance(value, int) and abs(value) > 2**63:
        raise InputError(f"{name} must be between -2^63 and 2^63 but got {short_repr(value)}")
    bounds = {"at least": at_least, "more than": above, "less than": below, "at most": at_most}
    if not (math.isfinite(value) and at_least <= value <= at_most and above < value < below):
        rules = [f"{words} {bound:g}" for words, bound in bounds.items() if math.isfinite(bound)]
        rule = f" of {' and '.join(rules)}" if rules else ""
        raise InputError(f"{name} must be a finite number{rule} but got {value}")
    return float(value)


def finite_vector(name: str, values: "Tensor | Sequence[float]") -> "Tensor":
    """Returns the values as a vector of finite numbers: a tensor as it is, anything else in double precision."""
    import torch

    if isinstance(values, torch.Tensor):
        vector = values
        if vector.dim() != 1 or not vector.is_floating_point() or vector.is_meta:
            received = f"{vector.dtype} of shape {tuple(vector.shape)}"
            raise InputError(f"{name} must be a vector of floating-point numbers but got {received}")
    else:
        try:
            vector = torch.tensor(list(values), dtype=torch.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{name} must be a list of numbers but got {short_repr(values)}") from None
        if vector.dim() != 1:
            raise InputError(f"{name} must be a list of numbers but got {short_repr(values)}")
    finite = torch.isfinite(vector.detach())
    if not bool(finite.all()):
        place = int((~finite).nonzero()[0])
        raise InputError(f"{name} must be finite numbers but number {place} is {float(vector[place])}")
    return vector
