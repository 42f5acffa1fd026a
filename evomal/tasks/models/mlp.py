"""Multi-layer perceptron: two hidden layers with ReLU.

D. E. Rumelhart, G. E. Hinton, R. J. Williams, "Learning representations by back-propagating errors", Nature 323, 1986.
"""

import math

from torch import nn

from evomal.errors import InputError
from evomal.tasks.models.zoo_model import ZooModel

WIDEST = 100_000  # two such layers are 40 GB: beyond it a mistyped number would take the machine down


class MultiLayerPerceptron(ZooModel):
    """Takes feature vectors and images alike: the input is flattened."""

    name = "mlp"
    start = "xavier"

    def __init__(self, input_shape: tuple[int, ...], outputs: int, *, hidden: int = 1000) -> None:
        if not 1 <= hidden <= WIDEST:
            raise InputError(f"mlp: hidden must be from 1 to {WIDEST} but got {hidden}")
        features = nn.Sequential(
            nn.Flatten(),
            nn.Linear(math.prod(input_shape), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
        )
        super().__init__(features, nn.Linear(hidden, outputs))
