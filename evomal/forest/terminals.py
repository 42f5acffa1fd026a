"""The terminals of expressions by torch operations, from a model's raw outputs."""

import math
from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.checks import finite_vector
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.operators import (
    BALANCED,
    EXTRA_TERMINALS,
    LOG_PROBABILITY,
    MARGIN,
    PREDICTION,
    PRIOR,
    PROGRESS,
)
from evomal.forest.codes import Link
from evomal.text import plural

Values = Mapping[str, Tensor]
"""The value of every terminal by its token, for each output."""

_SUM_TOLERANCE = 1e-3  # shares may have been rounded
_SMALLEST = 1e-12


def terminal_values(
    outputs: Tensor, link: Link, extras: Sequence[str], *, priors: Tensor, progress: Tensor | float = 0.0
) -> dict[str, Tensor]:
    """Returns f and these terminals of the outputs, whose last dimension is that of a sample's outputs.

    Args:
        outputs: Logits, or values of regression.
        link: The function from outputs to f.
        extras: Terminals besides f.
        priors: Shares of the classes, in a shape that broadcasts to the outputs.
        progress: The share of the training that is done.
    """
    values = {PREDICTION: link.predictions(outputs)}
    for token in extras:
        if token == LOG_PROBABILITY:
            values[token] = _log_probabilities(outputs, link)
        elif token == BALANCED:
            shifts = prior_shift(priors.to(outputs.device, outputs.dtype), link)
            values[token] = _log_probabilities(outputs + shifts, link)
        elif token == MARGIN:
            values[token] = _margins(outputs) if link is Link.SOFTMAX else outputs
        elif token == PRIOR:
            values[token] = priors.to(outputs.device, outputs.dtype).expand_as(outputs)
        elif token == PROGRESS:
            values[token] = torch.as_tensor(progress, dtype=outputs.dtype, device=outputs.device).expand_as(outputs)
    return values


def prior_shift(priors: Tensor, link: Link) -> Tensor:
    """What is added to the logits for `blogp`: log-shares, or log-odds of the shares of labels."""
    return priors.log() if link is Link.SOFTMAX else priors.log() - (-priors).log1p()


def uses_priors(expression: Expression) -> bool:
    """Whether the loss depends on the priors of the classes."""
    return PRIOR in expression.tokens or BALANCED in expression.tokens


def checked_priors(priors: object, kind: str) -> tuple[float, ...]:
    """Returns the shares of the classes, or of labels.

    Raises:
        InputError: They are not numbers above 0 that add up to 1, or for multilabel not numbers between 0 and 1.
    """
    vector = finite_vector("priors", priors)  # type: ignore[arg-type]
    shares = tuple(float(share) for share in vector.tolist())
    least = 2 if kind == "classification" else 1
    if len(shares) < least:
        raise InputError(f"priors must have at least {least} entries but got {len(shares)}")
    for place, share in enumerate(shares):
        if not _SMALLEST <= share <= 1 - _SMALLEST:
            raise InputError(f"priors must be between {_SMALLEST:g} and 1 but that of class {place} is {share:g}")
    if kind != "multilabel" and abs(math.fsum(shares) - 1) > _SUM_TOLERANCE:
        raise InputError(f"priors must add up to 1 but add up to {math.fsum(shares):g}")
    return shares


def output_priors(priors: object, link: Link, kind: str, outputs: int) -> Tensor:
    """Returns the prior of each output: of a single logit, which decides between two classes, the second share.

    Without priors, classes have equal shares. Outputs beyond the classes are never a target; they are treated as
    classes as rare as the rarest one.
    """
    if priors is None:
        return torch.full((outputs,), 1 / outputs if link is Link.SOFTMAX else 0.5, dtype=torch.float64)
    shares = checked_priors(priors, kind)
    if link is Link.SIGMOID and kind == "classification":
        shares = shares[1:]
    elif kind == "classification" and outputs > len(shares):
        shares += (min(shares),) * (outputs - len(shares))
    if len(shares) != outputs:
        raise InputError(f"priors must have one entry for each of {plural(outputs, 'class')} but got {len(shares)}")
    return torch.tensor(shares, dtype=torch.float64)


def check_terminals(expression: Expression, kind: str) -> None:
    """Raise InputError if the expression has terminals that do not exist for this kind of task."""
    for token in expression.extras:
        if kind == "regression" and EXTRA_TERMINALS[token].is_of_classes:
            raise InputError(f"{token} is a terminal of classification, but the loss is for regression")


def _log_probabilities(outputs: Tensor, link: Link) -> Tensor:
    return outputs.log_softmax(-1) if link is Link.SOFTMAX else F.logsigmoid(outputs)


def _margins(outputs: Tensor) -> Tensor:
    """Each logit minus the largest other one; where several are largest, the first of them counts."""
    top = outputs.detach().argmax(-1, keepdim=True)
    second = outputs.detach().scatter(-1, top, -torch.inf).argmax(-1, keepdim=True)
    rival = torch.where(torch.arange(outputs.shape[-1], device=outputs.device) == top, second, top)
    return outputs - outputs.gather(-1, rival)
