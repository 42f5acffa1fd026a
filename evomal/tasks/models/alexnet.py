"""AlexNet, scaled to small images: 3×3 kernels and 2×2 pooling.

A. Krizhevsky, I. Sutskever, G. E. Hinton, "ImageNet Classification with Deep Convolutional Neural Networks", NeurIPS
2012.
"""

from torch import nn

from evomal.tasks.models.layers import convolution
from evomal.tasks.models.zoo_model import ZooModel


class AlexNet(ZooModel):
    """Five convolutions, three poolings, two hidden layers of 4096; no dropout, as in the EvoMAL experiments."""

    name = "alexnet"
    smallest_image = 15

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, height, width = self.image(input_shape)
        left = _after_poolings(height) * _after_poolings(width)
        features = nn.Sequential(
            convolution(channels, 64, stride=2, bias=True),
            nn.ReLU(),
            nn.MaxPool2d(2),
            convolution(64, 192, bias=True),
            nn.ReLU(),
            nn.MaxPool2d(2),
            convolution(192, 384, bias=True),
            nn.ReLU(),
            convolution(384, 256, bias=True),
            nn.ReLU(),
            convolution(256, 256, bias=True),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256 * left, 4096),
            nn.ReLU(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
        )
        super().__init__(features, nn.Linear(4096, outputs))


def _after_poolings(side: int) -> int:
    # The strided convolution rounds up, each of the three poolings down.
    return (side + 1) // 2 // 8
