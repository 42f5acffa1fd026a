"""SqueezeNet with simple bypasses, for small images, with batch norm.

F. N. Iandola, S. Han, M. W. Moskewicz, K. Ashraf, W. J. Dally, K. Keutzer, "SqueezeNet: AlexNet-level accuracy with 50x
fewer parameters and <0.5MB model size", arXiv:1602.07360, 2016.
"""

import torch
from torch import Tensor, nn

from evomal.tasks.models.layers import GlobalAverage, convolution, normalised
from evomal.tasks.models.zoo_model import ZooModel


class SqueezeNet(ZooModel):
    """Eight fire modules, three of them bypassed, and a 1×1 convolution to the outputs, averaged over the image."""

    name = "squeezenet"
    smallest_image = 8

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, _, _ = self.image(input_shape)
        features = nn.Sequential(
            normalised(channels, 96, bias=True),
            nn.MaxPool2d(2),
            Fire(96, 128, 16),
            Fire(128, 128, 16, bypass=True),
            Fire(128, 256, 32),
            nn.MaxPool2d(2),
            Fire(256, 256, 32, bypass=True),
            Fire(256, 384, 48),
            Fire(384, 384, 48, bypass=True),
            Fire(384, 512, 64),
            nn.MaxPool2d(2),
            Fire(512, 512, 64),
        )
        super().__init__(features, nn.Sequential(convolution(512, outputs, 1, bias=True), GlobalAverage()))


class Fire(nn.Module):
    """Squeeze to few channels, then expand: half of the filters 1×1, half 3×3."""

    def __init__(self, channels: int, filters: int, squeezed: int, *, bypass: bool = False) -> None:
        super().__init__()
        self.squeeze = normalised(channels, squeezed, 1, bias=True)
        self.expand_small = normalised(squeezed, filters // 2, 1, bias=True)
        self.expand_large = normalised(squeezed, filters // 2, 3, bias=True)
        self.bypass = bypass

    def forward(self, image: Tensor) -> Tensor:
        few = self.squeeze(image)
        expanded = torch.cat((self.expand_small(few), self.expand_large(few)), 1)
        return expanded + image if self.bypass else expanded
