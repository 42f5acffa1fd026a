"""Wide residual network WRN-28-10.

S. Zagoruyko, N. Komodakis, "Wide Residual Networks", BMVC 2016.
"""

from torch import nn

from evomal.tasks.models.layers import GlobalAverage, PreActivationBlock, convolution, normalised
from evomal.tasks.models.zoo_model import ZooModel

BLOCKS = 4  # (28 − 4) / 6 of each width


class WideResNet(ZooModel):
    """Three stages of four pre-activation blocks, ten times as wide as the thin network's 16, 32, 64; no dropout."""

    name = "wrn28-10"

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, _, _ = self.image(input_shape)
        layers: list[nn.Module] = [convolution(channels, 16)]
        channels = 16
        for filters in (160, 320, 640):
            for block in range(BLOCKS):
                stride = 2 if block == 0 and filters != 160 else 1
                branch = nn.Sequential(normalised(channels, filters, stride=stride), convolution(filters, filters))
                layers.append(PreActivationBlock(channels, filters, stride, branch))
                channels = filters
        features = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), GlobalAverage())
        super().__init__(features, nn.Linear(channels, outputs))
