"""LeNet-5, with the softmax head of today in place of radial basis functions.

Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-Based Learning Applied to Document Recognition", Proc. IEEE
86(11), 1998.
"""

from torch import nn

from evomal.tasks.models.zoo_model import ZooModel


class LeNet5(ZooModel):
    """Two 5×5 convolutions without padding, each averaged by two, then 120 and 84 units; tanh throughout."""

    name = "lenet5"
    start = "xavier"
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
