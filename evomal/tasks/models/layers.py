"""Layers that several convolutional networks of the zoo are made of."""

from torch import Tensor, nn


def convolution(channels: int, filters: int, size: int = 3, *, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """A convolution that keeps the image's size at stride 1; residual networks leave the bias to batch norm."""
    return nn.Conv2d(channels, filters, size, stride=stride, padding=size // 2, bias=bias)


def normalised(channels: int, filters: int, size: int = 3, *, stride: int = 1, bias: bool = False) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(
        convolution(channels, filters, size, stride=stride, bias=bias), nn.BatchNorm2d(filters), nn.ReLU()
    )


class GlobalAverage(nn.Module):
    """One number a channel, whatever the image's size.

    A plain mean: the backward pass of torch's adaptive pooling is not deterministic on CUDA.
    """

    def forward(self, image: Tensor) -> Tensor:
        return image.mean((2, 3))


class PreActivationBlock(nn.Module):
    """x + branch(a) with a = ReLU(batch norm(x)), after He et al. 2016, "Identity Mappings in Deep Residual Networks".

    Where the shape changes the shortcut is a 1×1 convolution of a, else x untouched.
    """

    def __init__(self, channels: int, filters: int, stride: int, branch: nn.Module) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.branch = branch
        changes = stride != 1 or channels != filters
        self.shortcut = convolution(channels, filters, 1, stride=stride) if changes else None

    def forward(self, image: Tensor) -> Tensor:
        active = self.activate(image)
        kept = image if self.shortcut is None else self.shortcut(active)
        result: Tensor = self.branch(active) + kept
        return result
