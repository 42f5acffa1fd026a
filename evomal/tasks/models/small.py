"""Logistic regression, the multi-layer perceptron and LeNet-5."""

import math

from torch import nn

from evomal.errors import InputError
from evomal.tasks.models.base import ZooModel


class Logistic(ZooModel):
    """A linear function of the flattened input, which is its own representation."""

    name = "logistic"
    initialisation = "xavier"

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(math.prod(input_shape), outputs))


WIDEST = 100_000  # two such layers are 40 GB: beyond it a mistyped number would take the machine down


class MultiLayerPerceptron(ZooModel):
    """Takes feature vectors and images alike: the input is flattened."""

    name = "mlp"
    initialisation = "xavier"

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


class LeNet5(ZooModel):
    """Two 5×5 convolutions without padding, each averaged by two, then 120 and 84 units; tanh throughout."""

    name = "lenet5"
    initialisation = "xavier"
    smallest_image = 16

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, height, width = self.image(input_shape)
        # A 28×28 digit leaves 4×4, hence the 44 426 parameters.
        left = _after_convolutions(height) * _after_convolutions(width)
        features = nn.Sequential(
            nn.Conv2d(channels, 6, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.Tanh(),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * left, 120),
            nn.Tanh(),
            nn.Linear(120, 84),
            nn.Tanh(),
        )
        super().__init__(features, nn.Linear(84, outputs))


def _after_convolutions(side: int) -> int:
    return ((side - 4) // 2 - 4) // 2
