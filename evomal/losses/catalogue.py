"""Losses by name, for the command line, settings and loss files."""

import inspect
from typing import Any

from evomal.checks import Kind, named, options_in
from evomal.errors import InputError
from evomal.losses import classification, priors, regression, robust
from evomal.losses.loss import HandMadeLoss
from evomal.text import short_repr

_CLASSES: tuple[type[HandMadeLoss], ...] = (
    classification.CrossEntropyLoss,
    classification.AbsoluteCrossEntropyLoss,
    classification.LabelSmoothingLoss,
    classification.SparseLabelSmoothingLoss,
    classification.FocalLoss,
    classification.FocalSparseLabelSmoothingLoss,
    robust.PolyLoss,
    robust.GeneralizedCrossEntropyLoss,
    robust.SymmetricCrossEntropyLoss,
    robust.NormalizedCrossEntropyLoss,
    priors.ClassWeightedCrossEntropyLoss,
    priors.BalancedSoftmaxLoss,
    regression.SquaredErrorLoss,
    regression.AbsoluteErrorLoss,
    regression.HuberLoss,
    regression.LogCoshLoss,
    regression.CauchyLoss,
    regression.WelschLoss,
    regression.TukeyLoss,
    regression.QuantileLoss,
)

CATALOGUE: dict[str, type[HandMadeLoss]] = {loss.name: loss for loss in _CLASSES}
"""The classes of hand-made losses by name."""

TASK_LOSSES: dict[Kind, str] = {"classification": "ce", "multilabel": "ce", "regression": "mse"}
"""The usual loss of each kind of task: the baseline of searches."""


def named_loss(name: str, **options: Any) -> HandMadeLoss:
    """Makes a loss of the catalogue.

    Args:
        name: A name in `CATALOGUE`, such as `focal`.
        options: Arguments of its class, such as `gamma` or `reduction`.

    Returns:
        The loss.

    Raises:
        InputError: There is no such loss, it has no such option, or an option breaks its rule.

    Example:
        >>> named_loss("focal", gamma=3.0).formula()
        '-(1-p)^g log p'
    """
    known = (*named("loss", name, CATALOGUE).option_names, "kind", "weight", "ignore_index", "reduction")
    for option in options:
        if option not in known:
            raise InputError(f"{name} has no option {short_repr(option)}: its options are {', '.join(known)}")
    return CATALOGUE[name](**options)


def is_specified(spec: str) -> bool:
    """Whether a text begins with the name of a loss, as opposed to the path of a file."""
    return spec.partition(":")[0] in CATALOGUE


def specified_loss(spec: str, **contract: Any) -> HandMadeLoss:
    """Makes the loss that a text names, such as `focal` or `focal:gamma=3`; commas separate several options."""
    name = spec.partition(":")[0]
    loss = named("loss", name, CATALOGUE)
    defaults = {option: inspect.signature(loss).parameters[option].default for option in loss.option_names}
    # Options in a text are numbers. One that has no default, such as priors, is given by the task.
    numbers = {option: default for option, default in defaults.items() if default is not None}
    return named_loss(name, **options_in(spec, numbers), **contract)
