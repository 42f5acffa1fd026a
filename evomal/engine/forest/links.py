"""How a model's raw outputs become the f of an expression."""

from enum import IntEnum


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
