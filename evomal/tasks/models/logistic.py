"""Logistic regression, or linear regression under a squared error: one linear layer.

D. R. Cox, "The Regression Analysis of Binary Sequences", Journal of the Royal Statistical Society B 20(2), 1958.
"""

import math

from torch import nn

from evomal.tasks.models.zoo_model import ZooModel


class Logistic(ZooModel):
    """A linear function of the flattened input, which is its own representation."""

    name = "logistic"
    start = "xavier"

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(math.prod(input_shape), outputs))
