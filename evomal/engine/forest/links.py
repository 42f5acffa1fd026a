"""How a model's raw outputs become the f of an expression."""

from enum import IntEnum

import torch
from torch import Tensor

from evomal.errors import InputError


class Link(IntEnum):
    """The function between outputs and f; its number is what kernels branch on."""

    IDENTITY = 0
    """Regression: f is the output."""
    SOFTMAX = 1
    """Classes: f is the probability of each class, y one-hot, a sample's loss the sum over the classes."""
    SIGMOID = 2
    """Independent binaries, one logit among them: f is the probability of a 1."""

    @classmethod
    def of(cls, kind: str, outputs: int) -> "Link":
        """The link of a task's kind and number of outputs, as `ExpressionLoss` has it."""
        if kind == "regression":
            return cls.IDENTITY
        return cls.SIGMOID if kind == "multilabel" or outputs == 1 else cls.SOFTMAX

    def predictions(self, outputs: Tensor) -> Tensor:
        """f of the raw outputs, whose last dimension are a sample's."""
        if self is Link.SOFTMAX:
            return outputs.softmax(-1)
        return outputs.sigmoid() if self is Link.SIGMOID else outputs


def dense_targets(targets: Tensor, link: Link, outputs: int, dtype: torch.dtype) -> Tensor:
    """Targets as `[B, K]` for so many outputs: class indices become one-hot. Nothing waits for the device.

    Class probabilities are refused: their loss is an expectation over the classes, not the formula at y = q.
    """
    if link is not Link.SOFTMAX:
        if targets.dim() == 1 and outputs == 1:
            return targets.to(dtype).unsqueeze(1)
        if targets.dim() == 2 and targets.shape[1] == outputs:
            return targets.to(dtype)
    elif targets.dim() == 1 and not targets.is_floating_point():
        blank = torch.zeros(len(targets), outputs, dtype=dtype, device=targets.device)
        return blank.scatter_(1, targets.long().unsqueeze(1), 1)
    form = "class indices [B]" if link is Link.SOFTMAX else f"values [B, {outputs}]"
    raise InputError(f"targets must be {form} but got {targets.dtype} of shape {list(targets.shape)}")


def mean_scale(kind: str, outputs: Tensor) -> float:
    """What turns a sum over samples and outputs `[…, B, K]` into the mean that losses of the kind reduce by."""
    samples, width = outputs.shape[-2:]
    return 1 / max(1, samples if kind == "classification" else samples * width)
