"""Pre-activation ResNet-101 for small images.

K. He, X. Zhang, S. Ren, J. Sun, "Identity Mappings in Deep Residual Networks", ECCV 2016.
"""

from torch import nn

from evomal.tasks.models.layers import GlobalAverage, PreActivationBlock, convolution, normalised
from evomal.tasks.models.zoo_model import ZooModel

STAGES = ((64, 3), (128, 4), (256, 23), (512, 3))
EXPANSION = 4


class PreResNet101(ZooModel):
    """A 3×3 stem, 33 bottlenecks, and the batch norm that the last sum still lacks."""

    name = "preresnet101"

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, _, _ = self.image(input_shape)
        layers: list[nn.Module] = [convolution(channels, 64)]
        channels = 64
        for width, blocks in STAGES:
            for block in range(blocks):
                layers.append(_bottleneck(channels, width, stride=2 if block == 0 and width != 64 else 1))
                channels = EXPANSION * width
        features = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), GlobalAverage())
        super().__init__(features, nn.Linear(channels, outputs))


def _bottleneck(channels: int, width: int, stride: int) -> PreActivationBlock:
    branch = nn.Sequential(
        normalised(channels, width, 1),
        normalised(width, width, stride=stride),
        convolution(width, EXPANSION * width, 1),
    )
    return PreActivationBlock(channels, EXPANSION * width, stride, branch)
