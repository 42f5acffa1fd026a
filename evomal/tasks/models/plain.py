"""Networks without residual blocks: linear, MLP, LeNet-5, AlexNet, VGG-16, All-CNN-C and SqueezeNet."""

import math

import torch
from torch import Tensor, nn

from evomal.errors import InputError
from evomal.tasks.models.base import BuiltInModel, GlobalAverage, convolution, normalised


class Logistic(BuiltInModel):
    """A linear function of the flattened input, which is its own representation."""

    name = "logistic"
    initialisation = "xavier"

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        super().__init__(nn.Flatten(), nn.Linear(math.prod(input_shape), outputs))


WIDEST = 100_000  # two such layers take 40 GB; a mistyped larger number would exhaust the memory


class MultiLayerPerceptron(BuiltInModel):
    """Takes feature vectors and images alike: the input is flattened."""

    name = "mlp"
    initialisation = "xavier"

    def __init__(self, input_shape: tuple[int, ...], outputs: int, *, hidden: int = 1000) -> None:
        if not 1 <= hidden <= WIDEST:
            raise InputError(f"mlp: hidden must be from 1 to {WIDEST} but got {hidden}")
        features = nn.Sequential(
            nn.Flatten(), nn.Linear(math.prod(input_shape), hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()
        )
        super().__init__(features, nn.Linear(hidden, outputs))


class LeNet5(BuiltInModel):
    """Two 5×5 convolutions without padding, each with 2×2 average pooling, then 120 and 84 units; tanh throughout."""

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


class AlexNet(BuiltInModel):
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


STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(BuiltInModel):
    """Thirteen 3×3 convolutions, each stage halved by pooling; the two hidden layers of 4096 are left out.

    A 32×32 image ends as one pixel; of larger ones the average is taken, so that the parameters do not grow.
    """

    name = "vgg16"
    smallest_image = 32

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, _, _ = self.image(input_shape)
        layers: list[nn.Module] = []
        for stage in STAGES:
            for filters in stage:
                layers.append(normalised(channels, filters, bias=True))
                channels = filters
            layers.append(nn.MaxPool2d(2))
        super().__init__(nn.Sequential(*layers, GlobalAverage()), nn.Linear(channels, outputs))


class AllCNNC(BuiltInModel):
    """Nine convolutions, batch norm after each.

    The last one has no ReLU, so that logits keep their sign, and is averaged over the whole image. Dropout draws from
    torch's global generator, as `nn.Dropout` does.
    """

    name = "allcnnc"

    def __init__(self, input_shape: tuple[int, ...], outputs: int, *, dropout: float = 0.5) -> None:
        if not 0 <= dropout < 1:
            raise InputError(f"allcnnc: dropout must be at least 0 and less than 1 but got {dropout}")
        channels, _, _ = self.image(input_shape)
        features = nn.Sequential(
            normalised(channels, 96, bias=True),
            normalised(96, 96, bias=True),
            normalised(96, 96, stride=2, bias=True),
            nn.Dropout(dropout),
            normalised(96, 192, bias=True),
            normalised(192, 192, bias=True),
            normalised(192, 192, stride=2, bias=True),
            nn.Dropout(dropout),
            normalised(192, 192, bias=True),
            normalised(192, 192, 1, bias=True),
        )
        head = nn.Sequential(convolution(192, outputs, 1, bias=True), nn.BatchNorm2d(outputs), GlobalAverage())
        super().__init__(features, head)


class SqueezeNet(BuiltInModel):
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
