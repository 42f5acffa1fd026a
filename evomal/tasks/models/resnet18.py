"""ResNet-18 for small images: a 3×3 stem without pooling.

K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", CVPR 2016.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from evomal.tasks.models.layers import GlobalAverage, convolution, normalised
from evomal.tasks.models.zoo_model import ZooModel


class ResNet18(ZooModel):
    """Four stages of two basic blocks, 64 to 512 filters, each stage but the first at half the size."""

    name = "resnet18"

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, _, _ = self.image(input_shape)
        layers: list[nn.Module] = [normalised(channels, 64)]
        channels = 64
        for filters in (64, 128, 256, 512):
            layers.append(BasicBlock(channels, filters, stride=1 if filters == 64 else 2))
            layers.append(BasicBlock(filters, filters, stride=1))
            channels = filters
        super().__init__(nn.Sequential(*layers, GlobalAverage()), nn.Linear(channels, outputs))


class BasicBlock(nn.Module):
    """ReLU of two normalised convolutions plus the shortcut, projected where the shape changes."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            *normalised(channels, filters, stride=stride), convolution(filters, filters), nn.BatchNorm2d(filters)
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != filters:
            self.shortcut = nn.Sequential(convolution(channels, filters, 1, stride=stride), nn.BatchNorm2d(filters))

    def forward(self, image: Tensor) -> Tensor:
        return F.relu(self.branch(image) + self.shortcut(image))
