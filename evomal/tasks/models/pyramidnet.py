"""PyramidNet of depth 110 with basic blocks, widened by 48 channels in all (α = 48).

D. Han, J. Kim, J. Kim, "Deep Pyramidal Residual Networks", CVPR 2017.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from evomal.tasks.models.layers import GlobalAverage, convolution, normalised
from evomal.tasks.models.zoo_model import ZooModel

ALPHA = 48
STAGE = 18  # (110 − 2) / 6 blocks in each of the three stages
BLOCKS = 3 * STAGE


class PyramidNet(ZooModel):
    """A 3×3 stem of 16 filters and 54 blocks, each a little wider than the last, up to 64 channels."""

    name = "pyramidnet"

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, _, _ = self.image(input_shape)
        layers: list[nn.Module] = [convolution(channels, 16), nn.BatchNorm2d(16)]
        channels = 16
        for block in range(BLOCKS):
            filters = round(16 + ALPHA * (block + 1) / BLOCKS)  # the additive pyramid, rounded once
            layers.append(PyramidBlock(channels, filters, stride=2 if block in (STAGE, 2 * STAGE) else 1))
            channels = filters
        features = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), GlobalAverage())
        super().__init__(features, nn.Linear(channels, outputs))


class PyramidBlock(nn.Module):
    """Batch norm first and last, no ReLU on entry, as the paper found best.

    The shortcut gets zeros for the channels it lacks.
    """

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.BatchNorm2d(channels),
            normalised(channels, filters, stride=stride),
            convolution(filters, filters),
            nn.BatchNorm2d(filters),
        )
        # Rounded up, as the padded convolution rounds an odd side.
        self.shrink: nn.Module = nn.Identity() if stride == 1 else nn.AvgPool2d(stride, ceil_mode=True)
        self.lacking = filters - channels

    def forward(self, image: Tensor) -> Tensor:
        result: Tensor = self.branch(image) + F.pad(self.shrink(image), (0, 0, 0, 0, 0, self.lacking))
        return result
