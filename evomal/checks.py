"""Checks of numbers and names that callers pass, each with one sentence for what is wrong."""

import difflib
import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from evomal.errors import InputError


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among the known ones: the nearest of them, or all."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known names are {', '.join(names)}"
    return InputError(f"there is no {what} named {name[:60]!r}: {hint}")


def finite_vector(name: str, values: Tensor | Sequence[float]) -> Tensor:
    """The numbers as a vector: a tensor as it is, anything else in double precision; all finite."""
    if isinstance(values, Tensor):
        vector = values
        if vector.dim() != 1 or not vector.is_floating_point():
            received = f"{vector.dtype} of shape {tuple(vector.shape)}"
            raise InputError(f"{name} must be a vector of floating-point numbers but got {received}")
    else:
        try:
            vector = torch.tensor(list(values), dtype=torch.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{name} must be a list of numbers but got {str(values)[:60]}") from None
        if vector.dim() != 1:
            raise InputError(f"{name} must be a list of numbers but got {str(values)[:60]}")
    finite = torch.isfinite(vector.detach())
    if not bool(finite.all()):
        place = int((~finite).nonzero()[0])
        raise InputError(f"{name} must be finite numbers but number {place} is {float(vector[place])}")
    return vector


def checked(
    name: str, value: float, *, at_least: float = -math.inf, above: float = -math.inf, below: float = math.inf
) -> float:
    """The option's value as a float, or an error naming the bound it breaks."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"{name} must be a number but got {value!r}")
    if isinstance(value, int) and abs(value) > 2**63:
        raise InputError(f"{name} must be a number of ordinary size but has more than 18 digits")
    bounds = {"at least": at_least, "more than": above, "less than": below}
    kept = " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if math.isfinite(bound))
    if not (math.isfinite(value) and at_least <= value and above < value < below):
        raise InputError(f"{name} must be a finite number{' of ' * bool(kept)}{kept} but got {value}")
    return float(value)
