"""The numbers by which kernels know links, tokens and what a tree uses. Nothing here needs torch."""

from enum import IntEnum, IntFlag
from typing import TYPE_CHECKING

from evomal.errors import EvomalError
from evomal.expression import Expression
from evomal.expression.operators import (
    BALANCED,
    LOG_PROBABILITY,
    MARGIN,
    OPERATORS,
    PREDICTION,
    PRIOR,
    PROGRESS,
    TOKENS,
)

if TYPE_CHECKING:
    from torch import Tensor


class Link(IntEnum):
    """The function between outputs and f; its number is what kernels branch on."""

    IDENTITY = 0
    """Regression: f is the output."""
    SOFTMAX = 1
    """Classes: f is the probability of each class, y one-hot, a sample's loss the sum over the classes."""
    SIGMOID = 2
    """Independent binary outputs, or a single logit: f is the probability of a 1."""

    @classmethod
    def of(cls, kind: str, outputs: int) -> "Link":
        """The link of a task's kind and number of outputs, as `ExpressionLoss` has it."""
        if kind == "regression":
            return cls.IDENTITY
        return cls.SIGMOID if kind == "multilabel" or outputs == 1 else cls.SOFTMAX

    def predictions(self, outputs: "Tensor") -> "Tensor":
        """f of the raw outputs, whose last dimension is that of a sample's outputs."""
        if self is Link.SOFTMAX:
            return outputs.softmax(-1)
        return outputs.sigmoid() if self is Link.SIGMOID else outputs


CODES = {token: code for code, token in enumerate(TOKENS)}
"""Number of each token: operators first, then terminals."""


def operator_codes(backend: str, *tokens: str) -> tuple[int, ...]:
    """Returns the codes of the operators that a compiled backend implements.

    Raises:
        EvomalError: These are not exactly the operators of the table, in its order. The last branch of a kernel stands
            for the last operator, so a table with another operator would silently be computed wrongly.
    """
    if tokens != tuple(OPERATORS):
        differing = sorted(set(tokens) ^ set(OPERATORS)) or ["another order"]
        raise EvomalError(f"the {backend} backend does not follow the operator table: {', '.join(differing)}")
    return tuple(CODES[token] for token in tokens)


class Use(IntFlag):
    """What a tree uses besides f, y and constants.

    A tree whose only prediction is f has none of the first three flags. The gradient of any other tree is the sum of
    one pass for each of these flags that it has.
    """

    OWN = 1
    """f or logp, in a tree that has predictions other than f: both depend on the unchanged probabilities."""
    BALANCED = 2
    MARGIN = 4
    CONSTANT = 8
    """prior or t."""

    @classmethod
    def of(cls, expression: Expression) -> "Use":
        """The flags of an expression."""
        extras = expression.extras
        if not extras:
            return cls(0)
        found = cls.CONSTANT if {PRIOR, PROGRESS} & set(extras) else cls(0)
        found |= cls.BALANCED if BALANCED in extras else cls(0)
        found |= cls.MARGIN if MARGIN in extras else cls(0)
        if LOG_PROBABILITY in extras or (found & ~cls.CONSTANT and PREDICTION in expression.tokens):
            found |= cls.OWN
        return found


PREDICTED = Use.OWN | Use.BALANCED | Use.MARGIN
"""The flags of predictions."""

CODE, FIRST, SECOND = range(3)
"""Columns of a node: its token's code and the positions of its arguments (0 where there is none)."""
