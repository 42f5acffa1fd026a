"""The hand-made losses as families over their options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import sympy

from evomal.checks import unknown_name
from evomal.losses.catalogue import named_loss
from evomal.losses.contract import Loss

SYMBOLS: dict[str, Any] = {
    "phi0": sympy.Symbol("phi0", positive=True),
    "phi1": sympy.Symbol("phi1", positive=True),
    "smoothing": sympy.Symbol("xi", positive=True),
    "gamma": sympy.Symbol("gamma", positive=True),
}
"""The options as the formulas name them."""

LETTERS = {"phi0": "φ0", "phi1": "φ1", "smoothing": "ξ", "gamma": "γ"}


@dataclass(frozen=True)
class Family:
    """One loss at several values of one option."""

    name: str
    loss: str
    """Its name in the catalogue of losses."""
    option: str
    values: tuple[float, ...]
    others: Mapping[str, float] = field(default_factory=dict)
    """Options that stay."""

    @property
    def title(self) -> str:
        """The loss, with what stays."""
        kept = "".join(f", {LETTERS[option]} = {value:g}" for option, value in self.others.items())
        return f"{self.loss}{kept}"

    def members(self) -> list[tuple[str, Loss]]:
        """The losses, each with what sets it apart."""
        return [
            (f"{LETTERS[self.option]} = {value:g}", named_loss(self.loss, **{self.option: value}, **self.others))
            for value in self.values
        ]


_SMOOTHINGS = (0.0, 0.05, 0.1, 0.2, 0.4)
_GAMMAS = (0.0, 0.5, 1.0, 2.0, 5.0)  # as in Lin et al. (2017)
_FOCAL_SPARSE = "focal-sparse-label-smoothing"

_ROWS = (
    Family("absolute-ce", "absolute-ce", "phi1", (1.0, 1.1, 1.25, 1.5, 1.9)),
    Family("label-smoothing", "label-smoothing", "smoothing", _SMOOTHINGS),
    Family("sparse-label-smoothing", "sparse-label-smoothing", "smoothing", _SMOOTHINGS),
    Family("focal", "focal", "gamma", _GAMMAS),
    Family("focal-sparse", _FOCAL_SPARSE, "gamma", _GAMMAS, {"smoothing": 0.2}),  # EvoMAL, figure 17
    Family("focal-sparse", _FOCAL_SPARSE, "smoothing", _SMOOTHINGS, {"gamma": 2.0}),
)
FAMILIES = tuple(dict.fromkeys(row.name for row in _ROWS))


def families_named(name: str) -> list[Family]:
    """The families of that name, one for each option that is varied."""
    if name not in FAMILIES:
        raise unknown_name("family", name, FAMILIES)
    return [row for row in _ROWS if row.name == name]


def _sparse(xp: Any, p: Any, y: int, c: Any, o: Any) -> Any:
    if not y:
        return 0 * p
    if o.simplified:
        return -(xp.log(p) + o.smoothing * xp.log(1 - p))
    share = 1 - o.smoothing + o.smoothing / c
    return -(share * xp.log(p) + o.smoothing * (c - 1) / c * xp.log((1 - p) / (c - 1)))


def _focal_sparse(xp: Any, p: Any, y: int, c: Any, o: Any) -> Any:
    if not y:
        return 0 * p
    smoothed = p**o.gamma * o.smoothing * (c - 1) / c * xp.log((1 - p) / (c - 1))
    return -((1 - p) ** o.gamma * (1 - o.smoothing + o.smoothing / c) * xp.log(p) + smoothed)


OUTPUT_LOSSES: dict[str, Callable[..., Any]] = {
    "ce": lambda xp, p, y, c, o: -y * xp.log(p),
    "absolute-ce": lambda xp, p, y, c, o: y * o.phi0 * xp.abs(xp.log(o.phi1 * p)),
    "label-smoothing": lambda xp, p, y, c, o: -(y * (1 - o.smoothing) + o.smoothing / c) * xp.log(p),
    "sparse-label-smoothing": _sparse,
    "focal": lambda xp, p, y, c, o: -y * (1 - p) ** o.gamma * xp.log(p),
    "focal-sparse-label-smoothing": _focal_sparse,
}
"""What one output of probability p costs with its target y of 0 or 1: written over a namespace with abs and log, whose
numbers may be SymPy's, torch's or others, with the number of classes c and the options o."""


def output_loss(name: str, xp: Any, p: Any, y: int, c: Any, options: Mapping[str, Any]) -> Any:
    """The loss of that name at one output."""
    return OUTPUT_LOSSES[name](xp, p, y, c, SimpleNamespace(**options))
