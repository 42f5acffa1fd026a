"""Losses by name: what a command line, a setting or a loss file may ask for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from evomal.checks import unknown_name
from evomal.errors import InputError
from evomal.losses.classification import (
    AbsoluteCrossEntropyLoss,
    FocalLoss,
    FocalSparseLabelSmoothingLoss,
    LabelSmoothingLoss,
    SparseLabelSmoothingLoss,
)
from evomal.losses.contract import Loss
from evomal.losses.standard import AbsoluteErrorLoss, CrossEntropyLoss, HuberLoss, SquaredErrorLoss


@dataclass(frozen=True)
class NamedLoss:
    """A row of the catalogue."""

    name: str
    make: Callable[..., Loss]
    formula: str
    purpose: str


_ROWS = (
    NamedLoss("ce", CrossEntropyLoss, "-log p", "cross-entropy, the standard for classification"),
    NamedLoss(
        "absolute-ce",
        AbsoluteCrossEntropyLoss,
        "phi0 |log(phi1 p)|",
        "learned by EvoMAL; restrains confidence for 1 < phi1 < 2",
    ),
    NamedLoss(
        "label-smoothing",
        LabelSmoothingLoss,
        "-sum_i (y_i (1-s) + s/C) log p_i",
        "restrains confidence, over all classes",
    ),
    NamedLoss(
        "sparse-label-smoothing",
        SparseLabelSmoothingLoss,
        "-[(1-s+s/C) log p + s(C-1)/C log((1-p)/(C-1))]",
        "the same from the target alone",
    ),
    NamedLoss("focal", FocalLoss, "-(1-p)^g log p", "cares less for what is already right"),
    NamedLoss(
        "focal-sparse-label-smoothing",
        FocalSparseLabelSmoothingLoss,
        "-[(1-p)^g (1-s+s/C) log p + p^g s(C-1)/C log((1-p)/(C-1))]",
        "focal loss that restrains confidence",
    ),
    NamedLoss("mse", SquaredErrorLoss, "(f-y)^2", "squared error, the standard for regression"),
    NamedLoss("mae", AbsoluteErrorLoss, "|f-y|", "absolute error, robust to outliers"),
    NamedLoss(
        "huber", HuberLoss, "(f-y)^2/2 near y, then d (|f-y| - d/2)", "squared near the target, robust from afar"
    ),
)

CATALOGUE: dict[str, NamedLoss] = {row.name: row for row in _ROWS}


def named_loss(name: str, **options: Any) -> Loss:
    """The loss of that name with those options."""
    if name not in CATALOGUE:
        raise unknown_name("loss", name, CATALOGUE)
    make = CATALOGUE[name].make
    known = (*make.option_names, "kind", "weight", "ignore_index", "reduction")  # type: ignore[attr-defined]
    for option in options:
        if option not in known:
            raise InputError(f"{name} has no option {option[:60]!r}: its options are {', '.join(known)}")
    return make(**options)


def is_specified(spec: str) -> bool:
    """Whether a text begins with the name of a loss, as opposed to that of a file."""
    return spec.partition(":")[0] in CATALOGUE


def specified_loss(spec: str, **contract: Any) -> Loss:
    """The loss that a text names, such as `focal` or `focal:gamma=3`; several options are separated by commas."""
    name, _, listed = spec.partition(":")
    return named_loss(name, **dict(_option(spec, part) for part in listed.split(",") if part), **contract)


def _option(spec: str, part: str) -> tuple[str, float | bool]:
    option, _, text = (piece.strip() for piece in part.partition("="))
    if text in ("true", "false"):
        return option, text == "true"
    try:
        return option, float(text)
    except ValueError:
        raise InputError(f"{spec}: {option} must be a number but got {text!r}") from None


def name_of(loss: Loss) -> str | None:
    """The name under which a loss of this class is listed, if it is."""
    return next((row.name for row in _ROWS if row.make is type(loss)), None)
