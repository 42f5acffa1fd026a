"""Residual networks: ResNet-18, PreResNet-101, WRN-28-10 and PyramidNet."""

import torch.nn.functional as F
from torch import Tensor, nn

from evomal.tasks.models.base import BuiltInModel, GlobalAverage, PreActivationBlock, convolution, normalised


class ResNet18(BuiltInModel):
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


STAGES = ((64, 3), (128, 4), (256, 23), (512, 3))
EXPANSION = 4


class PreResNet101(BuiltInModel):
    """A 3×3 stem, 33 bottlenecks, and a batch norm after the last sum."""

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


BLOCKS = 4  # (28 − 4) / 6 of each width


class WideResNet(BuiltInModel):
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


ALPHA = 48
STAGE = 18  # (110 − 2) / 6 blocks in each of the three stages
PYRAMIDNET_BLOCKS = 3 * STAGE


class PyramidNet(BuiltInModel):
    """A 3×3 stem of 16 filters and 54 blocks, each a little wider than the last, up to 64 channels."""

    name = "pyramidnet"

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, _, _ = self.image(input_shape)
        layers: list[nn.Module] = [convolution(channels, 16), nn.BatchNorm2d(16)]
        channels = 16
        for block in range(PYRAMIDNET_BLOCKS):
            filters = round(16 + ALPHA * (block + 1) / PYRAMIDNET_BLOCKS)  # additive; rounding errors do not add up
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
